"""The result of the detectors for one frame."""

from dataclasses import dataclass, field

from embereye.levels import Kind, Level
from embereye.margins import Measured
from embereye.units import Box
from embereye.v1.types_pb2 import Term

# looked up once: an enum's attribute access costs as much as everything else here
CLEAR, FLAME = Level.CLEAR, Kind.FLAME


@dataclass(frozen=True)
class Finding:
    """The result of one detector after one frame; each detector has a finding for every frame."""

    kind: Kind
    level: Level  # after persistence; CLEAR: nothing suspicious
    score: float = 0.0  # 0..1; 0.5 is even odds
    box: Box | None = None
    terms: tuple[Term, ...] = ()
    lasted_ns: int = 0  # how long the sign has lasted, without gaps; above 0 it is suspected
    needed_ns: int | None = None  # how long it must last for an alarm; None: it cannot raise one, or not by lasting
    decisive: Measured | None = None  # the value that decides about an alarm instead, beside the limit of an alarm


@dataclass(frozen=True)
class Observation:
    """The state of one camera after one frame."""

    time_ns: int  # of the frame, nanoseconds since the Unix epoch
    findings: tuple[Finding, ...] = ()  # at most one of a kind
    motion: float = 0.0  # 0..1: share of the picture that differs from the background
    level: Level = field(init=False)  # the highest of all kinds
    suspected: bool = field(init=False)  # True if any kind is suspected
    urgent: bool = field(init=False)  # True if a higher frame rate would help; only flicker needs one

    def __post_init__(self) -> None:
        """Derive the summary once, because it is read several times per frame."""
        level, suspected, urgent = CLEAR, False, False
        for finding in self.findings:
            if finding.level > level:  # noqa: PLR1730 -- max() takes 0.2 µs longer per finding and frame
                level = finding.level
            if finding.lasted_ns > 0:
                suspected, urgent = True, urgent or finding.kind == FLAME
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "suspected", suspected)
        object.__setattr__(self, "urgent", urgent)
