"""Cameras that send RTP/JPEG to a port of ours, or to a multicast group, without a request.

`play` opens the port, and a `DatagramReader` passes packets to a `JpegStream`, which offers the pictures. If a
multicast group is silent, the socket is opened again to join it; the stream and its counts remain.
"""

import ipaddress
import logging
import socket
import time

from embereye.camera.sources.declared import DeclaredSource
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import WANTED_BUFFER, DatagramReader, dropped, granted_buffer, open_port
from embereye.camera.sources.rtp.stream import CHECK_SECONDS, JpegStream
from embereye.camera.sources.source import Offer, SetState
from embereye.process.condition import Condition
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE

logger = logging.getLogger(__name__)
REJOIN_SECONDS = 5.0  # without a packet, after which a multicast group is joined again


class RtpSource:
    """A camera that sends RTP; see `Source`."""

    def __init__(self, declared: DeclaredSource, poller: SocketPoller) -> None:
        self._declared = declared
        self._poller = poller
        self._buffer = Condition(logger, first_only=True)  # it is too small

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Listen until cancelled. Raises SourceError if the port cannot be opened."""
        options = self._declared.options
        stream = JpegStream(
            offer, set_state, payload_type=options.get("payload", PAYLOAD_TYPE),
            size=(options.get("width", 0), options.get("height", 0)),
        )  # fmt: skip
        while True:
            receiver = open_port(self._declared.address, self._declared.port, self._declared.interface)
            with DatagramReader(receiver, stream, self._poller):
                self._check_buffer(granted_buffer(receiver))
                if not stream.packets_ns:
                    stream.report_state(f"waiting for packets on port {self._declared.port}")
                await self._listen(stream, receiver)

    async def _listen(self, stream: JpegStream, receiver: socket.socket) -> None:
        """Report the stream's state until the socket has to be opened again.

        A network interface that was removed and came back is in no multicast group, so the group has to be joined
        again.
        """
        opened = time.monotonic()
        group = bool(self._declared.address) and ipaddress.ip_address(self._declared.address).is_multicast
        while not group or time.monotonic() - max(opened, stream.packets_ns / 1e9) < REJOIN_SECONDS:
            await aligned_sleep(CHECK_SECONDS)
            if stream.packets_ns:
                stream.check_state(f"no packets on port {self._declared.port}", lambda: dropped(receiver))

    def _check_buffer(self, granted: int) -> None:
        if granted < WANTED_BUFFER:
            sentence = "port %d: the kernel buffers only %d KiB of packets, %d KiB are needed. Raise net.core.rmem_max"
            numbers = self._declared.port, granted // 1024, WANTED_BUFFER // 1024
            self._buffer.fail("too small", sentence, *numbers)
