"""Reads `notify.yaml`. Each error names the line, the key and the remedy.

The file is YAML or JSON. It is read once, at the start; secrets are in other files, which are read for each message.
Paths of files are relative to its folder.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import yaml

from embereye.addons.notify.options import (
    ALARM,
    DAYS,
    FAULT,
    FIRES,
    OCCASIONS,
    PRE_ALARM,
    WEB_PUSH,
    Canary,
    Duty,
    Escalation,
    Hours,
    Network,
    NotifyOptions,
    Quiet,
    Route,
    Shift,
    Step,
)
from embereye.process.lifecycle import UserError

T = TypeVar("T")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|h|d)")
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MAX_ROUTES = 32
MAX_ESCALATIONS = 64
MAX_STEPS = 20
DAY = 86_400.0
EVERY_DAY = frozenset(range(7))
REPEAT_SECONDS = 600.0  # of the escalation of a file without escalations
FAULT_SECONDS = 300.0  # how long it waits for a fault to clear
LOCAL_PROGRAMS = {"dbus", "kde", "glib", "gnome", "macosx", "windows", "syslog"}  # they reach nobody from a hub


class WrongError(ValueError):
    """The file is wrong; the message names line and key."""


@dataclass(frozen=True)
class Entry:
    """A value of the file, with its place."""

    node: yaml.Node
    path: str

    @property
    def line(self) -> int:
        """Its line, from 1."""
        return int(self.node.start_mark.line) + 1

    def wrong(self, sentence: str) -> NoReturn:
        """Raise WrongError for this value."""
        raise WrongError(f"line {self.line}: {self.path}: {sentence}" if self.path else f"line {self.line}: {sentence}")

    def fields(self, *known: str, required: Sequence[str] = ()) -> dict[str, "Entry"]:
        """The values of a mapping by their keys; WrongError for an unknown or missing key."""
        if not isinstance(self.node, yaml.MappingNode):
            self.wrong(f"{self.shown} is not a mapping with {', '.join(known)}")
        entries: dict[str, Entry] = {}
        for key, value in self.node.value:
            name = str(key.value)
            entry = Entry(value, f"{self.path}.{name}" if self.path else name)
            if name not in known:
                Entry(key, entry.path).wrong(f"there is no such key. Use {', '.join(known)}.")
            if name in entries:
                Entry(key, entry.path).wrong("it is given twice")
            entries[name] = entry
        for name in required:
            if name not in entries:
                self.wrong(f"{name} is missing")
        return {name: entry for name, entry in entries.items() if entry.node.tag != "tag:yaml.org,2002:null"}

    def items(self) -> list["Entry"]:
        """The values of a list; a single value counts as a list of one."""
        if isinstance(self.node, yaml.SequenceNode):
            return [Entry(node, f"{self.path}[{number}]") for number, node in enumerate(self.node.value)]
        if not isinstance(self.node, yaml.ScalarNode):
            self.wrong(f"{self.shown} is not a list")
        return [self]

    def listed(self) -> list["Entry"]:
        """The values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.wrong(f"{self.shown} is not a list")
        return self.items()

    @property
    def shown(self) -> str:
        """The value for messages."""
        return f'"{str(self.node.value)[:60]}"' if isinstance(self.node, yaml.ScalarNode) else "this"

    def text(self) -> str:
        """A scalar as text."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.wrong("it is not a text")
        return str(self.node.value)

    def name(self) -> str:
        """A name of 1 to 63 lower-case letters, digits and dashes."""
        if not NAME.fullmatch(text := self.text()):
            self.wrong(f"{self.shown} is not a name. Use 1 to 63 lower-case letters, digits and dashes.")
        return text

    def choice(self, among: Sequence[str]) -> str:
        """One of `among`."""
        if (text := self.text()) not in among:
            self.wrong(f"{self.shown} is not one of {', '.join(among)}")
        return text

    def flag(self) -> bool:
        """True or false."""
        if self.node.tag != "tag:yaml.org,2002:bool":
            self.wrong(f"{self.shown} is not true or false")
        return self.text().lower() in {"true", "yes", "on"}

    def number(self, least: int, most: int) -> int:
        """A whole number."""
        text = self.text()
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
            self.wrong(f"{self.shown} is not a whole number from {least} to {most}")
        return int(text)

    def seconds(self, least: float, most: float) -> float:
        """A duration such as 30s, 5m or 24h, in seconds."""
        match = DURATION.fullmatch(self.text().strip())
        if not match:
            self.wrong(f"{self.shown} is not a duration. Use for example 30s, 5m or 24h.")
        seconds = float(match[1]) * UNITS[match[2]]
        if not least <= seconds <= most:
            self.wrong(f"{self.shown} is not between {_duration(least)} and {_duration(most)}")
        return seconds

    def clock(self) -> time:
        """A time of day such as 18:00; 24:00 is the end of the day."""
        text = self.text()
        if text == "24:00":
            return time(0)
        match = CLOCK.fullmatch(text)
        if not match:
            self.wrong(f"{self.shown} is not a time of day. Use for example 18:00.")
        return time(int(match[1]), int(match[2]))


def _duration(seconds: float) -> str:
    unit = next((unit for unit in "dhm" if seconds >= UNITS[unit] and seconds % UNITS[unit] == 0), "s")
    return f"{seconds / UNITS[unit]:g}{unit}"


def _unique(entries: Iterable[tuple[Entry, T]], name_of: Callable[[T], str]) -> dict[str, T]:
    named: dict[str, T] = {}
    for entry, value in entries:
        if name_of(value) in named:
            entry.wrong(f'the name "{name_of(value)}" is given twice')
        named[name_of(value)] = value
    return named


def read_config(path: Path) -> NotifyOptions:
    """Read the file at `path`; UserError names the line and what is wrong."""
    try:
        return parse_config(path.read_text(encoding="utf-8"), path.parent)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--notify {path}: {getattr(error, 'strerror', None) or error}") from error
    except WrongError as error:
        raise UserError(f"--notify {path}: {error}") from error


def parse_config(text: str, folder: Path = Path()) -> NotifyOptions:
    """Read a file's content, whose relative paths are in `folder`; WrongError."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise WrongError(f"line {line}: it is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise WrongError(f"it is not YAML: {error}") from error
    if node is None:
        raise WrongError("the file is empty. Declare at least routes.")
    fields = Entry(node, "").fields(
        "publicUrl", "timeZone", "routes", "duty", "escalations", "fold", "linkLife", required=["routes"]
    )  # fmt: skip
    routes = _unique(((entry, _route(entry, folder)) for entry in fields["routes"].listed()), lambda route: route.name)
    if not routes:
        fields["routes"].wrong("it is empty, so nobody is notified. Declare at least one route.")
    if len(routes) > MAX_ROUTES:
        fields["routes"].wrong(f"{len(routes)} are too many. Declare at most {MAX_ROUTES}.")
    duties = _unique(
        ((entry, _duty(entry, routes)) for entry in fields["duty"].listed()) if "duty" in fields else (),
        lambda duty: duty.name,
    )
    for name in duties.keys() & routes.keys():
        fields["duty"].wrong(f'"{name}" is a route too. Give it another name.')
    known = {**dict.fromkeys(routes, ""), **dict.fromkeys(duties, "")}
    if "escalations" in fields:
        listed = fields["escalations"].listed()
        if len(listed) > MAX_ESCALATIONS:
            fields["escalations"].wrong(f"{len(listed)} are too many. Declare at most {MAX_ESCALATIONS}.")
        escalations = _unique(((entry, _escalation(entry, known)) for entry in listed), lambda each: each.name)
        if not any(occasion in escalation.occasions for escalation in escalations.values() for occasion in FIRES):
            fields["escalations"].wrong("none of them is for alarm: nobody would hear of a fire")
    else:
        escalations = {escalation.name: escalation for escalation in _usual_escalations(tuple(routes))}
    return NotifyOptions(
        routes=routes,
        escalations=tuple(escalations.values()),
        duties=duties,
        zone_info=_zone_info(fields["timeZone"]) if "timeZone" in fields else None,
        public_url=_public_url(fields["publicUrl"]) if "publicUrl" in fields else "",
        fold=fields["fold"].seconds(0, 300) if "fold" in fields else NotifyOptions.fold,
        link_life=fields["linkLife"].seconds(60, 7 * DAY) if "linkLife" in fields else NotifyOptions.link_life,
    )


