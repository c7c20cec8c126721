"""When zones are due for a walk test, and the content of its report (pure).

A device is tested when its sign arrives during a walk test of its zone. A zone is due one interval after the oldest
test among its devices; for a device that was never tested, one interval after it was first seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase

from embereye.units import DAY, SECOND, utc

DeviceKey = tuple[str, str]  # fleet ("namespace/kind/name"), device id
ZoneKey = tuple[str, str]  # namespace, name
Json = dict[str, object]


@dataclass(frozen=True)
class Interval:
    """The longest time between two tests of the zones of a pattern."""

    pattern: str  # of ZONE or NAMESPACE/ZONE
    nanoseconds: int


def interval_of(intervals: Sequence[Interval], zone: ZoneKey) -> int:
    """The interval of `zone` in nanoseconds; the last pattern counts. 0: the zone is never due."""
    names = zone[1], "/".join(zone)
    matches = [each for each in intervals if any(fnmatchcase(name, each.pattern) for name in names)]
    return matches[-1].nanoseconds if matches else 0


@dataclass
class Trigger:
    """The first sign of a device during a walk test."""

    time_ns: int  # by the wall clock
    kind: str
    level: str


@dataclass
class WalkTest:
    """A walk test that runs. Times are by the wall clock."""

    id: str
    who: str
    note: str
    started_ns: int
    cursor: int  # events up to this one are included
    devices: list[list[str]] = field(default_factory=list)  # fleet and id
    triggers: dict[str, Trigger] = field(default_factory=dict)  # by "fleet/id"
    before: list[str] = field(default_factory=list)  # episodes that had begun before

    @classmethod
    def load(cls, document: dict[str, object]) -> "WalkTest":
        """Read what `dump` wrote; TypeError."""
        test = cls(**document)  # type: ignore[arg-type]
        test.triggers = {name: Trigger(**trigger) for name, trigger in test.triggers.items()}  # type: ignore[arg-type]
        return test

    def dump(self) -> Json:
        """A document with everything."""
        return asdict(self)

    @property
    def untested(self) -> list[DeviceKey]:
        """The devices that were not triggered yet."""
        return [(fleet, device) for fleet, device in self.devices if f"{fleet}/{device}" not in self.triggers]


def due_ns(interval_ns: int, tested: Mapping[DeviceKey, int], devices: Sequence[DeviceKey]) -> int:
    """The time by which a zone's test is due, from the times of `tested`; 0: never."""
    times = [tested[device] for device in devices if device in tested]
    return min(times) + interval_ns if interval_ns and times else 0


def report(test: WalkTest, zone: ZoneKey, site: str, *, ended_ns: int, ended_by: str, version: str) -> Json:
    """Describe a walk test that has ended."""
    devices = []
    for fleet, device in test.devices:
        trigger = test.triggers.get(f"{fleet}/{device}")
        after = (trigger.time_ns - test.started_ns) // SECOND if trigger else None
        devices.append(
            {
                "fleet": fleet, "device": device, "tested": utc(trigger.time_ns) if trigger else "",
                "afterSeconds": after, "kind": trigger.kind if trigger else "",
                "level": trigger.level if trigger else "",
            }
        )  # fmt: skip
    return {
        "format": 1, "walktest": test.id, "site": site, "namespace": zone[0], "zone": zone[1], "version": version,
        "started": utc(test.started_ns), "startedBy": test.who, "ended": utc(ended_ns), "endedBy": ended_by,
        "note": test.note, "complete": not test.untested, "devices": devices,
        "untested": [f"{fleet}/{device}" for fleet, device in test.untested],
    }  # fmt: skip


def summary(made: Mapping[str, object]) -> Json:
    """The figures of a report for a list."""
    names = ("walktest", "namespace", "zone", "started", "ended", "startedBy", "complete")
    devices, untested = made["devices"], made["untested"]
    assert isinstance(devices, list)
    assert isinstance(untested, list)
    return {name: made[name] for name in names} | {"devices": len(devices), "tested": len(devices) - len(untested)}


def read_interval(text: str) -> Interval:
    """Read ZONE=DAYS or DAYS, in which DAYS is such as 90d; ValueError."""
    pattern, separator, span = text.rpartition("=")
    days = span.removesuffix("d")
    if not (span.endswith("d") and days.isdecimal()) or not 0 < int(days) <= 3_660 or (separator and not pattern):
        raise ValueError(f'"{text}" is not of the form 90d or ZONE=90d, with 1 to 3660 days')
    return Interval(pattern or "*", int(days) * DAY)
