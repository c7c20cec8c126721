"""The file of `embereye hub --profiles`: profiles that zones can have, by a person's permit or by the hour (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from embereye.levels import Kind
from embereye.process.fields import Fields
from embereye.process.timing.hours import EVERY_DAY, Hours, read_clock, read_days, read_time_zone
from embereye.zone.profile import Profile
from embereye_cli.declared import read_declared

OPTION = "--profiles"
NORMAL = "normal"  # the name of having none
MAX_PROFILES = 32
MAX_HOURS = 50
MAX_PERMIT_MINUTES = 24 * 60
MAX_SCHEDULE_MINUTES = 31 * 24 * 60
KINDS = {kind.word: kind for kind in (Kind.SMOKE, Kind.FLAME, Kind.GAS, Kind.HEAT)}


@dataclass(frozen=True)
class ProfileOptions:
    """One declared profile."""

    profile: Profile
    zones: tuple[str, ...]  # patterns of ZONE or NAMESPACE/ZONE
    longest: int  # minutes of one permit
    confirm: int  # minutes after which somebody has to confirm it
    watchman: bool = False  # a permit names one
    hours: tuple[Hours, ...] = ()  # when it begins automatically; none: only by a permit

    @property
    def name(self) -> str:
        """Its name."""
        return self.profile.name

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
    kinds = fields.choices("expected", tuple(KINDS), ...)
    if not 0 < len(set(kinds)) < len(KINDS):
        raise fields.error("expected", "name kinds of sign, and leave at least one that is an alarm")
    zones = tuple(fields.texts("zones", ...))
    if not zones:
        raise fields.error("zones", 'it is empty. Name zones, or "*" for all.')
    hours = tuple(fields.items("hours", _hours, most=MAX_HOURS))
    confirm = _minutes(fields, "confirmEvery", ..., MAX_SCHEDULE_MINUTES if hours else MAX_PERMIT_MINUTES)
    return ProfileOptions(
        profile=Profile(name, frozenset(KINDS[kind] for kind in kinds)),
        zones=zones,
        longest=_minutes(fields, "longest", 60 * min(confirm, MAX_PERMIT_MINUTES), MAX_PERMIT_MINUTES),
        confirm=confirm,
        watchman=fields.flag("watchman"),
        hours=hours,
    )


def _minutes(fields: Fields, name: str, default: Any, most: int) -> int:
    return round(fields.duration(name, default, 60, 60 * most) / 60)


def _hours(fields: Fields) -> Hours:
    return Hours(read_days(fields) or EVERY_DAY, read_clock(fields, "from"), read_clock(fields, "to"))