def _usual_escalations(routes: Sequence[str]) -> Iterable[Escalation]:
    """The escalations of a file without any: everybody, at once."""
    yield Escalation("alarms", frozenset({ALARM}), (Step(routes),), repeat=REPEAT_SECONDS)
    yield Escalation("pre-alarms", frozenset({PRE_ALARM}), (Step(routes),))
    yield Escalation("faults", frozenset({FAULT}), (Step(routes, FAULT_SECONDS),))


def _zone_info(entry: Entry) -> ZoneInfo:
    try:
        return ZoneInfo(entry.text())
    except (KeyError, ValueError, OSError):
        entry.wrong(f"{entry.shown} is not a time zone such as Europe/Berlin")


def _public_url(entry: Entry) -> str:
    url = entry.text()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
    except ValueError:
        usable = False
    if not usable:
        entry.wrong(f"{entry.shown} is not the console's address, such as https://fire.example.com")
    return url.rstrip("/")


def _route(entry: Entry, folder: Path) -> Route:
    fields = entry.fields(
        "name", "url", "urlFile", "still", "acknowledge", "allow", "caFile", "timeout", "giveUpAfter", "quiet",
        "canary", required=["name"],
    )  # fmt: skip
    if ("url" in fields) == ("urlFile" in fields):
        entry.wrong("give either url or urlFile")
    url = fields["url"].text().strip() if "url" in fields else ""
    if url:
        _check_scheme(fields["url"], url)
    usual = Route("")
    return Route(
        name=fields["name"].name(),
        url=url,
        url_file=folder / fields["urlFile"].text() if "urlFile" in fields else None,
        still=fields["still"].flag() if "still" in fields else usual.still,
        acknowledge=fields["acknowledge"].flag() if "acknowledge" in fields else usual.acknowledge,
        allow=tuple(map(_network, fields["allow"].items())) if "allow" in fields else (),
        ca_file=folder / fields["caFile"].text() if "caFile" in fields else None,
        timeout=fields["timeout"].seconds(1, 60) if "timeout" in fields else usual.timeout,
        give_up=fields["giveUpAfter"].seconds(10, 30 * DAY) if "giveUpAfter" in fields else usual.give_up,
        quiet=tuple(map(_quiet, fields["quiet"].listed())) if "quiet" in fields else (),
        canary=_canary(fields["canary"]) if "canary" in fields else None,
    )


