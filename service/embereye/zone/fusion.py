"""What the signs seen in one zone amount to, taken together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from embereye.levels import Kind, Level, Sense
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.false_alarms import asked_at_camera, marks_like, resemblance
from embereye.zone.sentences import sign

WINDOW_NS = 30_000_000_000  # a sign counts this long after it was last told; it covers a shard's restart


@dataclass(frozen=True)
class Verdict:
    """`level` is CLEAR, PRE_ALARM or ALARM; `grounds` are the signs that decided it, one or two that agree."""

    level: Level
    grounds: tuple[EvidenceItem, ...] = ()
    like: FalseAlarm | None = None  # the marked false alarm for which the grounds are not enough by themselves

    @property
    def why(self) -> str:
        """The grounds in one sentence, without a full stop; empty where all is clear."""
        words = [sign(item) for item in self.grounds]
        if len(words) > 1:
            return f"{', and '.join(words)} agree"
        if not words:
            return ""
        return f"{words[0]}, {resemblance(self.like)}" if self.like else words[0]

    @property
    def wanting(self) -> str:
        """What would make a pre-alarm an alarm."""
        return "a second, stronger or longer sign would confirm it" if self.like else "a second sign would confirm it"


CLEAR = Verdict(Level.CLEAR)


def alone(item: EvidenceItem) -> Level:
    """What `item` is worth without any other: CLEAR, PRE_ALARM or ALARM.

    A flame sensor of the infrared or ultraviolet type also sees sunlight and welding, an uncalibrated device knows no
    temperature, and a kind that this version does not know cannot be judged: they ask for a second sign. A camera's
    flame has already persisted when it is reported at ALARM.
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


def _same_time(one: EvidenceItem, other: EvidenceItem) -> bool:
    """Whether the two signs were seen within the window of each other, whenever they were reported."""
    return one.since_ns <= other.until_ns + WINDOW_NS and other.since_ns <= one.until_ns + WINDOW_NS


@dataclass(frozen=True)
class _Sign:
    """A sign, what it is worth alone, and the marked false alarms in which as much was seen."""

    item: EvidenceItem
    worth: Level
    like: tuple[FalseAlarm, ...]

    def adds_to(self, other: "_Sign") -> bool:
        """Whether the two together are more than was seen in any one marked alarm."""
        return not any(mark in other.like for mark in self.like)


def _weigh(item: EvidenceItem, marks: Collection[FalseAlarm]) -> _Sign:
    like = tuple(marks_like(item, marks)) if marks else ()
    worth = alone(item)
    return _Sign(item, worth if not like or asked_at_camera(item) else min(worth, Level.PRE_ALARM), like)


def _agreeing(signs: Sequence[_Sign]) -> tuple[EvidenceItem, EvidenceItem] | None:
    """The first two of `signs` that are of different kinds, or of one kind by a camera and a sensor."""
    groups: dict[tuple[Kind, bool], list[_Sign]] = {}
    for each in signs:
        groups.setdefault((Kind(each.item.kind), Sense(each.item.sense) is Sense.CAMERA), []).append(each)
    for left, right in combinations(groups.values(), 2):
        for one in left:
            for other in right:
                if _same_time(one.item, other.item) and one.adds_to(other):
                    return one.item, other.item
    return None


def judge(items: Iterable[EvidenceItem], marks: Collection[FalseAlarm] = ()) -> Verdict:
    """The verdict on the signs that are active in a zone, at most one per device and kind.

    What is like a sign of a marked false alarm (`marks`) is a pre-alarm by itself, and so are signs together that are
    all like those of one such alarm.
    """
    signs = [_weigh(item, marks) for item in items if item.level >= Level.PRE_ALARM]
    if not signs:
        return CLEAR
    signs.sort(key=lambda each: (-each.worth, -each.item.level, -each.item.score, each.item.device))
    pair, first = _agreeing(signs), signs[0]
    if first.worth >= Level.ALARM:
        # The stronger reason is told: agreement where the strongest sign takes part in it.
        agree = pair is not None and first.item in pair
        return Verdict(Level.ALARM, pair if agree and pair else (first.item,))
    if pair is not None:
        return Verdict(Level.ALARM, pair)
    return Verdict(Level.PRE_ALARM, (first.item,), first.like[0] if first.like else None)
