"""The mailbox of a video camera: the units to decode are collected for each frame that waits for a turn.

Pictures of a video refer to each other. Its units are therefore collected in a `PictureGroup` from each key frame on,
also those of shed frames. `with_units` adds the units to decode to a frame when its turn comes.

While the camera is calm, only key frames get a turn, and `aside` has the frames between them until `release`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from embereye.camera.scheduling.mailbox import Frame, Mailbox
from embereye.camera.scheduling.set_aside import RELEASED_SLOTS, SetAside
from embereye.camera.scheduling.video import SENT_BYTES, SENT_UNITS, CodedUnit, Depth, PictureGroup, VideoFlow
from embereye.wire.jpeg.header import JpegHeader
from embereye.wire.video.access_unit import AccessUnit

REMEMBERED_UNITS = 256  # units with a remembered capture time; decoders return pictures some units later
# Frames that may wait while the pool has spare time. All are decoded in any case and analysing them is cheap, so a
# short delay in the camera, network or shard loses nothing.
VIDEO_SLOTS = 3
WAITS_FOR_KEY = "waits for a key frame"


@dataclass(slots=True, eq=False, kw_only=True)
class VideoFrame(Frame):
    """One frame of a video.

    Its `units` are set when its turn comes, its `time_ns` when it is decoded.
    """

    encoding: str  # H264 or H265
    group: PictureGroup  # the group it belongs to
    until: int  # how many units of the group have to be decoded
    unreferenced_unit: CodedUnit | None = None  # its unit, if no other unit refers to it
    units: Sequence[CodedUnit] = ()  # units to decode; the last one's picture is analysed
    joined: Sequence["VideoFrame"] = ()  # frames before it that are decoded with it but not analysed


@lru_cache(maxsize=64)
def _header(size: tuple[int, int]) -> JpegHeader:
    """Create the header of a picture of `size`, width and height in pixels."""
    return JpegHeader(*size, 3, is_multi_scan=False, complete=True)


@dataclass
class VideoMailbox:
    """Puts the frames of a video into the slots of `mailbox`."""

    mailbox: Mailbox
    depth: Depth = Depth.ALL  # the pictures to decode while no fire is suspected
    slots: int = 1  # frames that may wait, each for its own turn
    flow: VideoFlow = field(default_factory=VideoFlow)
    calms_down: bool = False  # from the next key frame on, set the frames between key frames aside
    aside: "SetAside[VideoFrame]" = field(default_factory=SetAside)
    _group: PictureGroup | None = None  # None: nothing can be decoded until the next key frame
    _number: int = 0  # number of the latest unit
    _times: dict[int, int] = field(default_factory=dict)  # capture times by unit

    @property
    def is_deferrable(self) -> bool:
        """True if the only waiting frame belongs to a video and may be decoded with the next one: slots are free."""
        return self.slots > 1 and self.mailbox.count == 1 and isinstance(self.mailbox.waiting, VideoFrame)

    def offer_unit(self, unit: AccessUnit, time_ns: int, received_ns: int, *, boosted: bool, refused: bool) -> str:
        """Put an access unit's picture in a slot as `Mailbox.offer_frame` does. Returns why it is rejected, or ''.

        A shed unit that others refer to is decoded with the next frame. `refused`: this shard does not serve the camera
        now.
        """
        mailbox = self.mailbox
        mailbox.ledger.offered += 1
        mailbox.encoding = unit.encoding
        self.flow.record_arrival(key=unit.key, reference=unit.reference, now_ns=received_ns)
        self._number = self._number + 1 & 0xFFFF_FFFF
        self._times[self._number] = time_ns
        if len(self._times) > REMEMBERED_UNITS:
            del self._times[next(iter(self._times))]
        if unit.damages_following:
            self._group = None
        if unit.damaged and not unit.refreshing:
            return mailbox.reject("damaged", f"damaged: {unit.damaged}", received_ns)
        reason, coded = self._skipped(unit, boosted=boosted), CodedUnit(unit.data, self._number, unit.key)
        if refused or reason == WAITS_FOR_KEY or (reason and unit.reference):
            self._group = None
        elif not reason:
            if unit.key:
                self._group = PictureGroup(is_retained=self.calms_down or self.aside.is_active)
            assert self._group is not None
            if unit.reference:
                self._group.add(coded)
        if unit.damaged:
            return mailbox.reject("damaged", f"damaged: {unit.damaged}", received_ns)
        if refused or reason:
            mailbox.count_shed(None, "refused" if refused else reason)
            return ""
        group, rate = self._group, mailbox.rate_controller
        assert group is not None
        is_check = unit.key and (self.calms_down or self.aside.is_active)
        if not (boosted or is_check) and (reason := rate.admit_frame(received_ns)) and not group.is_full:
            mailbox.count_shed(None, reason)
            return ""
        frame = VideoFrame(
            _header(unit.size), time_ns, received_ns, rate.is_limited, encoding=unit.encoding, group=group,
            until=len(group), unreferenced_unit=None if unit.reference else coded,
        )  # fmt: skip
        self._put(frame, key=unit.key)
        return ""

    def _put(self, frame: VideoFrame, *, key: bool) -> None:
        mailbox, aside = self.mailbox, self.aside
        if key and self.calms_down:
            aside.begin()
        if aside.is_active and not key:
            aside.add(frame)
            return
        if aside.is_active:
            aside.add_check(frame, mailbox)
        slots = max(self.slots, RELEASED_SLOTS if mailbox.count > self.slots else 0)
        if mailbox.count >= slots and isinstance(oldest := mailbox.waiting, VideoFrame) and aside.is_check(oldest):
            aside.note_result(oldest)  # it is superseded
        mailbox.put(frame, slots)

    def accept_check(self, frame: VideoFrame) -> None:
        """Note that the check `frame` shows no change: the frames before it are never decoded."""
        self.aside.discard_before(frame, self.mailbox)

    def release(self) -> bool:
        """Let all frames that are set aside wait for their turns; False if the result of a check has to come first.

        What a decoder has received since then is decoded again, from the key frame before them.
        """
        aside = self.aside
        self.calms_down = False
        if aside.in_work is not None:
            return False
        groups = [check.group for check in aside.checks]
        if any(group.is_sent for group in groups[1:]):
            self._rewind(groups)
        aside.release(self.mailbox)
        for group in groups:
            group.is_retained = False
        return True

    @staticmethod
    def _rewind(groups: Iterable[PictureGroup]) -> None:
        for group in groups:
            group.rewind()

    def _skipped(self, unit: AccessUnit, *, boosted: bool) -> str:
        """Return the ledger's reason for not decoding `unit`, or ''."""
        if unit.key:
            return ""
        if self._group is None:
            return WAITS_FOR_KEY if self.depth < Depth.KEYS or boosted else "overload"
        if boosted or self.depth is Depth.ALL or self.aside.is_active:  # what is set aside costs no decoding
            return ""
        return "overload" if self.depth is Depth.KEYS or not unit.reference else ""

    def with_units(self, frame: VideoFrame) -> VideoFrame | None:
        """Set the units to decode for `frame`, taken from its slot; None if they are lost, so that it is shed."""
        units = None if frame.group.given_up else frame.group.unsent(frame.until)
        is_check = self.aside.is_check(frame)
        if units is not None:
            frame.units = [*units, frame.unreferenced_unit] if frame.unreferenced_unit else units
            if len(frame.units) <= SENT_UNITS and sum(len(unit.data) for unit in frame.units) <= SENT_BYTES:
                if is_check:
                    self.aside.in_work = frame
                return frame
            frame.group.give_up()
        if frame.group is self._group:
            self._group = None
        if is_check:
            self.aside.note_result(frame)
        self.mailbox.count_shed(frame.tally, WAITS_FOR_KEY)
        return None

    def time_of(self, number: int) -> int:
        """The capture time of unit `number`; 0 if it is forgotten."""
        return self._times.get(number, 0)

    def restart_decoding(self, *, replay: bool) -> None:
        """Note that the decoder lost the video's context: decode the group again (`replay`) or wait for a key frame."""
        if replay:
            self._rewind(check.group for check in self.aside.checks)
        if self._group is not None:
            if replay:
                self._group.rewind()
            else:
                self._group.give_up()
                self._group = None
