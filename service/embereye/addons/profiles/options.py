"""The file of `embereye hub --profiles`: profiles that zones can have, by a person's permit or by the hour (pure)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from embereye.levels import Kind
from embereye.process.fields import Fields
from embereye.zone.profile import Profile
from embereye_cli.declared import read_declared

OPTION = "--profiles"
NORMAL = "normal"  # the name of having none
MAX_PROFILES = 32
MAX_HOURS = 50
MAX_PERMIT_MINUTES = 24 * 60
MAX_SCHEDULE_MINUTES = 31 * 24 * 60
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
KINDS = {kind.word: kind for kind in (Kind.SMOKE, Kind.FLAME, Kind.GAS, Kind.HEAT)}
CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d|24:00")


@dataclass(frozen=True)
class Hours:
    """A span of the day on some weekdays. If it ends before it begins, it ends on the next day."""

    days: frozenset[int]  # of its beginning; 0: Monday
    begin: time
    end: time

    def includes(self, at: datetime) -> bool:
        """True if `at`, in the file's time zone, is within the span."""
        today, now = at.weekday(), at.time()
        if self.begin < self.end:
            return today in self.days and self.begin <= now < self.end
        return (today in self.days and now >= self.begin) or ((today - 1) % 7 in self.days and now < self.end)


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
    name = fields.text("timeZone", "")
    try:
        return ProfilesOptions(profiles, ZoneInfo(name) if name else None)
    except (KeyError, ValueError, OSError):
        raise fields.wrong("timeZone", "is not a time zone such as Europe/Berlin") from None


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
    texts = fields.texts("days")
    days = frozenset(day for index, text in enumerate(texts) for day in _days(fields, text, index))
    return Hours(days or frozenset(range(7)), _time(fields, "from"), _time(fields, "to"))


def _time(fields: Fields, name: str) -> time:
    hour, minute = fields.text(name, pattern=CLOCK, form="a time of day. Use for example 18:00.").split(":")
    return time(int(hour) % 24, int(minute))


def _days(fields: Fields, text: str, index: int) -> Sequence[int]:
    first, separator, last = text.lower().partition("-")
    if first not in DAYS or (separator and last not in DAYS):
        raise fields.wrong("days", "is not a day or a span of days such as mon-fri", index)
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]
