"""Which of a camera's streams is wanted, and for what."""

from dataclasses import dataclass

VIDEO = ("H264", "H265")  # what is kept as it comes


@dataclass(frozen=True)
class Wanted:
    """What is wanted of the camera."""

    profile: str = ""  # name or token; empty: a fitting one
    rate: float = 0.0  # snapshots/s at most; 0: any
    least_rate: float = 0.0  # frames/s that a profile has to send
    recorded: bool = False  # it is kept as it comes, not looked at


ANYTHING = Wanted()
