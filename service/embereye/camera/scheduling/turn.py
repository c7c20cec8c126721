"""A camera's turn in a pool: the frame, how long it waited, and the result."""

from dataclasses import dataclass
from typing import Protocol

from embereye.camera.scheduling.mailbox import Frame


@dataclass(slots=True)
class Turn:
    """One turn of a camera. Seconds are monotonic; time in which a thread is suspended counts as work."""

    frame: Frame
    waited: float  # seconds until the turn came
    began: float  # seconds
    seconds: float = 0.0  # duration
    result: object = None  # the frame's result, or the exception that was raised
    withdrawn: bool = False  # its camera was withdrawn meanwhile
    observed_seconds: float = 0.0  # seconds of the turn that the check for hung turns has observed
    hung: bool = False
    replaced: bool = False  # a spare thread replaces the one that hangs


class QueuedCamera(Protocol):
    """A camera, as a pool sees it: its frames wait for turns."""

    @property
    def pause(self) -> float:
        """Seconds between two turns after which it overtakes all others."""

    @property
    def urgent(self) -> bool:
        """True if it goes ahead of cameras that are not urgent."""

    def next_frame(self) -> Frame | None:
        """Remove the waiting frame from its mailbox and return it; None if it was withdrawn meanwhile."""

    def analyse_on_thread(self, frame: Frame) -> object:
        """Analyse `frame` on a thread. The return value or exception becomes the turn's `result`."""

    def finish_turn(self, turn: Turn) -> None:
        """Use the turn's result. Called on the event loop."""
