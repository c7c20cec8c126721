"""Match later signs with alarms that people marked as false. Pure.

A sign that resembles one of a marked alarm is a pre-alarm when it is alone; it is never ignored. It counts in full
if it is critical, stronger, larger, longer or somewhere else in the picture.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from embereye.levels import Kind, Level
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem, Region

STRONGER = 1.1  # times the marked value; a sign above it counts in full
LARGER = 1.6  # times the marked area
LONGER = 2  # times the marked duration, …
LEAST_NS = 120 * SECOND  # … at least this, …
MOST_NS = 600 * SECOND  # … and at most this, because a fire grows meanwhile
LARGEST = 0.05  # share of the picture; a larger region never resembles a marked one
REACH = 0.03  # share of the picture by which the marked region is extended: a lamp sways, a camera shakes
INSIDE = 0.8  # share of a region that has to lie inside the extended marked region
ASKED_AT_CAMERA = 50.0  # % of familiarity, or of usual smoke, from which the camera has already demanded more evidence

Key = tuple[str, str, int]


def strongest(items: Iterable[EvidenceItem]) -> list[EvidenceItem]:
    """Merge the reports of an alarm: one sign for each device and kind, with the highest of every value."""
    signs: dict[Key, EvidenceItem] = {}
    for item in items:
        if item.level <= Level.CLEAR:
            continue
        key = (item.fleet, item.device, item.kind)
        if (merged := signs.get(key)) is None:
            merged = signs[key] = EvidenceItem()
            merged.CopyFrom(item)
            merged.ClearField("snapshot")
            merged.ClearField("note")
        else:
            _merge(merged, item)
    return list(signs.values())


def _merge(merged: EvidenceItem, item: EvidenceItem) -> None:
    longest = max(_duration_ns(merged), _duration_ns(item))
    merged.level, merged.score = max(merged.level, item.level), max(merged.score, item.score)
    merged.until_ns = max(merged.until_ns, item.until_ns)
    merged.since_ns = merged.until_ns - longest
    terms = {term.name: term for term in merged.why}
    for term in item.why:
        if (known := terms.get(term.name)) is None:
            merged.why.append(term)
        elif term.value > known.value:
            known.CopyFrom(term)
    if item.HasField("region"):
        if not merged.HasField("region") or merged.region.view != item.region.view:
            merged.region.CopyFrom(item.region)
        else:
            _widen(merged.region, item.region)


def _widen(region: Region, added: Region) -> None:
    right, bottom = (
        max(region.x + region.width, added.x + added.width),
        max(region.y + region.height, added.y + added.height),
    )
    region.x, region.y = min(region.x, added.x), min(region.y, added.y)
    region.width, region.height = right - region.x, bottom - region.y
    region.area = max(region.area, added.area)


def marks_like(item: EvidenceItem, marks: Iterable[FalseAlarm]) -> list[FalseAlarm]:
    """The marked false alarms that have a sign which `item` resembles."""
    return [mark for mark in marks if any(is_like(item, marked) for marked in mark.signs)]


def is_like(item: EvidenceItem, marked: EvidenceItem) -> bool:
    """True if `item` has the device and kind of the sign `marked` of a false alarm, and exceeds it in no respect."""
    if (item.fleet, item.device, item.kind) != (marked.fleet, marked.device, marked.kind):
        return False
    if item.level > marked.level or item.level >= Level.CRITICAL or _duration_ns(item) > patience_ns(marked):
        return False
    if item.HasField("region") or marked.HasField("region"):
        return _is_inside(item.region, marked.region)
    marked_values = {term.name: term.value for term in marked.why}
    crossed = [term for term in item.why if term.threshold and term.value >= term.threshold]
    return all(term.value <= STRONGER * marked_values.get(term.name, 0.0) for term in crossed)


def is_checked_by_camera(item: EvidenceItem) -> bool:
    """True if the camera that saw `item` knows the place and has already demanded more evidence there."""
    return any(
        (term.name.startswith("flame.familiar") or term.name == "smoke.usual") and term.value >= ASKED_AT_CAMERA
        for term in item.why
    )


def patience_ns(marked: EvidenceItem) -> int:
    """The duration from which a sign counts in full although it resembles the sign `marked` of a false alarm."""
    return min(MOST_NS, max(LEAST_NS, LONGER * _duration_ns(marked)))


def resemblance(mark: FalseAlarm) -> str:
    """The author, day and reason of `mark`, for a sentence about a sign that resembles it."""
    day = datetime.fromtimestamp(mark.time_ns / SECOND, tz=UTC).strftime("%Y-%m-%d")
    return f"as in an alarm that {mark.who} marked as false on {day} ({mark.reason})"


def summary(marked: EvidenceItem) -> str:
    """A sign of a marked alarm in a few words: "heat at s-01"."""
    return f"{Kind(marked.kind).word} at {marked.device}"


def _duration_ns(item: EvidenceItem) -> int:
    return max(0, item.until_ns - item.since_ns)


def _is_inside(region: Region, marked: Region) -> bool:
    """True if `region` lies around the region `marked` of the same view, and is not much larger."""
    if region.view != marked.view or region.area > min(LARGEST, LARGER * marked.area):
        return False
    width = min(region.x + region.width, marked.x + marked.width + REACH) - max(region.x, marked.x - REACH)
    height = min(region.y + region.height, marked.y + marked.height + REACH) - max(region.y, marked.y - REACH)
    shared = max(0.0, width) * max(0.0, height)
    return shared >= INSIDE * region.width * region.height
