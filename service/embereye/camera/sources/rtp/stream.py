"""The stream of pictures that RTP and RTSP share: packets in, pictures offered, and how the stream is."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from embereye.camera.sources.source import Offer, SetState
from embereye.process.timing.clock import now_ns
from embereye.wire.rtp.depacketize import DEADLINE_NS, Depacketizer, JpegFrame
from embereye.wire.rtp.packet import CaptureClock, PacketReception
from embereye.wire.rtp.payload_header import PAYLOAD_TYPE
from embereye.wire.rtp.reorder import WINDOW
from embereye.wire.rtp.video_receiver import VideoReceiver
from embereye.wire.video.access_unit import AccessUnit

REPORT_SECONDS = 2.0  # between two reports of how the stream is
CHECK_SECONDS = 0.25  # between two checks whether one is due
SILENT_SECONDS = 2.0  # without a packet, after which the stream is called silent
_NAMES = {0: "PCMU audio", 8: "PCMA audio", 14: "MPEG audio", 26: "JPEG", 32: "MPEG video", 33: "MPEG transport stream"}


class _Counts(Protocol):
    malformed: int
    other_payload: dict[int, int]
    strangers: int
    pictures: int
    problem: str


class Receiver(Protocol):
    """Puts packets together; `Depacketizer` or `VideoReceiver`."""

    reception: PacketReception
    ssrc: int

    @property
    def has_pending(self) -> bool:
        """Whether a picture is arriving."""
        ...

    @property
    def counts(self) -> _Counts:
        """What became of packets and pictures."""
        ...


class PictureStream:
    """What the streams of all formats share; `set_state` is called with its state, for people."""

    def __init__(self, receiver: Receiver, set_state: SetState, *, payload_type: int, encoding: str) -> None:
        self.receiver = receiver
        self.offered = 0
        self.packets_ns = 0  # when a packet came last, monotonic; 0: never
        self._set_state = set_state
        self._payload_type = payload_type
        self._encoding = encoding
        self._clock = CaptureClock()
        self._state = ""
        self._reported = 0.0  # when the state was reported last, monotonic seconds
        self._totals = (0, 0, 0, 0, 0)  # at that time

    @property
    def pending(self) -> bool:
        """Whether a picture is arriving."""
        return self.receiver.has_pending

    @property
    def spoiled(self) -> int:
        """Pictures that were of no use so far."""
        raise NotImplementedError

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Put packets into their pictures; see `PacketReceiver`. Returns whether they complete one."""
        raise NotImplementedError

    def expire_pictures(self) -> None:
        """Offer pictures whose missing packets are not waited for any longer."""
        raise NotImplementedError

    def _note_offer(self) -> None:
        if not self.offered:
            self.report_state("streaming")
        self.offered += 1

    def _capture_ns(self, timestamp: int) -> int:
        return self._clock.capture_ns(timestamp, now_ns())

    def report_state(self, state: str) -> None:
        """Report `state` where it differs from the one before."""
        if state != self._state:
            self._state = state
            self._set_state(state)

    def check_state(self, silent: str, dropped_here: Callable[[], int] = int) -> None:
        """Report how the stream is, every REPORT_SECONDS; `silent` is the state to report without packets.

        `dropped_here` returns how many packets this machine has dropped so far.
        """
        now = time.monotonic()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        if now - self.packets_ns / 1e9 > SILENT_SECONDS:
            self.report_state(silent)
            return
        counts, reception = self.receiver.counts, self.receiver.reception
        totals = (counts.pictures, self.spoiled, reception.expected, reception.lost, dropped_here())
        pictures, unusable, packets, lost, dropped_now = (
            new - old for new, old in zip(totals, self._totals, strict=True)
        )
        self._totals = totals
        if not pictures:
            self.report_state(self._why_no_picture())
        elif dropped_now > 0:  # less: the socket is a new one
            self.report_state("streaming; packets are dropped on this machine: raise net.core.rmem_max")
        elif packets > 0 and lost > 0:
            self.report_state(
                f"streaming; {100 * lost / packets:.1f} % of packets lost" + self._spoiled(unusable, pictures)
            )
        elif unusable:
            self.report_state(f"streaming{self._spoiled(unusable, pictures)}")
        elif counts.strangers and self._others_go_on():
            self.report_state("streaming; another sender's packets to the same port are ignored")
        else:
            self.report_state("streaming")

    def _spoiled(self, unusable: int, pictures: int) -> str:
        return f"; {unusable} of {pictures} pictures unusable: {self.receiver.counts.problem}" if unusable else ""

    def _others_go_on(self) -> bool:
        before, self.receiver.counts.strangers = self.receiver.counts.strangers, 0
        return before > 0

    def _why_no_picture(self) -> str:
        """Why packets come and no pictures."""
        counts = self.receiver.counts
        if counts.other_payload:
            number = max(counts.other_payload, key=lambda kind: counts.other_payload[kind])
            name = _NAMES.get(number, "H.264 or another format of its own" if number >= 96 else "unknown")
            counts.other_payload.clear()
            wanted = f"{self._payload_type} ({self._encoding})"
            return f"no picture: packets of payload type {number} ({name}) come, not {wanted}"
        return f"no picture: {counts.problem or 'packets come, but none that belongs to a picture'}"


