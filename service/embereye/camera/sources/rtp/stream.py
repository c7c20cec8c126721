"""Streams of pictures for RTP and RTSP: packets in, pictures offered, and the stream's state reported.

The reader of a socket calls `receive_packets`. The `receiver` assembles the pictures, and each is offered with its
capture time. The owner calls `check_state` several times a second. Every two seconds that compares the counts with the
previous ones and reports one sentence: streaming, losing packets, or why there is no picture. `PictureStream` has the
parts common to `JpegStream` and `VideoStream`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from embereye.camera.sources.source import Offer, SetState
from embereye.process.timing.clock import now_ns
from embereye.units import WHOLE
from embereye.wire.rtp.depacketize import Depacketizer, JpegFrame
from embereye.wire.rtp.packet import CaptureClock
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE
from embereye.wire.rtp.receiver import DEADLINE_NS
from embereye.wire.rtp.reorder import WINDOW
from embereye.wire.rtp.video_receiver import VideoReceiver
from embereye.wire.video.access_unit import AccessUnit

REPORT_SECONDS = 2.0  # between two reports of the stream's state
CHECK_SECONDS = 0.25  # between two checks whether a report is due
SILENT_SECONDS = 2.0  # without a packet, after which the stream counts as silent
_NAMES = {0: "PCMU audio", 8: "PCMA audio", 14: "MPEG audio", 26: "JPEG", 32: "MPEG video", 33: "MPEG transport stream"}


@dataclass(eq=False)
class PictureStream:
    """The `PacketReceiver` that is common to all formats; `set_state` receives the stream's state for people."""

    receiver: Depacketizer | VideoReceiver
    offer: Offer
    set_state: SetState
    payload_type: int
    encoding: str
    offered: int = field(default=0, init=False)
    packets_ns: int = field(default=0, init=False)  # monotonic time of the latest packet; 0: none yet
    _clock: CaptureClock = field(default_factory=CaptureClock, init=False)
    _state: str = field(default="", init=False)
    _reported: float = field(default=0.0, init=False)  # monotonic seconds of the latest report
    _totals: tuple[int, ...] = field(default=(0, 0, 0, 0, 0), init=False)  # at that time

    @property
    def has_pending(self) -> bool:
        """True if a picture is arriving."""
        return self.receiver.has_pending

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Add packets to their pictures; see `PacketReceiver`. Returns True if they complete a picture."""
        self.packets_ns = now_ns
        pictures = self.receiver.feed_joined(packets, size, now_ns)
        if pictures:
            self._offer_pictures(pictures)
        return bool(pictures)

    def receive_separate(self, packets: Iterable[memoryview], now_ns: int) -> bool:
        """Add packets of different sizes to their pictures. Returns True if they complete a picture."""
        self.packets_ns = now_ns
        feed = self.receiver.feed_joined
        pictures = [picture for packet in packets for picture in feed(packet, len(packet), now_ns)]
        if pictures:
            self._offer_pictures(pictures)
        return bool(pictures)

    def expire_pictures(self) -> None:
        """Offer pictures whose missing packets are overdue."""
        if self.receiver.has_pending:
            self._offer_pictures(self.receiver.poll(time.monotonic_ns()))

    def _offer_pictures(self, pictures: Iterable[JpegFrame | AccessUnit]) -> None:
        for picture in pictures:
            if not self.offered:
                self.report_state("streaming")
            self.offered += 1
            self._offer_picture(picture, self._clock.capture_ns(picture.timestamp, now_ns()))

    def _offer_picture(self, picture: Any, time_ns: int) -> None:
        raise NotImplementedError

    def report_state(self, state: str) -> None:
        """Report `state` if it has changed."""
        if state != self._state:
            self._state = state
            self.set_state(state)

    def check_state(self, silent: str, dropped_here: Callable[[], int] = int) -> None:
        """Report the stream's state every REPORT_SECONDS; `silent` is the state without packets.

        `dropped_here` returns the number of packets that this machine has dropped so far.
        """
        now = time.monotonic()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        if now - self.packets_ns / 1e9 > SILENT_SECONDS:
            self.report_state(silent)
            return
        counts, reception = self.receiver.counts, self.receiver.reception
        totals = (counts.pictures, counts.unusable, reception.expected, reception.lost, dropped_here())
        pictures, unusable, packets, lost, dropped_now = (
            new - old for new, old in zip(totals, self._totals, strict=True)
        )
        self._totals = totals
        if not pictures:
            self.report_state(self._why_no_picture())
        elif dropped_now > 0:  # negative: the socket is a new one
            self.report_state("streaming; this machine drops packets. Raise net.core.rmem_max")
        elif packets > 0 and lost > 0:
            self.report_state(
                f"streaming; {100 * lost / packets:.1f} % of packets lost" + self._spoiled(unusable, pictures)
            )
        elif unusable:
            self.report_state(f"streaming{self._spoiled(unusable, pictures)}")
        elif counts.strangers and self._has_new_strangers():
            self.report_state("streaming; another sender's packets to the same port are ignored")
        else:
            self.report_state("streaming")

    def _spoiled(self, unusable: int, pictures: int) -> str:
        return f"; {unusable} of {pictures} pictures unusable: {self.receiver.counts.problem}" if unusable else ""

    def _has_new_strangers(self) -> bool:
        before, self.receiver.counts.strangers = self.receiver.counts.strangers, 0
        return before > 0

    def _why_no_picture(self) -> str:
        """Explain why packets arrive but no pictures."""
        counts = self.receiver.counts
        if counts.other_payload:
            number = max(counts.other_payload, key=lambda kind: counts.other_payload[kind])
            name = _NAMES.get(number, "H.264 or another dynamic format" if number >= 96 else "unknown")
            counts.other_payload.clear()
            wanted = f"{self.payload_type} ({self.encoding})"
            return f"no picture: packets have payload type {number} ({name}), not {wanted}"
        return f"no picture: {counts.problem or 'no packet belongs to a picture'}"


class JpegStream(PictureStream):
    """Offers the JPEG pictures in its packets."""

    receiver: Depacketizer

    def __init__(
        self, offer: Offer, set_state: SetState, *, payload_type: int = PAYLOAD_TYPE, size: tuple[int, int] = (0, 0),
        deadline_ns: int = DEADLINE_NS,
    ) -> None:  # fmt: skip
        receiver = Depacketizer(payload_type, size, deadline_ns)
        super().__init__(receiver, offer, set_state, payload_type, "JPEG")

    def _offer_picture(self, picture: JpegFrame, time_ns: int) -> None:
        # Offer unusable pictures too: the mailbox rejects and counts them.
        self.offer(picture.data, time_ns, picture.lost if picture.usable else (WHOLE,))


class VideoStream(PictureStream):
    """Offers H.264 or H.265 access units in decoding order."""

    receiver: VideoReceiver

    def __init__(
        self, offer: Offer, set_state: SetState, *, encoding: str, payload_type: int, sets: Sequence[bytes],
        deadline_ns: int = DEADLINE_NS, window: int = WINDOW, alone: bool = False,
    ) -> None:  # fmt: skip
        receiver = VideoReceiver(encoding, payload_type, sets, deadline_ns, window, alone=alone)
        super().__init__(receiver, offer, set_state, payload_type, f"{encoding[0]}.{encoding[1:]}")
        self.damaged = False  # the latest picture and those after it are damaged until a key frame

    def _offer_picture(self, picture: AccessUnit, time_ns: int) -> None:
        self.damaged = picture.damages_following
        self.offer(picture, time_ns)

    @property
    def is_key_needed(self) -> bool:
        """True if no picture is usable until a key frame arrives."""
        return self.damaged or self.receiver.is_awaiting_key

    def _why_no_picture(self) -> str:
        if self.receiver.is_awaiting_key:
            return "no picture yet: waiting for a key frame"
        return super()._why_no_picture()
