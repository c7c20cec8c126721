"""False alarms per day of watching, with exact limits. Pure.

A false alarm is an alarm (not a pre-alarm) that a person marked as false. It counts once for its site and zone, and
once for each device whose sign joined it. The time watched is the time since a device was first heard, without the
spans in which it was dark. A new version of the software starts a new count, because it may decide otherwise.

`interval` gives the exact limits of a Poisson mean (F. Garwood, Biometrika 28, 1936). Without a false alarm there is
only an upper limit, and all of the 5 % lies above it: in 30 days without one, the rate is at most 3.0 / 30 = 0.1 a day.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from embereye.units import DAY
from embereye.zone.timeline import DarkSpan, Span, ZoneKey, merged

CONFIDENCE = 0.95
BISECTIONS = 200  # at most; each halves the interval
DeviceKey = tuple[str, str]  # fleet ("namespace/kind/name"), device id


@dataclass(frozen=True)
class DeviceWatch:
    """A declared device and the time since which it is watched."""

    fleet: str  # "namespace/kind/name"
    device: str  # id
    zone: ZoneKey
    since_ns: int  # when it was first heard, nanoseconds since the Unix epoch


@dataclass(frozen=True)
class RaisedAlarm:
    """An alarm with its devices and its verdict."""

    zone: ZoneKey
    began_ns: int
    devices: frozenset[DeviceKey]  # whose signs joined it
    is_false: bool


@dataclass(frozen=True)
class Row:
    """The alarms of one subject under one version."""

    subject: tuple[str, ...]  # () for the site, (kind,), zone, or (fleet, device)
    version: str
    watched_ns: int  # added up over its devices
    alarms: int
    false_alarms: int

    @property
    def days(self) -> float:
        """Device-days of watching."""
        return self.watched_ns / DAY

    @property
    def per_day(self) -> float | None:
        """False alarms per device-day; None without any time of watching."""
        return self.false_alarms / self.days if self.watched_ns else None

    @property
    def limits(self) -> tuple[float, float] | None:
        """The exact 95 % limits of the rate; None without any time of watching."""
        if not self.watched_ns:
            return None
        low, high = interval(self.false_alarms)
        return low / self.days, high / self.days


def interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact limits of the mean of a Poisson distribution of which `count` events were seen; one-sided for none."""
    if count == 0:
        return 0.0, -math.log(1 - confidence)
    tail = (1 - confidence) / 2
    return _mean_with(count - 1, 1 - tail), _mean_with(count, tail)


def _mean_with(count: int, probability: float) -> float:
    """The mean at which up to `count` events have this `probability`."""
    low, high = 0.0, 10.0 + 2.0 * count + 10.0 * math.sqrt(count)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if _probability_up_to(count, middle) > probability else (low, middle)
    return (low + high) / 2


def _probability_up_to(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    logarithm = math.log(mean)
    return math.fsum(math.exp(k * logarithm - mean - math.lgamma(k + 1)) for k in range(count + 1))


def kind_of(fleet: str) -> str:
    """The kind of a fleet's devices: "sensor" or "camera"."""
    return "camera" if fleet.split("/")[1:2] == ["cameras"] else "sensor"


def rows(
    span: Span,
    devices: Sequence[DeviceWatch],
    dark: Mapping[ZoneKey, Iterable[DarkSpan]],
    alarms: Iterable[RaisedAlarm],
    versions: Sequence[tuple[int, str]],
) -> list[Row]:
    """Count the alarms of `span` for the site, each kind, zone and device, under each version, in this order.

    `versions` are the times from which each version runs, ascending; what is before the first belongs to it.
    """
    eras = _eras(span, versions)
    spans_of_device: dict[tuple[ZoneKey, str], list[Span]] = {}
    for zone, dark_spans in dark.items():
        for each in dark_spans:
            spans_of_device.setdefault((zone, each.device), []).append((each.from_ns, each.until_ns or span[1]))
    counts: dict[tuple[tuple[str, ...], str], list[int]] = {}  # watched, alarms, false alarms

    def count(subjects: Iterable[tuple[str, ...]], version: str, column: int, amount: int) -> None:
        for subject in subjects:
            counts.setdefault((subject, version), [0, 0, 0])[column] += amount

    for watch in devices:
        gaps = merged(spans_of_device.get((watch.zone, watch.device), ()))
        subjects = (), (kind_of(watch.fleet),), ("zone", *watch.zone), ("device", watch.fleet, watch.device)
        for (from_ns, until_ns), version in eras:
            begins = max(from_ns, watch.since_ns)
            gap = sum(max(0, min(until_ns, last) - max(begins, first)) for first, last in gaps)
            count(subjects, version, 0, max(0, until_ns - begins - gap))
    for alarm in alarms:
        version = next((version for (first, last), version in eras if first <= alarm.began_ns < last), "")
        if not version:
            continue
        kinds = {(kind_of(fleet),) for fleet, _ in alarm.devices}
        subjects_of_alarm = [(), *kinds, ("zone", *alarm.zone), *(("device", *device) for device in alarm.devices)]
        count(subjects_of_alarm, version, 1, 1)
        count(subjects_of_alarm, version, 2, int(alarm.is_false))
    order = {version: number for number, (_, version) in enumerate(eras)}
    ordered = sorted(counts.items(), key=lambda item: (len(item[0][0]), item[0][0], order[item[0][1]]))
    return [Row(subject, version, *numbers) for (subject, version), numbers in ordered]


def _eras(span: Span, versions: Sequence[tuple[int, str]]) -> list[tuple[Span, str]]:
    starts = [(span[0], versions[0][1] if versions else "unknown")]
    for since_ns, version in versions:
        if since_ns <= span[0]:
            starts[0] = (span[0], version)
        elif since_ns < span[1] and version != starts[-1][1]:
            starts.append((since_ns, version))
    ends = [since_ns for since_ns, _ in starts[1:]] + [span[1]]
    return [((since_ns, until_ns), version) for (since_ns, version), until_ns in zip(starts, ends, strict=True)]
