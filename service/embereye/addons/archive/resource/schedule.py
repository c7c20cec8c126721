"""The times of a schedule in cron's form, as a Kubernetes CronJob reads it (pure).

Kubernetes starts the backups; from these times follow when the next one is due, and if one was missed.
Kubernetes uses robfig/cron 3. Python's libraries follow Debian's cron, which reads days and clock changes differently.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTE, HOUR, DAY = "[0-5]?[0-9]", "([01]?[0-9]|2[0-3])", "(0?[1-9]|[12][0-9]|3[01])"
MONTH, WEEKDAY = f"(0?[1-9]|1[0-2]|{'|'.join(MONTHS)})", f"([0-6]|{'|'.join(WEEKDAYS)})"
LONGEST = 366 * 8  # days without any 29 February: from 2096 to 2104


def _field(value: str) -> str:
    part = rf"([*]|{value}(-{value})?)(/[1-9][0-9]?)?"
    return f"{part}(,{part})*"


PATTERN = f"^{' '.join(map(_field, (MINUTE, HOUR, DAY, MONTH, WEEKDAY)))}$"


@dataclass(frozen=True)
class Schedule:
    """The minutes of a schedule, in its time zone."""

    minutes: Sequence[int]
    hours: Sequence[int]
    days: Sequence[int]
    months: Sequence[int]
    weekdays: Sequence[int]  # 0: Sunday
    either_day: bool  # a day in `days` or in `weekdays` counts, because both are restricted
    zone: ZoneInfo

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first time after `after`, in UTC; None if there is none, as on 30 February."""
        day = after.astimezone(self.zone).date()
        for _ in range(LONGEST):
            if self._includes(day):
                for clock in (time(hour, minute) for hour in self.hours for minute in self.minutes):
                    moment = datetime.combine(day, clock, self.zone).astimezone(UTC)
                    # When clocks are put forward, an hour does not exist.
                    if moment > after and moment.astimezone(self.zone).time() == clock:
                        return moment
            day += timedelta(days=1)
        return None

    def _includes(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        matches = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return any(matches) if self.either_day else all(matches)


def parse_schedule(text: str, zone: str) -> Schedule:
    """Parse a schedule that matches PATTERN; ValueError says what is wrong."""
    try:
        time_zone = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"spec.timeZone: {zone!r} is not a time zone such as Europe/Berlin") from error
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"spec.schedule: {text!r} is not a schedule such as '0 3 * * *'")
    fields = text.split(" ")
    limits = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 6, WEEKDAYS))
    minutes, hours, days, months, weekdays = (
        _numbers(field, *limit) for field, limit in zip(fields, limits, strict=True)
    )
    either_day = not _is_unrestricted(fields[2]) and not _is_unrestricted(fields[4])
    return Schedule(minutes, hours, days, months, weekdays, either_day, time_zone)


def _is_unrestricted(field: str) -> bool:
    return not {"*", "*/1"}.isdisjoint(field.split(","))


def _numbers(field: str, low: int, high: int, names: Sequence[str]) -> list[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start = low if first == "*" else _number(first, low, names)
        end = _number(last, low, names) if last else high if first == "*" or step else start
        if end < start:
            raise ValueError(f"spec.schedule: {part!r} ends before it begins")
        numbers.update(range(start, end + 1, int(step or 1)))
    return sorted(numbers)


def _number(text: str, low: int, names: Sequence[str]) -> int:
    return names.index(text) + low if text in names else int(text)
