"""Cameras that send RTP/JPEG to a port of ours, or to a multicast group, without being asked."""

import logging

from embereye.camera.sources.declared import DeclaredSource
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.datagrams import WANTED_BUFFER, DatagramReader, dropped, granted_buffer, open_port
from embereye.camera.sources.rtp.stream import CHECK_SECONDS, JpegStream
from embereye.camera.sources.source import Offer, SetState
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE

logger = logging.getLogger(__name__)


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
        receiver = open_port(self._what.address, self._what.port, self._what.interface)
        self._check_buffer(granted_buffer(receiver))
        silent = f"no packets on port {self._what.port}"
        stream.report_state(f"waiting for packets on port {self._what.port}")
        with DatagramReader(receiver, stream, self._poller):
            while True:
                await aligned_sleep(CHECK_SECONDS)
                if stream.packets_ns:
                    stream.check_state(silent, lambda: dropped(receiver))

    def _check_buffer(self, granted: int) -> None:
        if granted < WANTED_BUFFER and not self._warned:
            self._warned = True
            logger.warning(
                "port %d: the kernel keeps %d KiB of packets, %d KiB are wanted: raise net.core.rmem_max",
                self._what.port, granted // 1024, WANTED_BUFFER // 1024,
            )  # fmt: skip
