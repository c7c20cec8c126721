"""Judge the signs of one zone together: clear, pre-alarm or alarm. Pure.

First, each sign is weighed alone: some kinds justify an alarm, others at most a pre-alarm. The zone is in alarm if one
sign justifies it, or if two signs agree: they are of different kinds, or one is seen by a camera and the other by
a sensor, at about the same time. A sign that resembles a marked false alarm usually needs a second one. Signs
that the zone's profile expects need one that it does not; others may be an alarm by the profile's limits. `state.py`
passes the active signs and acts on the `Verdict`, whose grounds explain it to people.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from embereye.levels import Kind, Level, Sense
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.false_alarms import is_checked_by_camera, marks_like, resemblance
from embereye.zone.profile import Judgement, Profile
from embereye.zone.sentences import sign

WINDOW_NS = 30_000_000_000  # a sign counts for this long after its last report; a shard restarts within it


@dataclass(frozen=True)
class Verdict:
    """`level` is CLEAR, PRE_ALARM or ALARM; `grounds` are the signs that decided it, one or two that agree."""

    level: Level
    grounds: tuple[EvidenceItem, ...] = ()
    like: FalseAlarm | None = None  # a marked false alarm that the grounds resemble, so that they need confirmation
    profile: str = ""  # the profile that expects them, or by which they are an alarm

    @property
    def why(self) -> str:
        """The grounds in one sentence, without a full stop; empty if all is clear."""
        words = [sign(item) for item in self.grounds]
        if len(words) > 1:
            return f"{', and '.join(words)} agree"
        if not words:
            return ""
        if self.profile and self.level >= Level.ALARM:
            words[0] += f", an alarm in the profile {self.profile}"
        elif self.profile:
            words[0] += f", as expected in the profile {self.profile}"
        return f"{words[0]}, {resemblance(self.like)}" if self.like else words[0]

    @property
    def confirmation(self) -> str:
        """The evidence that would turn this pre-alarm into an alarm."""
        if self.profile:
            return "a sign of another kind, or a stronger one, would confirm it"
        return "a second, stronger or longer sign would confirm it" if self.like else "a second sign would confirm it"


CLEAR = Verdict(Level.CLEAR)


def alone(item: EvidenceItem) -> Level:
    """The level that `item` justifies alone: CLEAR, PRE_ALARM or ALARM.

    Three kinds of sign need a second one: infrared and ultraviolet flame sensors also see sunlight and welding, an
    uncalibrated device knows no temperature, and a newer version's kind is unknown here. A camera's flame that is
    reported at ALARM has already persisted.
    """
    if item.level <= Level.CLEAR:
        return Level.CLEAR
    if item.level < Level.ALARM or item.relative:
        return Level.PRE_ALARM
    if Kind(item.kind) in {Kind.HEAT, Kind.SMOKE, Kind.GAS}:
        return Level.ALARM
    if Kind(item.kind) is Kind.FLAME and Sense(item.sense) is Sense.CAMERA:
        return Level.ALARM
    return Level.PRE_ALARM


def _is_same_time(first: EvidenceItem, second: EvidenceItem) -> bool:
    """True if the two signs were seen within the window of each other, whenever they were reported."""
    return first.since_ns <= second.until_ns + WINDOW_NS and second.since_ns <= first.until_ns + WINDOW_NS


@dataclass(frozen=True)
class _Sign:
    """A sign, the level that it justifies alone, and the marked false alarms that it resembles."""

    item: EvidenceItem
    worth: Level
    like: tuple[FalseAlarm, ...]
    is_expected: bool  # by the profile
    is_by_profile: bool = False  # its worth is

    def is_new_with(self, second: "_Sign") -> bool:
        """True if no single marked alarm resembles both signs, and the profile does not expect both."""
        return not (self.is_expected and second.is_expected) and not any(mark in second.like for mark in self.like)


def _weigh(item: EvidenceItem, marks: Collection[FalseAlarm], profile: Profile | None) -> _Sign:
    like = tuple(marks_like(item, marks)) if marks else ()
    by_profile = profile.judge(item) if profile else Judgement.NONE
    worth = alone(item)
    if by_profile is Judgement.ALARM:
        worth = Level.ALARM
    if by_profile is Judgement.EXPECTED or (like and not is_checked_by_camera(item)):
        worth = min(worth, Level.PRE_ALARM)
    expected = by_profile is Judgement.EXPECTED
    return _Sign(item, worth, like, expected, by_profile is Judgement.ALARM and worth > alone(item))


def _agreeing(signs: Sequence[_Sign]) -> tuple[EvidenceItem, EvidenceItem] | None:
    """The first two of `signs` that have different kinds, or one kind seen by a camera and a sensor."""
    groups: dict[tuple[Kind, bool], list[_Sign]] = {}
    for weighed in signs:
        groups.setdefault((Kind(weighed.item.kind), Sense(weighed.item.sense) is Sense.CAMERA), []).append(weighed)
    for left, right in combinations(groups.values(), 2):
        for first in left:
            for second in right:
                if _is_same_time(first.item, second.item) and first.is_new_with(second):
                    return first.item, second.item
    return None


def judge(items: Iterable[EvidenceItem], marks: Collection[FalseAlarm] = (), profile: Profile | None = None) -> Verdict:
    """Judge the active signs of a zone, at most one per device and kind.

    A sign that resembles one of a marked false alarm (`marks`) is only a pre-alarm alone. So are several signs
    together if they all resemble signs of the same marked alarm, or if the `profile` expects them all.
    """
    signs = [_weigh(item, marks, profile) for item in items if item.level >= Level.PRE_ALARM]
    if not signs:
        return CLEAR
    signs.sort(key=lambda weighed: (-weighed.worth, -weighed.item.level, -weighed.item.score, weighed.item.device))
    pair, first = _agreeing(signs), signs[0]
    if first.worth >= Level.ALARM:
        # Two signs that agree are the stronger grounds, provided that the strongest sign is one of them.
        agreeing = pair is not None and first.item in pair
        name = profile.name if profile and first.is_by_profile and not agreeing else ""
        return Verdict(Level.ALARM, pair if agreeing and pair else (first.item,), profile=name)
    if pair is not None:
        return Verdict(Level.ALARM, pair)
    name = profile.name if profile and first.is_expected else ""
    return Verdict(Level.PRE_ALARM, (first.item,), first.like[0] if first.like else None, name)