class JpegStream(PictureStream):
    """A `PacketReceiver` that offers the JPEG pictures in its packets."""

    receiver: Depacketizer

    def __init__(
        self, offer: Offer, set_state: SetState, *, payload_type: int = PAYLOAD_TYPE, size: tuple[int, int] = (0, 0),
        deadline_ns: int = DEADLINE_NS,
    ) -> None:  # fmt: skip
        receiver = Depacketizer(payload_type, size, deadline_ns)
        super().__init__(receiver, set_state, payload_type=payload_type, encoding="JPEG")
        self._offer = offer

    @property
    def spoiled(self) -> int:
        """Pictures that were of no use so far."""
        return self.receiver.counts.unusable

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Put packets into their pictures; see `PacketReceiver`. Returns whether they complete one."""
        self.packets_ns = now_ns
        pictures = self.receiver.feed_joined(packets, size, now_ns)
        if pictures:
            self._offer_pictures(pictures)
        return bool(pictures)

    def expire_pictures(self) -> None:
        """Offer pictures whose missing packets are not waited for any longer."""
        if self.receiver.has_pending and (pictures := self.receiver.poll(time.monotonic_ns())):
            self._offer_pictures(pictures)

    def _offer_pictures(self, pictures: Iterable[JpegFrame]) -> None:
        for picture in pictures:
            self._note_offer()
            # An unusable picture is offered as well: the mailbox rejects and counts it.
            self._offer(picture.data, self._capture_ns(picture.timestamp), picture.lost)


class VideoStream(PictureStream):
    """A `PacketReceiver` that offers the access units of H.264 or H.265 in its packets, in decoding order."""

    receiver: VideoReceiver

    def __init__(
        self, offer: Offer, set_state: SetState, *, encoding: str, payload_type: int, sets: Sequence[bytes],
        deadline_ns: int = DEADLINE_NS, window: int = WINDOW, alone: bool = False,
    ) -> None:  # fmt: skip
        receiver = VideoReceiver(encoding, payload_type, sets, deadline_ns, window, alone=alone)
        super().__init__(receiver, set_state, payload_type=payload_type, encoding=f"{encoding[0]}.{encoding[1:]}")
        self._offer = offer
        self.damaged = False  # the latest picture cannot be trusted, nor can those after it: a key frame would help

    @property
    def spoiled(self) -> int:
        """Pictures that were of no use so far."""
        return self.receiver.counts.damaged

    def receive_packets(self, packets: memoryview, size: int, now_ns: int) -> bool:
        """Put packets into their pictures; see `PacketReceiver`. Returns whether they complete one."""
        self.packets_ns = now_ns
        units = self.receiver.feed_joined(packets, size, now_ns)
        self._offer_units(units)
        return bool(units)

    def expire_pictures(self) -> None:
        """Offer pictures whose missing packets are not waited for any longer."""
        if self.receiver.has_pending:
            self._offer_units(self.receiver.poll(time.monotonic_ns()))

    def _offer_units(self, units: Iterable[AccessUnit]) -> None:
        for unit in units:
            self._note_offer()
            self.damaged = unit.damages_following
            self._offer(unit, self._capture_ns(unit.timestamp))

    @property
    def wants_key(self) -> bool:
        """Whether nothing can be seen until a key frame comes."""
        return self.damaged or self.receiver.is_awaiting_key

    def _why_no_picture(self) -> str:
        if self.receiver.is_awaiting_key:
            return "no picture yet: it waits for a key frame"
        return super()._why_no_picture()
