"""A camera's one-slot mailbox: compressed frames, the latest wins, and the ledger of what became of each."""

from collections import deque
from dataclasses import dataclass, field

from embereye.camera.scheduling.rate_controller import RateController
from embereye.shard.ledger import Ledger
from embereye.units import Box
from embereye.wire.jpeg.header import Headers, JpegError, JpegHeader
from embereye.wire.radiometric import is_radiometric, read_header

MAX_BYTES = 8 * 1024 * 1024  # of one compressed frame; 4K at the highest quality stays below it


@dataclass(slots=True)
class Tally:
    """What became of a camera's frames on one sender's stream, and when that stream is to be read again."""

    analysed: int = 0
    shed: int = 0
    heard_ns: int = 0  # when the last frame arrived
    wanted_ns: int = 0  # when the next one is worth receiving; 0: as soon as it comes


@dataclass(frozen=True, slots=True)
class Frame:
    """One compressed frame that passed the header check. Times are nanoseconds since the Unix epoch."""

    data: bytes
    header: JpegHeader
    time_ns: int  # of capture, as far as it is known
    received_ns: int
    tally: Tally | None = None
    lost: tuple[Box, ...] = ()  # parts of the picture that did not arrive
    hurried: bool = False  # the pool does not keep up: what can wait is not done for this frame
    radiometric: bool = False  # its pixels are temperatures


@dataclass
class Mailbox:
    """Holds at most one frame; `ledger` counts all that were offered. Any thread may call `take_frame`."""

    rate_controller: RateController = field(default_factory=RateController)
    ledger: Ledger = field(default_factory=Ledger)
    rejected_ns: int = 0  # when a frame was rejected last; 0: never
    rejected_reason: str = ""
    _headers: Headers = field(default_factory=Headers)
    # Popping is atomic: a frame is either taken out by a thread or superseded, never both.
    _slot: deque[Frame] = field(default_factory=deque)

    @property
    def waiting(self) -> Frame | None:
        """The waiting frame, left in its slot."""
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
        if superseded := self.take_frame():
            self.count_shed(superseded.tally, "superseded")
        self._slot.append(Frame(data, header, time_ns, received_ns, tally, lost, rate.limited, thermal))
        return ""

    def take_frame(self) -> Frame | None:
        """Remove the waiting frame and return it; whoever calls this has to count what becomes of the frame."""
        try:
            return self._slot.pop()
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
        """Shed the waiting frame, if any, for `reason`."""
        if frame := self.take_frame():
            self.count_shed(frame.tally, reason)
