"""What the detectors say of one frame."""

from dataclasses import dataclass
from functools import cached_property

from embereye.v1.types_pb2 import Kind, Level, Term

CLEAR, FLAME = Level.LEVEL_CLEAR, Kind.KIND_FLAME  # looked up once: an enum's lookup costs as much as all the rest
Box = tuple[float, float, float, float]  # x, y, width, height, each 0..1 of the picture


@dataclass(frozen=True)
class Finding:
    """What one detector says after one frame; every detector that runs says something of every frame."""

    kind: Kind.ValueType
    level: Level.ValueType  # after persistence; LEVEL_CLEAR: nothing suspicious
    score: float = 0.0  # 0..1; at 0.5 it is as likely as not
    box: Box | None = None
    terms: tuple[Term, ...] = ()
    held_ns: int = 0  # for how long the sign has lasted, its gaps taken off; above 0 it is suspected


@dataclass(frozen=True)
class Observation:
    """The state of one camera after one frame."""

    time_ns: int  # of the frame, nanoseconds since the Unix epoch
    findings: tuple[Finding, ...] = ()  # at most one of a kind
    motion: float = 0.0  # 0..1 of the picture differs from the background

    @cached_property
    def level(self) -> Level.ValueType:
        """The highest level of any kind."""
        return max([finding.level for finding in self.findings], default=CLEAR)

    @cached_property
    def suspected(self) -> bool:
        """Whether anything is suspected."""
        return any(finding.held_ns > 0 for finding in self.findings)

    @cached_property
    def urgent(self) -> bool:
        """Whether a higher frame rate would help to decide: flicker needs one, the other kinds are slow."""
        return any(finding.held_ns > 0 and finding.kind == FLAME for finding in self.findings)
