"""RTP/JPEG that a camera sends to a port of ours, and the stream of pictures that RTSP shares with it."""

import logging
import time
from collections.abc import Callable, Iterable

from embereye.camera.sources.declared import Declared
from embereye.camera.sources.poller import Intake
from embereye.camera.sources.rtp.datagrams import WANTED_BUFFER, Datagrams, dropped, granted_buffer, open_port
from embereye.camera.sources.source import Offer, Tell
from embereye.process.aligned_sleep import aligned_sleep
from embereye.wire.rtp.depacketize import DEADLINE_NS, PAYLOAD_TYPE, Depacketizer, Picture
from embereye.wire.rtp.packet import CaptureClock

logger = logging.getLogger(__name__)
TELL_SECONDS = 2.0  # between two looks at how the stream is
LOOK_SECONDS = 0.25  # between two looks at whether it is time for that
SILENT_SECONDS = 2.0  # without a packet
_NAMES = {0: "PCMU audio", 8: "PCMA audio", 14: "MPEG audio", 26: "JPEG", 32: "MPEG video", 33: "MPEG transport stream"}


class PictureStream:
    """Packets in, pictures offered, and what people are told about it."""

    def __init__(
        self, offer: Offer, tell: Tell, *, payload_type: int = PAYLOAD_TYPE, size: tuple[int, int] = (0, 0),
        deadline_ns: int = DEADLINE_NS,
    ) -> None:  # fmt: skip
        self.receiver = Depacketizer(payload_type, size, deadline_ns)
        self.offered = 0
        self.packets_ns = 0  # when a packet came last, monotonic; 0: never
        self._offer = offer
        self._tell = tell
        self._payload_type = payload_type
        self._clock = CaptureClock()
        self._told = ""
        self._looked = 0.0
        self._before = (0, 0, 0, 0, 0)

    @property
    def pending(self) -> bool:
        """Whether a picture is arriving."""
        return self.receiver.pending

    def take(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Take RTP packets of `size` bytes, the last may have less, one behind the other, read at `now_ns` (monotonic).

        Returns whether they complete a picture.
        """
        self.packets_ns = now_ns
        pictures = self.receiver.feed_joined(packets, size, now_ns)
        if pictures:
            self._hand_on(pictures)
        return bool(pictures)

    def poll(self) -> None:
        """Hand on pictures whose missing packets are waited for no longer."""
        if self.receiver.pending and (pictures := self.receiver.poll(time.monotonic_ns())):
            self._hand_on(pictures)

    def _hand_on(self, pictures: Iterable[Picture]) -> None:
        for picture in pictures:
            if not self.offered:
                self.say("streaming")
            self.offered += 1
            # An unusable picture is handed on, too: the mailbox refuses and counts it.
            self._offer(picture.data, self._clock.capture_ns(picture.timestamp, time.time_ns()), picture.lost)

    def say(self, state: str) -> None:
        """Tell a state, if it is another one."""
        if state != self._told:
            self._told = state
            self._tell(state)

    def look(self, silent: str, dropped_here: Callable[[], int] = int) -> None:
        """Tell how the stream is, every TELL_SECONDS; `silent` is the state without packets.

        `dropped_here` counts the packets that this machine has dropped.
        """
        now = time.monotonic()
        if now - self._looked < TELL_SECONDS:
            return
        self._looked = now
        if now - self.packets_ns / 1e9 > SILENT_SECONDS:
            self.say(silent)
            return
        counts, reception = self.receiver.counts, self.receiver.reception
        totals = (counts.pictures, counts.unusable, reception.expected, reception.lost, dropped_here())
        pictures, unusable, packets, lost, dropped_now = (
            new - old for new, old in zip(totals, self._before, strict=True)
        )
        self._before = totals
        if not pictures:
            self.say(self._nothing())
        elif dropped_now:
            self.say("streaming; packets are dropped on this machine: raise net.core.rmem_max")
        elif packets > 0 and lost > 0:
            self.say(f"streaming; {100 * lost / packets:.1f} % of packets lost" + self._spoiled(unusable, pictures))
        elif unusable:
            self.say(f"streaming{self._spoiled(unusable, pictures)}")
        elif counts.strangers and self._others_go_on():
            self.say("streaming; another sender's packets to the same port are ignored")
        else:
            self.say("streaming")

    def _spoiled(self, unusable: int, pictures: int) -> str:
        return f"; {unusable} of {pictures} pictures unusable: {self.receiver.counts.problem}" if unusable else ""

    def _others_go_on(self) -> bool:
        before, self.receiver.counts.strangers = self.receiver.counts.strangers, 0
        return before > 0

    def _nothing(self) -> str:
        """Why packets come and no pictures."""
        counts = self.receiver.counts
        if counts.other_payload:
            number = max(counts.other_payload, key=lambda kind: counts.other_payload[kind])
            name = _NAMES.get(number, "H.264 or another format of its own" if number >= 96 else "unknown")
            counts.other_payload.clear()
            return f"no picture: packets of payload type {number} ({name}) come, not {self._payload_type} (JPEG)"
        return f"no picture: {counts.problem or 'packets come, but none that belongs to a picture'}"


class RtpSource:
    """A camera that sends RTP/JPEG to a port of ours, or to a multicast group, without being asked."""

    def __init__(self, what: Declared, intake: Intake) -> None:
        self._what = what
        self._intake = intake
        self._warned = False

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Listen until cancelled; SourceError where the port cannot be had."""
        options = self._what.options
        stream = PictureStream(
            offer, tell, payload_type=options.get("payload", PAYLOAD_TYPE),
            size=(options.get("width", 0), options.get("height", 0)),
        )  # fmt: skip
        receiver = open_port(self._what.address, self._what.port, self._what.interface)
        self._check_buffer(granted_buffer(receiver))
        silent = f"no packets on port {self._what.port}"
        stream.say(f"waiting for packets on port {self._what.port}")
        with Datagrams(receiver, stream, self._intake):
            while True:
                await aligned_sleep(LOOK_SECONDS)
                if stream.packets_ns:
                    stream.look(silent, lambda: dropped(receiver))

    def _check_buffer(self, granted: int) -> None:
        if granted < WANTED_BUFFER and not self._warned:
            self._warned = True
            logger.warning(
                "port %d: the kernel keeps %d KiB of packets, %d KiB are wanted: raise net.core.rmem_max",
                self._what.port, granted // 1024, WANTED_BUFFER // 1024,
            )  # fmt: skip
