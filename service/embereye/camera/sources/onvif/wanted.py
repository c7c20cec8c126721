"""The selection of a camera's stream and its purpose."""

from dataclasses import dataclass

VIDEO = ("H264", "H265")  # formats that can be recorded without decoding


@dataclass(frozen=True)
class Wanted:
    """A request for one of a camera's streams."""

    profile: str = ""  # name or token; empty: choose automatically
    rate: float = 0.0  # snapshots/s, at most; 0: no limit
    least_rate: float = 0.0  # frames/s that a profile has to send
    recorded: bool = False  # recorded without decoding, not analysed


ANYTHING = Wanted()
