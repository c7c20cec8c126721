"""A camera's mailbox: its latest compressed frame waits here, and the ledger counts every frame's outcome.

`offer_frame` and `offer_unit` check a frame's header and rate. A frame is rejected (unusable), shed (above the rate,
superseded, overload) or put into the slot, from where a turn takes it with `take_frame`. The caller then counts it as
analysed, failed or shed, so that offered = analysed + rejected + shed + waiting.

Pictures of a video refer to each other. Its units are therefore collected in a `PictureGroup` from each key frame on,
also those of shed frames. `with_units` adds the units to decode to a frame when its turn comes.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from embereye.camera.scheduling.rate_controller import RateController
from embereye.camera.scheduling.video import SENT_BYTES, SENT_UNITS, CodedUnit, Depth, PictureGroup, VideoFlow
from embereye.shard.ledger import Ledger
from embereye.units import Box
from embereye.wire.jpeg.header import Headers, JpegError, JpegHeader
from embereye.wire.radiometric import is_radiometric, read_header
from embereye.wire.video.access_unit import AccessUnit

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame; 4K at the highest quality stays below it
REMEMBERED_UNITS = 256  # video: units with a remembered capture time; decoders return pictures some units later
# Video frames that may wait while the pool has spare time. All are decoded in any case and analysing them is cheap, so
# a short delay in the camera, network or shard loses nothing.
VIDEO_SLOTS = 3
WAITS_FOR_KEY = "waits for a key frame"


@dataclass(slots=True)
class Tally:
    """Counts of one sender stream's frames, and the time to read that stream again."""

    analysed: int = 0
    shed: int = 0
    heard_ns: int = 0  # when the latest frame arrived
    wanted_ns: int = 0  # when the next frame is worth receiving; 0: as soon as it comes


@dataclass(slots=True, eq=False)
class Frame:
    """One compressed frame that passed the header check. Times are nanoseconds since the Unix epoch.

    Not frozen: a video's `units` are set when its turn comes, its `time_ns` when it is decoded.
    """

    data: bytes
    header: JpegHeader
    time_ns: int  # of capture, if known
    received_ns: int
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive
    hurried: bool = False  # the pool is overloaded: optional work is left out for this frame
    radiometric: bool = False  # its pixels are temperatures
    encoding: str = ""  # video: H264 or H265
    units: Sequence[CodedUnit] = ()  # video: units to decode; the last one's picture is analysed
    group: PictureGroup | None = None  # video: the group it belongs to
    until: int = 0  # video: how many units of the group have to be decoded
    unreferenced_unit: CodedUnit | None = None  # video: its unit, if no other unit refers to it
    joined: Sequence["Frame"] = ()  # video: frames before it that are decoded with it but not analysed