def _check_scheme(entry: Entry, url: str) -> None:
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[a-zA-Z0-9+.-]+", scheme):
        raise WrongError(f"line {entry.line}: {entry.path}: it is not an address of Apprise such as ntfys://TOPIC")
    if scheme.lower() in LOCAL_PROGRAMS:
        raise WrongError(f"line {entry.line}: {entry.path}: {scheme}:// shows messages on the hub's machine only")


def check_secret_url(url: str) -> None:
    """Raise ValueError, without the secret, if `url` cannot be an address of Apprise."""
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[a-zA-Z0-9+.-]+", scheme):
        raise ValueError("its content is not an address of Apprise such as ntfys://TOPIC")
    if scheme.lower() in LOCAL_PROGRAMS or url.startswith(WEB_PUSH):
        raise ValueError(f"{scheme}:// cannot be used here")


def _network(entry: Entry) -> Network:
    try:
        return ipaddress.ip_network(entry.text())
    except ValueError as error:
        entry.wrong(f"{entry.shown} is not a network such as 10.0.0.0/8 ({error})")


def _quiet(entry: Entry) -> Quiet:
    fields = entry.fields("days", "from", "to", "alarmsToo", required=["from", "to"])
    hours = _hours(fields)
    if "alarmsToo" not in fields:
        return Quiet(hours)
    why = fields["alarmsToo"].fields("reason", "by", required=["reason", "by"])
    for each in why.values():
        if not each.text().strip():
            each.wrong("it is empty. Alarms wait only if a person says why.")
    if why.keys() != {"reason", "by"}:
        fields["alarmsToo"].wrong("alarms wait only if a person says why: give reason and by")
    return Quiet(hours, why["reason"].text().strip(), why["by"].text().strip())


