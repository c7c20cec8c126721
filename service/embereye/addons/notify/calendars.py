"""Rosters in calendars on the web: iCalendar files whose events name who is on duty.

Each calendar is read at an interval, in a thread, with limits of time and size and the guard that messages have. Its
latest readable text is stored with the hub's state, so a restart, a take-over or an outage of the calendar's server
changes nobody's duty. A calendar that is stale is a fault, and `otherwise` is then notified as well.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path

import requests

from embereye.addons.notify.channel import attempting, failure_of, install
from embereye.addons.notify.config import is_calendar_url
from embereye.addons.notify.options import Calendar, Duty, NotifyOptions
from embereye.addons.notify.rows import Rows
from embereye.process.condition import Condition
from embereye.process.extras import needed_by
from embereye.units import SECOND
from embereye.zone.sentences import duration

logger = logging.getLogger(__name__)
MAX_BYTES = 2_000_000
CONNECT_SECONDS, READ_SECONDS, TOTAL_SECONDS = 10.0, 10.0, 30.0
CHUNK_BYTES = 65_536
BEFORE, AHEAD = timedelta(days=1), timedelta(days=8)  # around the present, the time of which turns are known
DENSE = re.compile(r"FREQ=(SECONDLY|MINUTELY)", re.IGNORECASE)


class BadCalendarError(ValueError):
    """The calendar cannot be used; the message is for people, without its address."""


@dataclass(frozen=True)
class Turn:
    """A time in which routes are on duty. `routes` is empty if the event names nobody who has one."""

    begin: float  # Unix time
    end: float
    title: str
    routes: tuple[str, ...]


@dataclass
class _Roster:
    """The present knowledge of one duty."""

    text: str = ""
    read_ns: int = 0  # of the latest readable answer, on the hub's timeline; 0: never
    turns: Sequence[Turn] = ()
    why: str = ""  # the latest attempt failed
    failing: Condition = field(default_factory=lambda: Condition(logger, begin=logging.WARNING, first_only=True))


class Calendars:
    """The calendars of all duties. Call `restore`, then let `follow` run for each duty."""

    def __init__(
        self, options: NotifyOptions, rows: Rows, now_ns: Callable[[], int], local: Callable[[], datetime]
    ) -> None:
        """`now_ns` is the hub's timeline, and `local` the time in its time zone."""
        self.duties = {name: duty for name, duty in options.duties.items() if duty.calendar}
        self._rows = rows
        self._now_ns = now_ns
        self._local = local
        self._rosters = {name: _Roster() for name in self.duties}
        if self.duties:
            install()

    def restore(self) -> None:
        """Use what was stored. A calendar that is not declared any more is removed."""
        for name, document in list(self._rows.all("calendar")):
            if name in self.duties:
                self._rosters[name].text, self._rosters[name].read_ns = document["text"], document["read_ns"]
                self._expand_quietly(name)
            else:
                self._rows.put("calendar", name, None)

    def on_duty(self, duty: Duty, at: datetime) -> Sequence[str]:
        """The routes to those on duty at `at`."""
        roster = self._rosters.get(duty.name)
        if roster is None:
            return duty.routes(at)
        now = at.timestamp()
        routes = [route for turn in roster.turns if turn.begin <= now < turn.end for route in turn.routes]
        if not routes or self.is_stale(duty.name):
            routes += duty.otherwise
        return tuple(dict.fromkeys(routes))

    def is_stale(self, name: str) -> bool:
        """True if the calendar of the duty called `name` was not readable for too long."""
        roster, calendar = self._rosters[name], self.duties[name].calendar
        if calendar is None:
            return False
        if not roster.read_ns:
            return bool(roster.why)
        return self._now_ns() - roster.read_ns > calendar.stale_after * SECOND

    def problem(self, name: str) -> str:
        """A sentence if something is wrong with the calendar of the duty called `name`; '' otherwise."""
        roster = self._rosters.get(name)
        if roster is None:
            return ""
        if roster.why or self.is_stale(name):
            age = (
                f"was not read for {duration(self._now_ns() - roster.read_ns)}" if roster.read_ns else "was never read"
            )
            return f"Its calendar {age}: {roster.why or 'the hub has not asked yet'}"
        unknown = dict.fromkeys(turn.title for turn in roster.turns if not turn.routes)
        if unknown:
            return f"Its calendar names people without a route: {', '.join(list(unknown)[:3])}. Add them to people."
        return ""

    def problems(self, names: Collection[str]) -> list[str]:
        """A sentence for each stale calendar of the duties called `names`."""
        return [f"duty {name}: {self.problem(name)}" for name in self.duties if name in names and self.is_stale(name)]

    async def follow(self, name: str) -> None:
        """Read the calendar of one duty at its interval, until cancelled."""
        calendar = self.duties[name].calendar
        if calendar is None:
            return
        while True:
            await self._read(name, calendar)
            await asyncio.sleep(calendar.every)

    async def _read(self, name: str, calendar: Calendar) -> None:
        roster = self._rosters[name]
        try:
            text = await asyncio.to_thread(fetch, calendar)
            roster.turns = await asyncio.to_thread(turns, text, self._local(), calendar.people)
        except BadCalendarError as error:
            roster.why = str(error)
            roster.failing.fail(roster.why, "the calendar of duty %s cannot be read: %s", name, roster.why)
            await asyncio.to_thread(self._expand_quietly, name)  # time has passed
            return
        roster.text, roster.read_ns, roster.why = text, self._now_ns(), ""
        roster.failing.clear("the calendar of duty %s is read again", name)
        self._rows.put("calendar", name, {"text": text, "read_ns": roster.read_ns})
        self._rows.commit()

    def _expand_quietly(self, name: str) -> None:
        """Find the turns of the present days in the stored text."""
        roster, calendar = self._rosters[name], self.duties[name].calendar
        if roster.text and calendar:
            try:
                roster.turns = turns(roster.text, self._local(), calendar.people)
            except BadCalendarError as error:
                roster.why = roster.why or str(error)


