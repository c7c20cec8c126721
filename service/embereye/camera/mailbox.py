"""The one-slot mailbox of a camera: compressed frames, the latest wins, and the ledger of what became of each."""

from dataclasses import dataclass, field

from embereye.shard.ledger import Ledger
from embereye.vision.observation import Box
from embereye.wire import radiometric
from embereye.wire.jpeg import JpegError, JpegHeader, read_header

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame
EARLY = 0.8  # of the target period: cameras jitter, and every second frame of a doubled rate is on time


@dataclass(slots=True)
class Tally:
    """What became of the frames of one sender's stream, for its acknowledgements."""

    analysed: int = 0
    shed: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One compressed frame that passed the header check. Times are nanoseconds since the Unix epoch."""

    data: bytes
    header: JpegHeader
    time_ns: int  # of capture, as far as it is known
    received_ns: int
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive

    @property
    def radiometric(self) -> bool:
        """Whether it holds temperatures, not a picture."""
        return radiometric.is_radiometric(self.data)


@dataclass
class Mailbox:
    """Holds at most one frame; `ledger` counts all that were offered."""

    fps_target: float = 0.0  # frames/s above which frames are shed; 0: no limit
    ledger: Ledger = field(default_factory=Ledger)
    bytes_offered: int = 0
    rejected_ns: int = 0  # when a frame was rejected last; 0: never
    rejected_reason: str = ""
    _frame: Frame | None = None
    _accepted_ns: int = 0

    @property
    def waiting(self) -> Frame | None:
        """The frame that waits, left where it is."""
        return self._frame

    def offer(
        self,
        data: bytes,
        time_ns: int,
        received_ns: int,
        *,
        tally: Tally | None = None,
        boosted: bool = False,
        lost: tuple[Box, ...] = (),
    ) -> str:
        """Take a frame in place of the one that waits; returns why it was rejected, or ''.

        `boosted` takes it even above the target rate: flicker under suspicion needs every frame.
        """
        self.ledger.offered += 1
        self.bytes_offered += len(data)
        try:
            if len(data) > MAX_BYTES:
                raise JpegError("too large", f"{len(data)} bytes, at most {MAX_BYTES}")
            header = radiometric.read_header(data) if radiometric.is_radiometric(data) else read_header(data)
            if not header.complete:
                raise JpegError("truncated", f"no end of image within {len(data)} bytes")
        except JpegError as error:
            self.ledger.rejected[error.reason] += 1
            self.rejected_ns, self.rejected_reason = received_ns, str(error)
            if tally:
                tally.shed += 1
            return str(error)
        early = self.fps_target > 0 and received_ns - self._accepted_ns < EARLY * 1e9 / self.fps_target
        if early and not boosted:
            self.shed(tally, "above target rate")
            return ""
        self._accepted_ns = received_ns
        if self._frame:
            self.shed(self._frame.tally, "superseded")
        self._frame = Frame(data, header, time_ns, received_ns, tally, lost)
        return ""

    def take(self) -> Frame | None:
        """The waiting frame, taken out; whoever takes it tells `analysed`, `failed` or `shed` about it."""
        frame, self._frame = self._frame, None
        return frame

    def analysed(self, frame: Frame) -> None:
        """Count `frame` as analysed."""
        self.ledger.analysed += 1
        if frame.tally:
            frame.tally.analysed += 1

    def failed(self, frame: Frame, reason: str, detail: str, now_ns: int) -> None:
        """Count `frame` as rejected after all: it could not be decoded or analysed."""
        self.ledger.rejected[reason] += 1
        self.rejected_ns, self.rejected_reason = now_ns, f"{reason}: {detail}"
        if frame.tally:
            frame.tally.shed += 1

    def shed(self, tally: Tally | None, reason: str) -> None:
        """Count a frame as given up."""
        self.ledger.shed[reason] += 1
        if tally:
            tally.shed += 1

    def discard(self, reason: str) -> None:
        """Give up the frame that waits, if any."""
        if frame := self.take():
            self.shed(frame.tally, reason)
