"""The levels in force at one sensor for each kind of sign, and the signs to report.

`assess` puts a detector's result in force and returns the sign to report. A sign is reported from the first level above
clear until it has been clear for HOLD_NS, so its end is reported too. An unknown result changes nothing. The next
assessment and the bands start from the levels in force, because a level is left lower than it is entered.
"""

from typing import Protocol

from embereye.levels import Kind, Level, Sense
from embereye.margins import Measured, Result
from embereye.shard.evidence.episodes import HOLD_NS, Sign
from embereye.v1.types_pb2 import Device

# Module constants, because the look-up of an enum's member costs more than a comparison.
UNKNOWN, CLEAR = Level.UNSPECIFIED, Level.CLEAR
HEAT, SMOKE, GAS, FLAME = Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME


class Assessed(Result, Protocol):
    """A detector's result for one kind: `sensing.thresholds.Assessment` or `thermal.heat.HeatAssessment`."""

    @property
    def note(self) -> str: ...  # noqa: D102
    @property
    def decisive(self) -> Measured | None: ...  # noqa: D102
    @property
    def blind(self) -> str: ...  # noqa: D102


class Levels:
    """Follows each kind of sign at one sensor, from its first sign until it has been clear for HOLD_NS."""

    __slots__ = ("_in_force", "_open", "_spec", "blind", "peaks")

    def __init__(self, spec: Device) -> None:
        self.blind: dict[Kind, str] = {}  # kinds that cannot be measured, and why
        self.peaks: dict[Kind, Assessed] = {}  # the strongest result of each kind since `take_peaks`
        self._spec = spec
        self._in_force: dict[Kind, Level] = {}
        self._open: dict[Kind, int] = {}  # kinds with an open sign, and when it was last above clear

    def configure(self, spec: Device) -> None:
        """Use a changed declaration of the device for later signs."""
        self._spec = spec

    def in_force(self, kind: Kind) -> Level:
        """The level in force."""
        return self._in_force.get(kind, CLEAR)

    def is_open_besides_heat(self) -> bool:
        """True if a sign of smoke, gas or flame is open, so that readings have to be assessed."""
        return any(kind != HEAT for kind in self._open)

    def is_open(self) -> bool:
        """True if any sign is open."""
        return bool(self._open)

    def take_peaks(self) -> "dict[Kind, Assessed]":
        """Return the strongest result of each kind since the last call."""
        peaks, self.peaks = self.peaks, {}
        return peaks

    def assess(self, kind: Kind, assessed: Assessed, now_ns: int, *, relative: bool = False) -> list[Sign]:
        """Put a detector's result in force; return the sign to report, if any, also the clear one of an open sign.

        `relative`: the result is a rise of raw counts, not a temperature.
        """
        if assessed.blind:
            self.blind[kind] = assessed.blind
        elif kind in self.blind:
            del self.blind[kind]
        level = assessed.level
        if level == UNKNOWN:
            return []  # unknown is neither a sign nor the end of one
        if (peak := self.peaks.get(kind)) is None or _is_stronger(assessed, peak):
            self.peaks[kind] = assessed
        self._in_force[kind] = level
        if level > CLEAR:
            self._open[kind] = now_ns
        elif kind not in self._open:
            return []
        elif now_ns - self._open[kind] >= HOLD_NS:
            del self._open[kind]
        return [
            Sign(
                device=self._spec.id,
                zone=self._spec.zone,
                kind=kind,
                sense=Sense.SENSOR,
                level=level,
                score=assessed.score,
                why=assessed.terms,
                relative=relative,
                note=assessed.note,
            )
        ]


def _is_stronger(assessed: Assessed, peak: Assessed) -> bool:
    """True if `assessed` is nearer to an alarm than `peak`, of the same kind."""
    if assessed.level != peak.level or assessed.score != peak.score:
        return (assessed.level, assessed.score) > (peak.level, peak.score)
    # Far from any threshold, the scores are all 0.
    return assessed.decisive is not None and (peak.decisive is None or assessed.decisive[1] > peak.decisive[1])
