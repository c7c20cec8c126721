"""Profiles: how a zone's signs are judged for a while, such as during welding or at night. Pure.

A profile hides no sign. Signs of the expected kinds are a pre-alarm, alone or together; a sign of any other kind
confirms them. A limit replaces the alarm's threshold of a measured quantity: signs below it are expected, and one that
reaches it is an alarm, even if the device reports a pre-alarm only. A critical sign is never expected.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem

# The quantities that may have a limit: the kind of their signs, the terms that measure them, and their unit.
QUANTITIES: Mapping[str, tuple[Kind, Collection[str], str]] = {
    "smoke": (Kind.SMOKE, ("smoke",), "%"),
    "flame": (Kind.FLAME, ("flame",), "%"),
    "gas": (Kind.GAS, ("gas",), "ppm"),
    "carbonMonoxide": (Kind.GAS, ("carbonMonoxide",), "ppm"),
    "heat": (Kind.HEAT, ("temperature", "temperature.max"), "°C"),
}
_QUANTITY_OF = {term: name for name, (_, terms, _) in QUANTITIES.items() for term in terms}


class Judgement(Enum):
    """The part of a profile in the judgement of a sign."""

    NONE = auto()  # the sign is judged as without a profile
    EXPECTED = auto()  # at most a pre-alarm
    ALARM = auto()  # an alarm alone


@dataclass(frozen=True)
class Profile:
    """The profile of a zone at some moment."""

    name: str
    expected: frozenset[tuple[Kind, Sense]] = frozenset()  # signs that the work in the zone makes
    alarm_alone: frozenset[tuple[Kind, Sense]] = frozenset()  # one of these signs is an alarm, even if it is weak
    limits: Mapping[str, float] = field(default_factory=dict)  # of QUANTITIES, in their units

    def judge(self, item: EvidenceItem) -> Judgement:
        """Say how the profile changes the judgement of `item`, a sign of at least a pre-alarm."""
        if item.level >= Level.CRITICAL:
            return Judgement.NONE
        kind = Kind(item.kind), Sense(item.sense)
        limits = [(term.value, self.limits.get(_QUANTITY_OF.get(term.name, ""))) for term in item.why]
        reached = [value >= limit for value, limit in limits if limit is not None]
        if kind in self.alarm_alone or any(reached):
            return Judgement.ALARM
        return Judgement.EXPECTED if kind in self.expected or reached else Judgement.NONE


def sorts(kind: Kind, sense: Sense = Sense.UNSPECIFIED) -> frozenset[tuple[Kind, Sense]]:
    """The signs of a kind, by one sense or by any."""
    return frozenset((kind, each) for each in (Sense if sense is Sense.UNSPECIFIED else (sense,)))