def _canary(entry: Entry) -> Canary:
    fields = entry.fields("every", "within", "confirm", required=["every"])
    every = fields["every"].seconds(60, 30 * DAY)
    within = fields["within"].seconds(10, 30 * DAY) if "within" in fields else min(every, 3_600.0)
    if within > every:
        fields["within"].wrong(f"it is longer than every ({_duration(every)})")
    confirm = fields["confirm"].choice(["person", "service"]) if "confirm" in fields else "person"
    return Canary(every, within, confirm == "person")


def _hours(fields: Mapping[str, Entry]) -> Hours:
    days = frozenset(day for entry in fields["days"].items() for day in _days(entry)) if "days" in fields else EVERY_DAY
    begin, end = fields["from"].clock(), fields["to"].clock()
    return Hours(days, begin, end)


def _days(entry: Entry) -> Iterable[int]:
    first, separator, last = entry.text().lower().partition("-")
    if first not in DAYS or (separator and last not in DAYS):
        entry.wrong(f"{entry.shown} is not a day or a span of days. Use {', '.join(DAYS)}, or for example mon-fri.")
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]


def _names(entry: Entry, known: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    names = tuple(each.text() for each in entry.items())
    if not names:
        entry.wrong("it is empty")
    for each in entry.items():
        if each.text() not in known:
            each.wrong(f"{each.shown} is no {kind}. Declared are {', '.join(known)}.")
    return names


def _duty(entry: Entry, routes: Mapping[str, Route]) -> Duty:
    fields = entry.fields("name", "shifts", "otherwise", required=["name", "shifts"])
    shifts = []
    for each in fields["shifts"].listed():
        shift = each.fields("days", "from", "to", "routes", required=["from", "to", "routes"])
        shifts.append(Shift(_hours(shift), _names(shift["routes"], routes, "route")))
    otherwise = _names(fields["otherwise"], routes, "route") if "otherwise" in fields else ()
    if not otherwise and (gap := _gap(shifts)):
        entry.wrong(f"nobody is on duty on {gap}. Add a shift, or otherwise: [ROUTE].")
    return Duty(fields["name"].name(), shifts, otherwise)


def _gap(shifts: Sequence[Shift]) -> str:
    """The first minute of the week without a shift; '' if there is none."""
    from datetime import datetime, timedelta

    monday = datetime(2024, 1, 1)  # a Monday
    for minute in range(7 * 24 * 60):
        at = monday + timedelta(minutes=minute)
        if not any(shift.hours.includes(at) for shift in shifts):
            return f"{DAYS[at.weekday()]} at {at:%H:%M}"
    return ""


def _escalation(entry: Entry, known: Mapping[str, Any]) -> Escalation:
    fields = entry.fields("name", "for", "zones", "steps", "repeat", "followUp", required=["name", "for", "steps"])
    occasions = frozenset(each.choice(OCCASIONS) for each in fields["for"].items())
    if not occasions:
        fields["for"].wrong(f"it is empty. Use {', '.join(OCCASIONS)}.")
    steps = [_step(each, known) for each in fields["steps"].listed()]
    if not 1 <= len(steps) <= MAX_STEPS:
        fields["steps"].wrong(f"{len(steps)} steps are not from 1 to {MAX_STEPS}")
    for number in range(1, len(steps)):
        if steps[number].after < steps[number - 1].after:
            fields["steps"].listed()[number].wrong("its after is shorter than that of the step before it")
    repeat, rounds = 0.0, 1
    if "repeat" in fields:
        again = fields["repeat"].fields("every", "times", required=["every"])
        repeat = again["every"].seconds(10, DAY)
        rounds = again["times"].number(1, 10_000) + 1 if "times" in again else 0
    return Escalation(
        name=fields["name"].name(),
        occasions=occasions,
        steps=tuple(steps),
        zones=tuple(each.text() for each in fields["zones"].items()) if "zones" in fields else ("*",),
        repeat=repeat,
        rounds=rounds,
        follow_up=fields["followUp"].flag() if "followUp" in fields else True,
    )


def _step(entry: Entry, known: Mapping[str, Any]) -> Step:
    fields = entry.fields("routes", "after", required=["routes"])
    after = fields["after"].seconds(0, DAY) if "after" in fields else 0.0
    return Step(_names(fields["routes"], known, "route or duty"), after)
