"""Spans of the day on some weekdays, and how files declare them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from zoneinfo import ZoneInfo

from embereye.process.fields import Fields

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))
CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d|24:00")


@dataclass(frozen=True)
class Hours:
    """A span of the day on some weekdays. If it ends before it begins, it ends on the next day."""

    days: frozenset[int]  # of its beginning; 0: Monday
    begin: time
    end: time

    def includes(self, at: datetime) -> bool:
        """True if `at`, in the time zone of the hours, is within the span."""
        today, now = at.weekday(), at.time()
        if self.begin < self.end:
            return today in self.days and self.begin <= now < self.end
        return (today in self.days and now >= self.begin) or ((today - 1) % 7 in self.days and now < self.end)


def read_days(fields: Fields) -> frozenset[int]:
    """Read the field `days`, a list of days and spans of days; empty if it is absent. DeclaredError."""
    return frozenset(day for index, text in enumerate(fields.texts("days")) for day in _days(fields, text, index))


def _days(fields: Fields, text: str, index: int) -> Iterable[int]:
    first, separator, last = text.lower().partition("-")
    if first not in DAYS or (separator and last not in DAYS):
        why = f"is not a day or a span of days. Use {', '.join(DAYS)}, or for example mon-fri."
        raise fields.wrong("days", why, index)
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]


def read_clock(fields: Fields, name: str) -> time:
    """Read a time of day such as 18:00; 24:00 is the end of the day. DeclaredError."""
    hour, minute = fields.text(name, pattern=CLOCK, form="a time of day. Use for example 18:00.").split(":")
    return time(int(hour) % 24, int(minute))


def read_time_zone(fields: Fields) -> ZoneInfo | None:
    """Read the field `timeZone`, a name such as Europe/Berlin; None if it is absent. DeclaredError."""
    name = fields.text("timeZone", "")
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError) as error:
        raise fields.wrong("timeZone", "is not a time zone such as Europe/Berlin") from error
