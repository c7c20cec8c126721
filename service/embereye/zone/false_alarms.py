"""What people marked as a false alarm: which later signs are like it, and what more these have to show. Pure.

A sign that is like one of a marked alarm is a pre-alarm by itself, never nothing. It counts in full as soon as it is
stronger, larger, somewhere else in the picture or there for longer, and where it is critical.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem, Region

STRONGER = 1.1  # times the value that was marked: more is a new thing
LARGER = 1.6  # times the area
LONGER = 2  # times as long as it lasted then, …
LEAST_NS = 120 * SECOND  # … at least this, …
MOST_NS = 600 * SECOND  # … and at most this, however long it lasted: a fire grows meanwhile
LARGEST = 0.05  # of the picture: what is larger is never taken for what was marked
REACH = 0.03  # of the picture, around where it was: a lamp sways, a camera shakes
INSIDE = 0.8  # of a region lies where it was
ASKED_AT_CAMERA = 50.0  # %: a camera that knows the place so well has asked for more evidence itself

Key = tuple[str, str, int]


def strongest(items: Iterable[EvidenceItem]) -> list[EvidenceItem]:
    """What `items` tell of an alarm: one sign for each device and kind, with the most that was seen of it."""
    found: dict[Key, EvidenceItem] = {}
    for item in items:
        if item.level <= Level.CLEAR:
            continue
        key = (item.fleet, item.device, item.kind)
        if (kept := found.get(key)) is None:
            kept = found[key] = EvidenceItem()
            kept.CopyFrom(item)
            kept.ClearField("snapshot")
            kept.ClearField("note")
        else:
            _add(kept, item)
    return list(found.values())


def _add(kept: EvidenceItem, item: EvidenceItem) -> None:
    longest = max(_lasted(kept), _lasted(item))
    kept.level, kept.score = max(kept.level, item.level), max(kept.score, item.score)
    kept.until_ns = max(kept.until_ns, item.until_ns)
    kept.since_ns = kept.until_ns - longest
    terms = {term.name: term for term in kept.why}
    for term in item.why:
        if (known := terms.get(term.name)) is None:
            kept.why.append(term)
        elif term.value > known.value:
            known.CopyFrom(term)
    if item.HasField("region"):
        if not kept.HasField("region") or kept.region.view != item.region.view:
            kept.region.CopyFrom(item.region)
        else:
            _widen(kept.region, item.region)


def _widen(region: Region, other: Region) -> None:
    right, bottom = (
        max(region.x + region.width, other.x + other.width),
        max(region.y + region.height, other.y + other.height),
    )
    region.x, region.y = min(region.x, other.x), min(region.y, other.y)
    region.width, region.height = right - region.x, bottom - region.y
    region.area = max(region.area, other.area)


def marks_like(item: EvidenceItem, marks: Iterable[FalseAlarm]) -> list[FalseAlarm]:
    """Those of `marks` in whose alarm as much was seen as `item` tells."""
    return [mark for mark in marks if any(is_like(item, seen) for seen in mark.signs)]


def is_like(item: EvidenceItem, seen: EvidenceItem) -> bool:
    """Whether `item` is of the same device and kind as the sign `seen` in a marked alarm, and no more than that."""
    if (item.fleet, item.device, item.kind) != (seen.fleet, seen.device, seen.kind):
        return False
    if item.level > seen.level or item.level >= Level.CRITICAL or _lasted(item) > patience_ns(seen):
        return False
    if item.HasField("region") or seen.HasField("region"):
        return _is_inside(item.region, seen.region)
    marked = {term.name: term.value for term in seen.why}
    over = [term for term in item.why if term.threshold and term.value >= term.threshold]
    return all(term.value <= STRONGER * marked.get(term.name, 0.0) for term in over)


def asked_at_camera(item: EvidenceItem) -> bool:
    """Whether the camera that saw `item` knows the place, and has asked for more evidence there itself."""
    return any(term.name.startswith("flame.familiar") and term.value >= ASKED_AT_CAMERA for term in item.why)


def patience_ns(seen: EvidenceItem) -> int:
    """For how long a sign like the one `seen` in a marked alarm may last before it counts in full."""
    return min(MOST_NS, max(LEAST_NS, LONGER * _lasted(seen)))


def resemblance(mark: FalseAlarm) -> str:
    """Whose mark it is and why, for a sentence about a sign that is like it."""
    day = datetime.fromtimestamp(mark.time_ns / SECOND, tz=UTC).strftime("%Y-%m-%d")
    return f"as in an alarm that {mark.who} marked as false on {day} ({mark.reason})"


def summary(seen: EvidenceItem) -> str:
    """What is kept of one sign of a marked alarm, for people: "heat at s-01"."""
    return f"{Kind(seen.kind).word} at {seen.device}"


def _lasted(item: EvidenceItem) -> int:
    return max(0, item.until_ns - item.since_ns)


def _is_inside(region: Region, seen: Region) -> bool:
    """Whether `region` lies where one was `seen` in the same view, and is no larger."""
    if region.view != seen.view or region.area > min(LARGEST, LARGER * seen.area):
        return False
    width = min(region.x + region.width, seen.x + seen.width + REACH) - max(region.x, seen.x - REACH)
    height = min(region.y + region.height, seen.y + seen.height + REACH) - max(region.y, seen.y - REACH)
    shared = max(0.0, width) * max(0.0, height)
    return shared >= INSIDE * region.width * region.height
