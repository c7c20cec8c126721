"""Cameras that send RTP/JPEG to a port of ours, or to a multicast group, without being asked."""

import ipaddress
import logging
import socket
import time

from embereye.camera.sources.declared import DeclaredSource
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import WANTED_BUFFER, DatagramReader, dropped, granted_buffer, open_port
from embereye.camera.sources.rtp.stream import CHECK_SECONDS, JpegStream
from embereye.camera.sources.source import Offer, SetState
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE

logger = logging.getLogger(__name__)
REJOIN_SECONDS = 5.0  # without a packet, after which a multicast group is joined anew


class RtpSource:
    """One such camera; see `Source`."""

    def __init__(self, what: DeclaredSource, poller: SocketPoller) -> None:
        self._what = what
        self._poller = poller
        self._warned = False

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Listen until cancelled; SourceError where the port cannot be had."""
        options = self._what.options
        stream = JpegStream(
            offer, set_state, payload_type=options.get("payload", PAYLOAD_TYPE),
            size=(options.get("width", 0), options.get("height", 0)),
        )  # fmt: skip
        while True:
            receiver = open_port(self._what.address, self._what.port, self._what.interface)
            with DatagramReader(receiver, stream, self._poller):
                self._check_buffer(granted_buffer(receiver))
                if not stream.packets_ns:
                    stream.report_state(f"waiting for packets on port {self._what.port}")
                await self._listen(stream, receiver)

    async def _listen(self, stream: JpegStream, receiver: socket.socket) -> None:
        """Tell how the stream is until it has to be listened to anew.

        An interface that was away, as a network adapter that was pulled out, is in no group when it is back.
        """
        opened = time.monotonic()
        group = bool(self._what.address) and ipaddress.ip_address(self._what.address).is_multicast
        while not group or time.monotonic() - max(opened, stream.packets_ns / 1e9) < REJOIN_SECONDS:
            await aligned_sleep(CHECK_SECONDS)
            if stream.packets_ns:
                stream.check_state(f"no packets on port {self._what.port}", lambda: dropped(receiver))

    def _check_buffer(self, granted: int) -> None:
        if granted < WANTED_BUFFER and not self._warned:
            self._warned = True
            logger.warning(
                "port %d: the kernel keeps %d KiB of packets, %d KiB are wanted: raise net.core.rmem_max",
                self._what.port, granted // 1024, WANTED_BUFFER // 1024,
            )  # fmt: skip
