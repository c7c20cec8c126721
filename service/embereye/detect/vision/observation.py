"""What the detectors say of one frame."""

from dataclasses import dataclass, field

from embereye.levels import Kind, Level
from embereye.units import Box
from embereye.v1.types_pb2 import Term

CLEAR, FLAME = Level.CLEAR, Kind.FLAME  # looked up once: an enum's lookup costs as much as all the rest


@dataclass(frozen=True)
class Finding:
    """What one detector says after one frame; every detector that runs says something of every frame."""

    kind: Kind
    level: Level  # after persistence; CLEAR: nothing suspicious
    score: float = 0.0  # 0..1; at 0.5 it is as likely as not
    box: Box | None = None
    terms: tuple[Term, ...] = ()
    lasted_ns: int = 0  # for how long the sign has lasted, its gaps taken off; above 0 it is suspected


@dataclass(frozen=True)
class Observation:
    """The state of one camera after one frame."""

    time_ns: int  # of the frame, nanoseconds since the Unix epoch
    findings: tuple[Finding, ...] = ()  # at most one of a kind
    motion: float = 0.0  # 0..1 of the picture differs from the background
    level: Level = field(init=False)  # the highest of any kind
    suspected: bool = field(init=False)  # whether anything is
    urgent: bool = field(init=False)  # whether a higher frame rate would help: of all kinds, only flicker needs one

    def __post_init__(self) -> None:
        """Conclude from the findings: that is asked for several times a frame."""
        level, suspected, urgent = CLEAR, False, False
        for finding in self.findings:
            if finding.level > level:  # noqa: PLR1730 -- max() takes 0.2 µs longer, for every finding of every frame
                level = finding.level
            if finding.lasted_ns > 0:
                suspected, urgent = True, urgent or finding.kind == FLAME
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "suspected", suspected)
        object.__setattr__(self, "urgent", urgent)
