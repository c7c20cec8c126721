"""What a detector says of one frame."""

from dataclasses import dataclass

from embereye.v1.types_pb2 import Level, Term

Box = tuple[float, float, float, float]  # x, y, width, height, each 0..1 of the picture


@dataclass(frozen=True)
class Observation:
    """The state of one camera after one frame."""

    time_ns: int  # of the frame, nanoseconds since the Unix epoch
    level: Level.ValueType  # after persistence; LEVEL_CLEAR: nothing suspicious
    score: float = 0.0  # 0..1; at 0.5 every term is just at its limit
    box: Box | None = None
    terms: tuple[Term, ...] = ()
    motion: float = 0.0  # 0..1 of the picture differs from the background
    suspected: bool = False  # worth a higher frame rate and resolution
    blind: str = ""  # why the picture shows nothing, or ""
    unchanged: bool = False  # exactly the picture before
