"""The one-slot mailbox of a camera: compressed frames, the latest wins, and the ledger of what became of each."""

from collections import deque
from dataclasses import dataclass, field

from embereye.camera.scheduling.fair_queue import Pace
from embereye.shard.ledger import Ledger
from embereye.units import SECOND, Box
from embereye.wire.jpeg.header import Headers, JpegError, JpegHeader
from embereye.wire.radiometric import is_radiometric, read_header

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame


@dataclass(slots=True)
class Tally:
    """What became of a camera's frames on one sender's stream, and when it is to be read again."""

    analysed: int = 0
    shed: int = 0
    heard_ns: int = 0  # when the last frame arrived
    wanted_ns: int = 0  # when the next one is worth receiving; 0: whenever it comes


@dataclass(frozen=True, slots=True)
class Frame:
    """One compressed frame that passed the header check. Times are nanoseconds since the Unix epoch."""

    data: bytes
    header: JpegHeader
    time_ns: int  # of capture, as far as it is known
    received_ns: int
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive
    hurried: bool = False  # the pool does not keep up: nothing is made of it that can wait
    radiometric: bool = False  # it holds temperatures, not a picture


@dataclass
class Mailbox:
    """Holds at most one frame; `ledger` counts all that were offered. Any thread may `take`."""

    pace: Pace = field(default_factory=Pace)
    ledger: Ledger = field(default_factory=Ledger)
    rejected_ns: int = 0  # when a frame was rejected last; 0: never
    rejected_reason: str = ""
    _headers: Headers = field(default_factory=Headers)
    # Popping is atomic: a frame is either taken by a worker thread or superseded, never both.
    _slot: deque[Frame] = field(default_factory=deque)
    _since_ns: int = 0  # since when a frame has been waiting, this one or one that it took the place of

    @property
    def waiting(self) -> Frame | None:
        """The frame that waits, left where it is."""
        try:
            return self._slot[0]
        except IndexError:
            return None

    def offer(
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
        """Take a frame in place of the one that waits; returns why it was rejected, or ''.

        `boosted` takes it even above the target rate: flicker under suspicion needs every frame. `early_ns` is by how
        much it may come before its time while the rate is cut.
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
        if not boosted and (reason := self.pace.take(received_ns, early_ns)):
            self.shed(tally, reason)
            return ""
        if superseded := self.take():
            self.shed(superseded.tally, "superseded")
            self.pace.learn((received_ns - self._since_ns) / SECOND, received_ns, urgent=boosted, unseen=True)
        else:
            self._since_ns = received_ns
        self._slot.append(Frame(data, header, time_ns, received_ns, tally, lost, self.pace.cut, thermal))
        return ""

    def take(self) -> Frame | None:
        """The waiting frame, taken out; whoever takes it tells `analysed`, `failed` or `shed` about it."""
        try:
            return self._slot.pop()
        except IndexError:
            return None

    def refuse(self, tally: Tally | None) -> None:
        """Count a frame of a camera that is not served, unseen."""
        self.ledger.offered += 1
        self.shed(tally, "refused")

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
