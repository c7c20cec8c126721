"""The levels in force at one sensor, kind by kind, and the signs that they make."""

from collections.abc import Sequence
from typing import Protocol

from embereye.levels import Kind, Level, Sense
from embereye.shard.evidence.episodes import HOLD_NS, Sign
from embereye.v1.types_pb2 import Device, Term

# Looked up once: an enum's name costs more than the comparison it is for.
UNKNOWN, CLEAR = Level.UNSPECIFIED, Level.CLEAR
HEAT, SMOKE, GAS, FLAME = Kind.HEAT, Kind.SMOKE, Kind.GAS, Kind.FLAME


class Assessed(Protocol):
    """What a detector says of one kind: `sensing.thresholds.Assessment` or `thermal.heat.HeatAssessment`."""

    @property
    def level(self) -> Level: ...  # noqa: D102
    @property
    def score(self) -> float: ...  # noqa: D102
    @property
    def terms(self) -> Sequence[Term]: ...  # noqa: D102
    @property
    def note(self) -> str: ...  # noqa: D102
    @property
    def blind(self) -> str: ...  # noqa: D102


class Levels:
    """Follows each kind of sign at one sensor, from its first sign until it has been clear for HOLD_NS."""

    __slots__ = ("_held", "_shown", "_spec", "blind")

    def __init__(self, spec: Device) -> None:
        self.blind: dict[Kind, str] = {}  # why a kind cannot be told
        self._spec = spec
        self._held: dict[Kind, Level] = {}
        self._shown: dict[Kind, int] = {}  # kinds with an open sign, and when it was last above clear

    def configure(self, spec: Device) -> None:
        """Name another declaration of the device in what follows."""
        self._spec = spec

    def held(self, kind: Kind) -> Level:
        """The level in force."""
        return self._held.get(kind, CLEAR)

    def open_besides_heat(self) -> bool:
        """Whether a sign of smoke, gas or flame is open: readings must tell how it goes on."""
        return any(kind != HEAT for kind in self._shown)

    def assess(self, kind: Kind, found: Assessed, now_ns: int, *, relative: bool = False) -> list[Sign]:
        """Put what a detector found in force; the sign to report, the clear one of an open sign too, or none.

        `relative`: what was found is a rise of raw counts, not a temperature.
        """
        if found.blind:
            self.blind[kind] = found.blind
        elif kind in self.blind:
            del self.blind[kind]
        level = found.level
        if level == UNKNOWN:
            return []  # it cannot tell: that is neither a sign nor its end
        self._held[kind] = level
        if level > CLEAR:
            self._shown[kind] = now_ns
        elif kind not in self._shown:
            return []
        elif now_ns - self._shown[kind] >= HOLD_NS:
            del self._shown[kind]
        return [
            Sign(
                device=self._spec.id,
                zone=self._spec.zone,
                kind=kind,
                sense=Sense.SENSOR,
                level=level,
                score=found.score,
                why=found.terms,
                relative=relative,
                note=found.note,
            )
        ]
