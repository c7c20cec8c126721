"""A camera's mailbox: the compressed frame that waits, the latest wins, and the ledger of what became of each."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from embereye.camera.scheduling.rate_controller import RateController
from embereye.camera.scheduling.video import SENT_BYTES, CodedUnit, Depth, PictureGroup, VideoFlow
from embereye.shard.ledger import Ledger
from embereye.units import Box
from embereye.wire.jpeg.header import Headers, JpegError, JpegHeader
from embereye.wire.radiometric import is_radiometric, read_header
from embereye.wire.video.access_unit import AccessUnit

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame; 4K at the highest quality stays below it
REMEMBERED_UNITS = 256  # of a video, whose capture times are known: decoders hand pictures out some units later
# Of a video, frames that may wait while the pool has time to spare. All are decoded in any case: to look at them all is
# cheap, and whoever was held up for a moment, camera, network or shard, misses nothing.
VIDEO_SLOTS = 3
WAITS_FOR_KEY = "waits for a key frame"


@dataclass(slots=True)
class Tally:
    """What became of a camera's frames on one sender's stream, and when that stream is to be read again."""

    analysed: int = 0
    shed: int = 0
    heard_ns: int = 0  # when the last frame arrived
    wanted_ns: int = 0  # when the next one is worth receiving; 0: as soon as it comes


@dataclass(slots=True, eq=False)
class Frame:
    """One compressed frame that passed the header check. Times are nanoseconds since the Unix epoch.

    Not frozen: of a video `units` is known only as its turn comes, and `time_ns` as it is decoded.
    """

    data: bytes
    header: JpegHeader
    time_ns: int  # of capture, as far as it is known
    received_ns: int
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive
    hurried: bool = False  # the pool does not keep up: what can wait is not done for this frame
    radiometric: bool = False  # its pixels are temperatures
    encoding: str = ""  # of a video: H264 or H265
    units: Sequence[CodedUnit] = ()  # of a video: what is to be decoded, the last of them to be seen
    group: PictureGroup | None = None  # of a video: that it belongs to
    until: int = 0  # of a video: how many units of the group have to be decoded
    beside: CodedUnit | None = None  # of a video: its own unit, where no other refers to it
    passed: Sequence["Frame"] = ()  # of a video: frames before it that nobody looks at, and that are decoded with it


@dataclass
class Mailbox:
    """Holds one frame, of a video `slots`; `ledger` counts all that were offered. Any thread may call `take_frame`."""

    rate_controller: RateController = field(default_factory=RateController)
    ledger: Ledger = field(default_factory=Ledger)
    rejected_ns: int = 0  # when a frame was rejected last; 0: never
    rejected_reason: str = ""
    _headers: Headers = field(default_factory=Headers)
    # Popping is atomic: a frame is either taken out by a thread or superseded, never both.
    _slot: deque[Frame] = field(default_factory=deque)
    depth: Depth = Depth.ALL  # of a video: which of its pictures are decoded while nothing is suspected
    slots: int = 1  # of a video: frames that may wait, each for its own turn
    encoding: str = ""  # H264 or H265, where its latest frame was a video's
    flow: VideoFlow = field(default_factory=VideoFlow)  # of a video
    _group: PictureGroup | None = None  # of a video; None: nothing can be decoded until the next key frame
    _number: int = 0  # of the latest unit
    _times: dict[int, int] = field(default_factory=dict)  # of capture, by unit

    @property
    def may_wait(self) -> bool:
        """Whether its only waiting frame, of a video, can as well be decoded with the next one: there is room."""
        return self.slots > 1 and len(self._slot) == 1 and self._slot[0].group is not None

    @property
    def waiting(self) -> Frame | None:
        """The oldest waiting frame, left in its slot."""
        try:
            return self._slot[0]
        except IndexError:
            return None

    def offer_frame(
        self,
        data: bytes,
        time_ns: int,
        received_ns: int,
        *,
        tally: Tally | None = None,
        boosted: bool = False,
        lost: tuple[Box, ...] = (),
        early_ns: int = 0,
    ) -> str:
        """Put a frame in the slot, in place of one that waits there; returns why it was rejected, or ''.

        A frame above the rate is shed, which is no rejection. `boosted` admits it all the same: flicker under suspicion
        needs every frame. `early_ns` is how much before its time a frame may come while the rate is cut.
        """
        self.ledger.offered += 1
        try:
            if len(data) > MAX_BYTES:
                raise JpegError("too large", f"{len(data)} bytes, at most {MAX_BYTES}")
            thermal = is_radiometric(data)
            header = read_header(data) if thermal else self._headers.read(data)
            if not header.complete:
                raise JpegError("truncated", f"no end of image within {len(data)} bytes")
        except JpegError as error:
            self.ledger.rejected[error.reason] += 1
            self.rejected_ns, self.rejected_reason = received_ns, str(error)
            if tally:
                tally.shed += 1
            return str(error)
        rate = self.rate_controller
        if not boosted and (reason := rate.admit_frame(received_ns, early_ns)):
            self.count_shed(tally, reason)
            return ""
        self.encoding = ""
        self._put(Frame(data, header, time_ns, received_ns, tally, lost, rate.limited, thermal))
        return ""

    def _put(self, frame: Frame) -> None:
        """Put `frame` in a slot, in place of the oldest one where none is free."""
        slots = self.slots if frame.group else 1
        while len(self._slot) >= slots and (superseded := self.take_frame()):
            self.count_shed(superseded.tally, "superseded")
        self._slot.append(frame)

    def offer_unit(self, unit: AccessUnit, time_ns: int, received_ns: int, *, boosted: bool, refused: bool) -> str:
        """Put the picture of an access unit in the slot as `offer_frame` does; returns why it was rejected, or ''.

        A unit that is shed is decoded all the same with the next one, where others refer to it. `refused`: this shard
        does not serve the camera for now.
        """
        self.ledger.offered += 1
        self.encoding = unit.encoding
        self.flow.record_arrival(key=unit.key, reference=unit.reference, now_ns=received_ns)
        self._number = self._number + 1 & 0xFFFF_FFFF
        self._times[self._number] = time_ns
        if len(self._times) > REMEMBERED_UNITS:
            del self._times[next(iter(self._times))]
        if unit.spoils:
            self._group = None
        if unit.damaged and not unit.refreshes:
            return self._reject_damaged(unit, received_ns)
        reason, coded = self._skipped(unit, boosted=boosted), CodedUnit(unit.data, self._number, unit.key)
        if refused or reason == WAITS_FOR_KEY or (reason and unit.reference):
            self._group = None
        elif not reason:
            if unit.key:
                self._group = PictureGroup()
            assert self._group is not None
            if unit.reference:
                self._group.add(coded)
        if unit.damaged:
            return self._reject_damaged(unit, received_ns)
        if refused or reason:
            self.count_shed(None, "refused" if refused else reason)
            return ""
        group, rate = self._group, self.rate_controller
        assert group is not None
        if not boosted and (reason := rate.admit_frame(received_ns)) and not group.full:
            self.count_shed(None, reason)
            return ""
        header = JpegHeader(*unit.size, 3, several=False, complete=True)
        beside = None if unit.reference else coded
        self._put(
            Frame(b"", header, time_ns, received_ns, hurried=rate.limited, encoding=unit.encoding, group=group,
                  until=len(group), beside=beside)
        )  # fmt: skip
        return ""

    def _reject_damaged(self, unit: AccessUnit, now_ns: int) -> str:
        self.ledger.rejected["damaged"] += 1
        self.rejected_ns, self.rejected_reason = now_ns, f"damaged: {unit.damaged}"
        return self.rejected_reason

    def _skipped(self, unit: AccessUnit, *, boosted: bool) -> str:
        """Why `unit` is not to be decoded, for the ledger; or ''."""
        if unit.key:
            return ""
        if self._group is None:
            return WAITS_FOR_KEY if self.depth < Depth.KEYS or boosted else "overload"
        if boosted or self.depth is Depth.ALL:
            return ""
        return "overload" if self.depth is Depth.KEYS or not unit.reference else ""

    def with_units(self, frame: Frame) -> Frame | None:
        """`frame` of a video, taken from its slot, with what is to be decoded; None: that is known no more."""
        if frame.group is None:
            return frame
        units = None if frame.group.given_up else frame.group.unsent(frame.until)
        if units is not None:
            frame.units = [*units, frame.beside] if frame.beside else units
            if sum(len(unit.data) for unit in frame.units) <= SENT_BYTES:
                return frame
            frame.group.give_up()
        if frame.group is self._group:
            self._group = None
        self.count_shed(frame.tally, WAITS_FOR_KEY)
        return None

    def time_of(self, number: int) -> int:
        """The capture time of the unit `number`; 0: it is known no more."""
        return self._times.get(number, 0)

    def begin_anew(self, *, replay: bool) -> None:
        """Note that the decoder has lost what it had of a video; without `replay` the next key frame is waited for."""
        if self._group is not None:
            if replay:
                self._group.rewind()
            else:
                self._group.give_up()
                self._group = None

    def take_frame(self) -> Frame | None:
        """Remove the oldest waiting frame and return it; whoever calls this has to count what becomes of the frame."""
        try:
            return self._slot.popleft()
        except IndexError:
            return None

    def refuse_frame(self, tally: Tally | None) -> None:
        """Count a frame of a camera that this shard does not serve, unseen."""
        self.ledger.offered += 1
        self.count_shed(tally, "refused")

    def count_analysed(self, frame: Frame) -> None:
        """Count `frame` as analysed."""
        self.ledger.analysed += 1
        if frame.tally:
            frame.tally.analysed += 1

    def count_failed(self, frame: Frame, reason: str, detail: str, now_ns: int) -> None:
        """Count `frame` as rejected after all: it could not be decoded or analysed."""
        self.ledger.rejected[reason] += 1
        self.rejected_ns, self.rejected_reason = now_ns, f"{reason}: {detail}"
        if frame.tally:
            frame.tally.shed += 1

    def count_shed(self, tally: Tally | None, reason: str) -> None:
        """Count a frame as given up for `reason`."""
        self.ledger.shed[reason] += 1
        if tally:
            tally.shed += 1

    def discard_waiting(self, reason: str) -> None:
        """Shed the waiting frames, if any, for `reason`."""
        while frame := self.take_frame():
            self.count_shed(frame.tally, reason)
