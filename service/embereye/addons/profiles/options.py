"""The file of `embereye hub --profiles`: profiles that zones can have, by a person's permit or by the hour (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from embereye.levels import Kind, Sense
from embereye.process.fields import Fields
from embereye.process.timing.hours import EVERY_DAY, Hours, read_clock, read_days, read_time_zone
from embereye.zone.profile import QUANTITIES, Profile, sorts
from embereye_cli.declared import read_declared

OPTION = "--profiles"
NORMAL = "normal"  # the name of having none
MAX_PROFILES = 32
MAX_HOURS = 50
MAX_PERMIT_MINUTES = 24 * 60
MAX_SCHEDULE_MINUTES = 31 * 24 * 60
MAX_LIMIT = 1e6
KINDS = {kind.word: kind for kind in (Kind.SMOKE, Kind.FLAME, Kind.GAS, Kind.HEAT)}
SENSES = {"camera": Sense.CAMERA, "sensor": Sense.SENSOR}
# Words for signs: flame is every flame, camera/flame one that a camera sees.
SORTS = {word: sorts(kind) for word, kind in KINDS.items()} | {
    f"{by}/{word}": sorts(kind, sense) for by, sense in SENSES.items() for word, kind in KINDS.items()
}


@dataclass(frozen=True)
class ProfileOptions:
    """One declared profile."""

    profile: Profile
    zones: tuple[str, ...]  # patterns of ZONE or NAMESPACE/ZONE
    longest: int  # minutes of one permit
    confirm: int  # minutes after which somebody has to confirm it
    expected: tuple[str, ...] = ()  # words of SORTS
    alarm_alone: tuple[str, ...] = ()  # words of SORTS
    watchman: bool = False  # a permit names one
    mqtt: bool = False  # messages at the broker may begin and end a permit
    hours: tuple[Hours, ...] = ()  # when it begins automatically; none: only by a permit

    @property
    def name(self) -> str:
        """Its name."""
        return self.profile.name

    @property
    def is_automatic(self) -> bool:
        """True if hours or a message may begin it, once a person has confirmed that."""
        return bool(self.hours) or self.mqtt

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if the zone may have it."""
        return any(fnmatchcase(name, pattern) for name in (zone, f"{namespace}/{zone}") for pattern in self.zones)

    def is_scheduled(self, at: datetime) -> bool:
        """True if its hours include `at`."""
        return any(hours.includes(at) for hours in self.hours)


@dataclass(frozen=True)
class ProfilesOptions:
    """The content of the file."""

    profiles: dict[str, ProfileOptions]
    zone_info: ZoneInfo | None = None  # of hours; None: the machine's

    def local(self, wall_ns: int) -> datetime:
        """The time `wall_ns` in the file's time zone."""
        return datetime.fromtimestamp(wall_ns / 1e9).astimezone(self.zone_info)

    def scheduled(self, namespace: str, zone: str, at: datetime) -> Sequence[ProfileOptions]:
        """The profiles whose hours include `at`, in the order of their declaration."""
        return [each for each in self.profiles.values() if each.is_scheduled(at) and each.has_zone(namespace, zone)]


def read_profiles(path: Path) -> ProfilesOptions:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_profiles)


def parse_profiles(fields: Fields) -> ProfilesOptions:
    """Read the file's content; DeclaredError."""
    profiles = fields.unique("profiles", _profile, most=MAX_PROFILES, least=1)
    return ProfilesOptions(profiles, read_time_zone(fields))


def _profile(fields: Fields) -> ProfileOptions:
    name = fields.name()
    if name == NORMAL:
        raise fields.wrong("name", "is the name of having no profile")
    expected, alarm_alone = (fields.choices(field, tuple(SORTS), ()) for field in ("expected", "alarmAlone"))
    signs, single = (frozenset().union(*(SORTS[word] for word in words)) for words in (expected, alarm_alone))
    if all((kind, sense) in signs for kind in KINDS.values() for sense in SENSES.values()):
        raise fields.error("expected", "leave at least one kind of sign that is an alarm")
    if signs & single:
        raise fields.error("alarmAlone", "names signs that are expected, too")
    zones = tuple(fields.texts("zones", ...))
    if not zones:
        raise fields.error("zones", 'it is empty. Name zones, or "*" for all.')
    hours = tuple(fields.items("hours", _hours, most=MAX_HOURS))
    mqtt, watchman = fields.flag("mqtt"), fields.flag("watchman")
    if mqtt and watchman:
        raise fields.error("mqtt", "a message names no watchman. Leave out one of the two fields.")
    confirm = _minutes(fields, "confirmEvery", ..., MAX_SCHEDULE_MINUTES if hours or mqtt else MAX_PERMIT_MINUTES)
    return ProfileOptions(
        profile=Profile(name, signs, single, _limits(fields)),
        zones=zones,
        longest=_minutes(fields, "longest", 60 * min(confirm, MAX_PERMIT_MINUTES), MAX_PERMIT_MINUTES),
        confirm=confirm,
        expected=expected,
        alarm_alone=alarm_alone,
        watchman=watchman,
        mqtt=mqtt,
        hours=hours,
    )


def _limits(fields: Fields) -> dict[str, float]:
    limits = fields.mapping("limits")
    for name, value in limits.items():
        if name not in QUANTITIES:
            raise fields.error("limits", f'"{name[:80]}" is not one of {", ".join(QUANTITIES)}')
        unit = QUANTITIES[name][2]
        most = 100 if unit == "%" else MAX_LIMIT
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise fields.error("limits", f"{name}: {str(value)[:80]} is not a number of {unit} up to {most:g}")
    return {name: float(value) for name, value in limits.items()}


def _minutes(fields: Fields, name: str, default: Any, most: int) -> int:
    return round(fields.duration(name, default, 60, 60 * most) / 60)


def _hours(fields: Fields) -> Hours:
    return Hours(read_days(fields) or EVERY_DAY, read_clock(fields, "from"), read_clock(fields, "to"))
