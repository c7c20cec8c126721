"""A camera's mailbox: its latest compressed frame waits here, and the ledger counts every frame's outcome.

`offer_frame` checks a picture's header and rate. A frame is rejected (unusable), shed (above the rate, superseded,
overload) or put into the slot, from where a turn takes it with `take_frame`. The caller then counts it as analysed,
failed or shed, so that offered = analysed + rejected + shed + waiting.

A `VideoMailbox` puts the frames of a video into the same slot.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from embereye.camera.scheduling.rate_controller import RateController
from embereye.shard.ledger import Ledger
from embereye.units import Box
from embereye.wire.jpeg.header import Headers, JpegError, JpegHeader
from embereye.wire.radiometric import is_radiometric, read_header

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame; 4K at the highest quality stays below it


@dataclass(slots=True)
class Tally:
    """Counts of one sender stream's frames, and the time to read that stream again."""

    analysed: int = 0
    shed: int = 0
    heard_ns: int = 0  # when the latest frame arrived
    wanted_ns: int = 0  # when the next frame is worth receiving; 0: as soon as it comes


@dataclass(slots=True, eq=False)
class Frame:
    """One compressed frame, of a picture or of a video. Times are nanoseconds since the Unix epoch."""

    header: JpegHeader
    time_ns: int  # of capture, if known
    received_ns: int
    hurried: bool = False  # the pool is overloaded: optional work is left out for this frame
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive
    is_late: bool = False  # it was set aside while its camera was calm, or follows frames that were


@dataclass(slots=True, eq=False, kw_only=True)
class Picture(Frame):
    """A picture that refers to no other."""

    data: bytes
    radiometric: bool = False  # its pixels are temperatures


@dataclass
class Mailbox:
    """Holds one frame, or a few of a video. `ledger` counts all offers. `take_frame` is thread-safe."""

    rate_controller: RateController = field(default_factory=RateController)
    ledger: Ledger = field(default_factory=Ledger)
    rejected_ns: int = 0  # when a frame was last rejected; 0: never
    rejected_reason: str = ""
    encoding: str = ""  # H264 or H265 if its latest frame belonged to a video
    _headers: Headers = field(default_factory=Headers)
    # Popping is atomic: a frame is either taken by a thread or superseded, never both.
    _slot: deque[Frame] = field(default_factory=deque)

    @property
    def count(self) -> int:
        """Number of waiting frames."""
        return len(self._slot)

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
        put: "Callable[[Picture], None] | None" = None,
    ) -> str:
        """Put a frame in the slot, in place of a waiting one, or `put` it. Returns the reason for its rejection, or ''.

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
            if tally:
                tally.shed += 1
            return self.reject(error.reason, str(error), received_ns)
        rate = self.rate_controller
        if not boosted and (reason := rate.admit_frame(received_ns, early_ns)):
            self.count_shed(tally, reason)
            return ""
        self.encoding = ""
        put = put or self.put
        put(Picture(header, time_ns, received_ns, rate.is_limited, tally, lost, data=data, radiometric=thermal))
        return ""

    def put(self, frame: Frame, slots: int = 1) -> None:
        """Put `frame` in one of `slots`, in place of the oldest frame if none is free."""
        while len(self._slot) >= slots and (superseded := self.take_frame()):
            self.count_shed(superseded.tally, "superseded")
        self._slot.append(frame)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All waiting frames, oldest first; they stay in their slots."""
        return tuple(self._slot)

    def replace_waiting(self, frames: Iterable[Frame]) -> None:
        """Let `frames` wait instead of those that do, however many they are."""
        self._slot.clear()
        self._slot.extend(frames)

    def reject(self, reason: str, detail: str, now_ns: int) -> str:
        """Count a frame as unusable for `reason`, the ledger's label; return `detail`."""
        self.ledger.rejected[reason] += 1
        self.rejected_ns, self.rejected_reason = now_ns, detail
        return detail

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
        self.reject(reason, f"{reason}: {detail}", now_ns)
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