@dataclass
class Mailbox:
    """Holds one frame, or up to `slots` frames of a video. `ledger` counts all offers. `take_frame` is thread-safe."""

    rate_controller: RateController = field(default_factory=RateController)
    ledger: Ledger = field(default_factory=Ledger)
    rejected_ns: int = 0  # when a frame was last rejected; 0: never
    rejected_reason: str = ""
    _headers: Headers = field(default_factory=Headers)
    # Popping is atomic: a frame is either taken by a thread or superseded, never both.
    _slot: deque[Frame] = field(default_factory=deque)
    depth: Depth = Depth.ALL  # video: the pictures to decode while no fire is suspected
    slots: int = 1  # video: frames that may wait, each for its own turn
    encoding: str = ""  # H264 or H265 if its latest frame belonged to a video
    flow: VideoFlow = field(default_factory=VideoFlow)  # video
    _group: PictureGroup | None = None  # video; None: nothing can be decoded until the next key frame
    _number: int = 0  # number of the latest unit
    _times: dict[int, int] = field(default_factory=dict)  # capture times by unit

    @property
    def is_deferrable(self) -> bool:
        """True if its only waiting frame belongs to a video and may be decoded with the next one: slots are free."""
        return self.slots > 1 and len(self._slot) == 1 and self._slot[0].group is not None

    @property
    def waiting(self) -> Frame | None:
        """The oldest waiting frame; it stays in its slot."""
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
        """Put a frame in the slot, in place of a waiting one. Returns the reason for its rejection, or ''.

        A frame above the rate is shed, not rejected. `boosted` admits it nevertheless: flicker analysis needs every
        frame. `early_ns`: how long before its time a frame may come while the rate is cut.
        """
        self.ledger.offered += 1
        try:
            if len(data) > MAX_BYTES:
                raise JpegError("too large", f"{len(data)} bytes, at most {MAX_BYTES}")
            thermal = is_radiometric(data)
            header = read_header(data) if thermal else self._headers.read(data)
            if lost and not header.complete:  # otherwise perhaps only the end marker is missing: the decoder decides
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
        self._put(Frame(data, header, time_ns, received_ns, tally, lost, rate.is_limited, thermal))
        return ""

    def _put(self, frame: Frame) -> None:
        """Put `frame` in a slot, in place of the oldest frame if none is free."""
        slots = self.slots if frame.group else 1
        while len(self._slot) >= slots and (superseded := self.take_frame()):
            self.count_shed(superseded.tally, "superseded")
        self._slot.append(frame)

    def offer_unit(self, unit: AccessUnit, time_ns: int, received_ns: int, *, boosted: bool, refused: bool) -> str:
        """Put an access unit's picture in the slot as `offer_frame` does. Returns the reason for its rejection, or ''.

        A shed unit that others refer to is decoded with the next frame. `refused`: this shard does not serve the camera
        now.
        """
        self.ledger.offered += 1
        self.encoding = unit.encoding
        self.flow.record_arrival(key=unit.key, reference=unit.reference, now_ns=received_ns)
        self._number = self._number + 1 & 0xFFFF_FFFF
        self._times[self._number] = time_ns
        if len(self._times) > REMEMBERED_UNITS:
            del self._times[next(iter(self._times))]
        if unit.damages_following:
            self._group = None
        if unit.damaged and not unit.refreshing:
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
        if not boosted and (reason := rate.admit_frame(received_ns)) and not group.is_full:
            self.count_shed(None, reason)
            return ""
        header = JpegHeader(*unit.size, 3, is_multi_scan=False, complete=True)
        unreferenced_unit = None if unit.reference else coded
        self._put(
            Frame(b"", header, time_ns, received_ns, hurried=rate.is_limited, encoding=unit.encoding, group=group,
                  until=len(group), unreferenced_unit=unreferenced_unit)
        )  # fmt: skip
        return ""

    def _reject_damaged(self, unit: AccessUnit, now_ns: int) -> str:
        self.ledger.rejected["damaged"] += 1
        self.rejected_ns, self.rejected_reason = now_ns, f"damaged: {unit.damaged}"
        return self.rejected_reason

    def _skipped(self, unit: AccessUnit, *, boosted: bool) -> str:
        """Return the ledger's reason for not decoding `unit`, or ''."""
        if unit.key:
            return ""
        if self._group is None:
            return WAITS_FOR_KEY if self.depth < Depth.KEYS or boosted else "overload"
        if boosted or self.depth is Depth.ALL:
            return ""
        return "overload" if self.depth is Depth.KEYS or not unit.reference else ""

    def with_units(self, frame: Frame) -> Frame | None:
        """Set the units to decode for a video's `frame`, taken from its slot; None if they are lost."""
        if frame.group is None:
            return frame
        units = None if frame.group.given_up else frame.group.unsent(frame.until)
        if units is not None:
            frame.units = [*units, frame.unreferenced_unit] if frame.unreferenced_unit else units
            if len(frame.units) <= SENT_UNITS and sum(len(unit.data) for unit in frame.units) <= SENT_BYTES:
                return frame
            frame.group.give_up()
        if frame.group is self._group:
            self._group = None
        self.count_shed(frame.tally, WAITS_FOR_KEY)
        return None

    def time_of(self, number: int) -> int:
        """The capture time of unit `number`; 0 if it is forgotten."""
        return self._times.get(number, 0)

    def restart_decoding(self, *, replay: bool) -> None:
        """Note that the decoder lost the video's context: decode the group again (`replay`) or wait for a key frame."""
        if self._group is not None:
            if replay:
                self._group.rewind()
            else:
                self._group.give_up()
                self._group = None

    def take_frame(self) -> Frame | None:
        """Remove and return the oldest waiting frame. The caller counts its outcome."""
        try:
            return self._slot.popleft()
        except IndexError:
            return None

    def refuse_frame(self, tally: Tally | None) -> None:
        """Count a frame of a camera that this shard does not serve, without reading it."""
        self.ledger.offered += 1
        self.count_shed(tally, "refused")

    def count_analysed(self, frame: Frame) -> None:
        """Count `frame` as analysed."""
        self.ledger.analysed += 1
        if frame.tally:
            frame.tally.analysed += 1

    def count_failed(self, frame: Frame, reason: str, detail: str, now_ns: int) -> None:
        """Count `frame` as rejected after admission: it could not be decoded or analysed."""
        self.ledger.rejected[reason] += 1
        self.rejected_ns, self.rejected_reason = now_ns, f"{reason}: {detail}"
        if frame.tally:
            frame.tally.shed += 1

    def count_shed(self, tally: Tally | None, reason: str) -> None:
        """Count a frame as shed for `reason`."""
        self.ledger.shed[reason] += 1
        if tally:
            tally.shed += 1

    def discard_waiting(self, reason: str) -> None:
        """Shed all waiting frames for `reason`."""
        while frame := self.take_frame():
            self.count_shed(frame.tally, reason)
