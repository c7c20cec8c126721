"""A day's statement as plain data (pure): what was watched, for how long, and what interrupted it.

`statement` gets what is known of a day and returns an object of texts, whole numbers and lists, which `signing` turns
into bytes. All durations are whole seconds. A device counts as watched from its declaration to its removal, without the
spans in which it was dark and those in which the hub was away.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from embereye.units import SECOND, utc
from embereye.zone.timeline import DarkSpan, Span, ZoneKey, merged

FORMAT = 1  # raise it when a field changes its meaning
Json = dict[str, object]
OUTCOMES = ("offered", "analysed", "shed", "duplicate", "rejected")  # of messages; the first is the sum of the others


@dataclass(frozen=True)
class Day:
    """A calendar day in the hub's time zone."""

    date: date
    zone: tzinfo | None = None  # None: the machine's

    @classmethod
    def of(cls, wall_ns: int, zone: tzinfo | None = None) -> "Day":
        """The day that includes the time `wall_ns`."""
        return cls(datetime.fromtimestamp(wall_ns // SECOND, UTC).astimezone(zone).date(), zone)

    @classmethod
    def named(cls, name: str, zone: tzinfo | None = None) -> "Day":
        """The day called `name`, such as 2026-11-28; ValueError."""
        return cls(date.fromisoformat(name), zone)

    @property
    def name(self) -> str:
        """The name, such as 2026-11-28."""
        return self.date.isoformat()

    @property
    def next(self) -> "Day":
        """The following day."""
        return Day(self.date + timedelta(days=1), self.zone)

    @property
    def span(self) -> Span:
        """From midnight to midnight: 23 to 25 hours."""
        begin, end = (datetime.combine(self.date + timedelta(days=n), time.min, self.zone) for n in (0, 1))
        return int(begin.timestamp()) * SECOND, int(end.timestamp()) * SECOND


@dataclass(frozen=True)
class Declared:
    """A time in which a device was declared."""

    fleet: str  # "namespace/kind/name"
    device: str  # id
    zone: ZoneKey
    from_ns: int
    until_ns: int  # 0: still


@dataclass(frozen=True)
class Away:
    """A time in which the hub was not there to hear anything."""

    from_ns: int
    until_ns: int
    why: str


@dataclass(frozen=True)
class Alarm:
    """An alarm that was open at some time of the day."""

    alarm: str
    zone: ZoneKey
    began_ns: int
    ended_ns: int  # 0: still open when the statement was made
    why: str
    acknowledged_ns: int = 0  # 0: not acknowledged when the statement was made
    is_false: bool = False  # a person marked it as false
    is_test: bool = False  # it began while people tested the zone


@dataclass(frozen=True)
class Route:
    """A way to reach people."""

    name: str
    sent: int = 0  # canary messages of this day
    confirmed: int = 0
    state: str = ""  # at the end of the day


@dataclass
class Canaries:
    """Test fires of shards: how many the hub expected, got, and turned into an alarm in time."""

    expected_millionths: int = 0
    arrived: int = 0
    alarmed: int = 0
    late: int = 0


@dataclass
class Facts:
    """All that is known of a day."""

    day: Day
    site: str
    time_zone: str
    version: str
    made_ns: int
    declared: Sequence[Declared] = ()
    dark: Mapping[ZoneKey, Iterable[DarkSpan]] = field(default_factory=dict)
    away: Sequence[Away] = ()
    alarms: Sequence[Alarm] = ()
    pre_alarms: Mapping[ZoneKey, int] = field(default_factory=dict)
    canaries: Canaries = field(default_factory=Canaries)
    routes: Sequence[Route] = ()
    # Messages by outcome in each zone, and the time until which they were counted; 0: not counted on this day.
    ledgers: Mapping[ZoneKey, Sequence[int]] = field(default_factory=dict)
    counted_until_ns: int = 0
    unknown: Sequence[str] = ()  # a sentence for each thing that is missing


def statement(facts: Facts) -> Json:
    """Describe the day."""
    span = facts.day.span
    away = merged(clipped(((each.from_ns, each.until_ns) for each in facts.away), span))
    zones: dict[ZoneKey, list[Json]] = {}
    by_device: dict[tuple[ZoneKey, str, str], list[Declared]] = {}
    for each in facts.declared:
        by_device.setdefault((each.zone, each.fleet, each.device), []).append(each)
    for (zone, _, _), spans in sorted(by_device.items(), key=lambda item: item[0]):
        if described := _device(
            spans, [d for d in facts.dark.get(zone, ()) if d.device == spans[0].device], away, span
        ):
            zones.setdefault(zone, []).append(described)
    for alarm in facts.alarms:
        zones.setdefault(alarm.zone, [])
    return {
        "format": FORMAT,
        "site": facts.site,
        "day": facts.day.name,
        "timeZone": facts.time_zone,
        "from": utc(span[0]),
        "until": utc(span[1]),
        "made": utc(facts.made_ns),
        "version": facts.version,
        "unknown": list(facts.unknown),
        "away": [_interval(begin, end, why) for begin, end, why in _named(facts.away, span)],
        "canaries": {
            "expected": facts.canaries.expected_millionths // 1_000_000, "arrived": facts.canaries.arrived,
            "alarmed": facts.canaries.alarmed, "late": facts.canaries.late,
        },
        "routes": [
            {"route": each.name, "sent": each.sent, "confirmed": each.confirmed, "state": each.state}
            for each in sorted(facts.routes, key=lambda route: route.name)
        ],
        "countedUntil": utc(facts.counted_until_ns) if facts.counted_until_ns else "",
        "zones": [_zone(facts, zone, devices) for zone, devices in sorted(zones.items())],
    }  # fmt: skip


def _zone(facts: Facts, zone: ZoneKey, devices: list[Json]) -> Json:
    counts = facts.ledgers.get(zone)
    return {
        "namespace": zone[0],
        "zone": zone[1],
        "seconds": sum(_number(device["seconds"]) for device in devices),
        "coveredSeconds": sum(_number(device["coveredSeconds"]) for device in devices),
        "devices": devices,
        "alarms": [_alarm(alarm) for alarm in sorted(facts.alarms, key=_by_begin) if alarm.zone == zone],
        "preAlarms": facts.pre_alarms.get(zone, 0),
        "messages": dict(zip(OUTCOMES, counts, strict=True)) if counts else {},
    }


def _by_begin(alarm: Alarm) -> tuple[int, str]:
    return alarm.began_ns, alarm.alarm


def _alarm(alarm: Alarm) -> Json:
    after = (alarm.acknowledged_ns - alarm.began_ns) // SECOND if alarm.acknowledged_ns else None
    return {
        "alarm": alarm.alarm, "began": utc(alarm.began_ns), "ended": utc(alarm.ended_ns) if alarm.ended_ns else "",
        "acknowledgedAfterSeconds": after, "false": alarm.is_false, "test": alarm.is_test, "why": alarm.why,
    }  # fmt: skip


def _device(declared: Sequence[Declared], dark: Sequence[DarkSpan], away: Sequence[Span], span: Span) -> Json | None:
    """Describe a device; None if it was not declared on this day."""
    watched = merged(clipped(((each.from_ns, each.until_ns or span[1]) for each in declared), span))
    if not watched:
        return None
    gaps: list[tuple[int, int, str]] = []
    for each in sorted(dark, key=lambda gap: gap.from_ns):
        gaps += [
            (begin, end, each.reason)
            for inside in watched
            for begin, end in clipped([(each.from_ns, each.until_ns or span[1])], inside)
        ]
    lost = merged(
        [*((begin, end) for begin, end, _ in gaps), *(s for inside in watched for s in clipped(away, inside))]
    )
    total = _length(watched)
    return {
        "fleet": declared[0].fleet, "device": declared[0].device, "seconds": total // SECOND,
        "coveredSeconds": (total - _length(lost)) // SECOND, "gaps": [_interval(*gap) for gap in gaps],
    }  # fmt: skip


def _named(away: Iterable[Away], span: Span) -> list[tuple[int, int, str]]:
    return [
        (begin, end, each.why)
        for each in sorted(away, key=lambda gap: gap.from_ns)
        for begin, end in clipped([(each.from_ns, each.until_ns)], span)
    ]


def _interval(begin: int, end: int, reason: str) -> Json:
    return {"from": utc(begin), "until": utc(end), "seconds": (end - begin) // SECOND, "reason": reason}


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def clipped(spans: Iterable[Span], span: Span) -> list[Span]:
    """The parts of `spans` within `span`."""
    parts = ((max(begin, span[0]), min(end, span[1])) for begin, end in spans)
    return [(begin, end) for begin, end in parts if begin < end]


def summary(made: Mapping[str, object]) -> Json:
    """The figures of a statement for a list."""
    zones = made["zones"]
    assert isinstance(zones, list)
    alarms = [alarm for zone in zones for alarm in zone["alarms"]]
    away = made["away"]
    assert isinstance(away, list)
    return {
        "zones": len(zones),
        "devices": sum(len(zone["devices"]) for zone in zones),
        "seconds": sum(zone["seconds"] for zone in zones),
        "coveredSeconds": sum(zone["coveredSeconds"] for zone in zones),
        "awaySeconds": sum(each["seconds"] for each in away),
        "alarms": len(alarms),
        "unacknowledged": sum(alarm["acknowledgedAfterSeconds"] is None for alarm in alarms),
    }
