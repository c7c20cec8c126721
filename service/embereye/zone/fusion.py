"""What the signs seen in one zone amount to, taken together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.sentences import sign

WINDOW_NS = 30_000_000_000  # a sign counts this long after it was last told; it covers a shard's restart


@dataclass(frozen=True)
class Verdict:
    """`level` is CLEAR, PRE_ALARM or ALARM; `grounds` are the signs that decided it, one or two that agree."""

    level: Level
    grounds: tuple[EvidenceItem, ...] = ()

    @property
    def why(self) -> str:
        """The grounds in one sentence, without a full stop; empty where all is clear."""
        words = [sign(item) for item in self.grounds]
        if len(words) > 1:
            return f"{', and '.join(words)} agree"
        return words[0] if words else ""


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


def _agreeing(items: Sequence[EvidenceItem]) -> tuple[EvidenceItem, EvidenceItem] | None:
    """The first two of `items` that are of different kinds, or of one kind by a camera and a sensor."""
    groups: dict[tuple[Kind, bool], list[EvidenceItem]] = {}
    for item in items:
        groups.setdefault((Kind(item.kind), Sense(item.sense) is Sense.CAMERA), []).append(item)
    for left, right in combinations(groups.values(), 2):
        for one in left:
            for other in right:
                if _same_time(one, other):
                    return one, other
    return None


def judge(items: Iterable[EvidenceItem]) -> Verdict:
    """The verdict on the signs that are active in a zone, at most one per device and kind."""
    signs = [item for item in items if item.level >= Level.PRE_ALARM]
    if not signs:
        return CLEAR
    signs.sort(key=lambda item: (-alone(item), -item.level, -item.score, item.device))
    pair = _agreeing(signs)
    if alone(signs[0]) >= Level.ALARM:
        # The stronger reason is told: agreement where the strongest sign takes part in it.
        agree = pair is not None and signs[0] in pair
        return Verdict(Level.ALARM, pair if agree and pair else (signs[0],))
    if pair is not None:
        return Verdict(Level.ALARM, pair)
    return Verdict(Level.PRE_ALARM, (signs[0],))