def fetch(calendar: Calendar) -> str:
    """Read a calendar's text; BadCalendarError. It blocks for half a minute at most, and a name's resolution."""
    url = _address(calendar)
    started = time.monotonic()
    with attempting(calendar) as call:
        try:
            with requests.get(
                url, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS), headers={"Accept": "text/calendar"}
            ) as answer:
                answer.raise_for_status()
                data = b""
                for chunk in answer.iter_content(CHUNK_BYTES):
                    data += chunk
                    if len(data) > MAX_BYTES:
                        raise BadCalendarError(f"it is larger than {MAX_BYTES // 1_000_000} MB")
                    if time.monotonic() - started > TOTAL_SECONDS:
                        raise BadCalendarError(f"it was not complete within {TOTAL_SECONDS:g} s")
        except (requests.RequestException, OSError) as error:
            call.warning = call.warning or type(error).__name__
            raise BadCalendarError(failure_of(call, url, 0).why) from None  # the error has the address
    return data.decode("utf-8", errors="replace")


def _address(calendar: Calendar) -> str:
    url = calendar.url
    if calendar.url_file:
        url = _read(calendar.url_file)
    if not is_calendar_url(url):
        raise BadCalendarError(f"urlFile {calendar.url_file} does not have the address of a calendar")
    return re.sub(r"^webcal:", "https:", url)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCalendarError(f"urlFile {file} cannot be read: {getattr(error, 'strerror', '') or error}") from error


def check_library() -> None:
    """Raise UserError if the libraries for calendars are missing."""
    with needed_by("--notify: a duty's calendar", "two libraries", "notify"):
        import icalendar  # noqa: F401
        import recurring_ical_events  # noqa: F401


def turns(text: str, now: datetime, people: Mapping[str, str]) -> list[Turn]:
    """Find who is on duty around `now`, a time with a zone; times without a zone are in it. BadCalendarError.

    `people` has routes by name; an event belongs to all whose names are in its title.
    """
    import icalendar
    import recurring_ical_events

    if DENSE.search(text):
        raise BadCalendarError("an event recurs each second or minute, which no roster does")
    entries = []
    try:
        calendar = icalendar.Calendar.from_ical(text)
        for event in recurring_ical_events.of(calendar).between(now - BEFORE, now + AHEAD):
            if str(event.get("STATUS", "")).upper() != "CANCELLED":
                title = str(event.get("SUMMARY", ""))
                begin, end = _unix(event.start, now), _unix(event.end, now)
                entries.append(Turn(begin, end, title[:100], tuple(_routes(title, people.items()))))
    except Exception as error:  # the libraries raise many kinds
        raise BadCalendarError(f"it is not a calendar that can be read ({type(error).__name__})") from error
    return entries


def _unix(moment: date, now: datetime) -> float:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).timestamp()


def _routes(title: str, people: Iterable[tuple[str, str]]) -> Iterable[str]:
    routes = [route for name, route in people if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", title, re.IGNORECASE)]
    return dict.fromkeys(routes)
