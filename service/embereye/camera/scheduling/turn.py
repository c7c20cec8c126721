"""A camera's turn in a pool: the frame, how long it waited, what came of it."""

from dataclasses import dataclass
from typing import Protocol

from embereye.camera.scheduling.mailbox import Frame


@dataclass(slots=True)
class Turn:
    """One turn of a camera. Seconds are monotonic; time in which a thread is kept from running counts as work."""

    frame: Frame
    waited: float  # seconds until the turn came
    began: float  # seconds
    seconds: float = 0.0  # that it took
    result: object = None  # what came of the frame, or the exception that was raised
    looked_at: float = 0.0  # seconds of it, by who looks for turns that hang
    hung: bool = False
    replaced: bool = False  # a spare thread was started in place of the one that hangs


class QueuedCamera(Protocol):
    """What a pool needs of a camera whose frames wait for turns."""

    @property
    def pause(self) -> float:
        """Seconds between two turns after which it goes ahead of all others."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether it goes ahead of cameras that are not."""
        ...

    def next_frame(self) -> Frame | None:
        """Remove the waiting frame from its mailbox and return it; None where it was withdrawn meanwhile."""
        ...

    def analyse_on_thread(self, frame: Frame) -> object:
        """Analyse `frame`; called on a thread. What it returns or raises becomes the turn's `result`."""
        ...

    def finish_turn(self, turn: Turn) -> None:
        """Use the turn's result; called on the event loop."""
        ...
