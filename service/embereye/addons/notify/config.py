"""Reads `notify.yaml`, once, at the start.

Secrets are in other files, which are read for each message. Paths of files are relative to the folder of `notify.yaml`.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from embereye.addons.notify.options import (
    ALARM,
    FAULT,
    FIRES,
    NORMAL,
    OCCASIONS,
    PRE_ALARM,
    WEB_PUSH,
    Calendar,
    Canary,
    Duty,
    Escalation,
    NotifyOptions,
    Quiet,
    Route,
    Shift,
    Step,
)
from embereye.hub.refusals import InvalidError
from embereye.hub.roles import EVERYWHERE, Scope, read_scope
from embereye.process.fields import Fields, shown_duration
from embereye.process.timing.hours import DAYS, EVERY_DAY, Hours, read_clock, read_days, read_time_zone
from embereye_cli.declared import parse_declared, read_declared

OPTION = "--notify"
TWILIO = "twilio://"
MAX_ROUTES = 32
MAX_DUTIES = 64
MAX_SHIFTS = 1_000
MAX_ESCALATIONS = 64
MAX_STEPS = 20
MAX_QUIET = 100
DAY = 86_400.0
REPEAT_SECONDS = 600.0  # of the escalation of a file without escalations
FAULT_SECONDS = 300.0  # how long it waits for a fault to clear
LOCAL_PROGRAMS = {"dbus", "kde", "glib", "gnome", "macosx", "windows", "syslog"}  # they reach nobody from a hub
USUAL = Route("")


def read_config(path: Path) -> NotifyOptions:
    """Read the file at `path`; UserError names the line and what is wrong."""
    return read_declared(path, OPTION, partial(_options, folder=path.parent))


def parse_config(text: str, folder: Path = Path()) -> NotifyOptions:
    """Read a file's content, whose relative paths are in `folder`; DeclaredError names the line and what is wrong."""
    return parse_declared(text, partial(_options, folder=folder))


def _options(fields: Fields, folder: Path) -> NotifyOptions:
    if "routes" not in fields:
        raise fields.missing("routes")
    routes = fields.unique("routes", partial(_route, folder=folder), most=MAX_ROUTES)
    if not routes:
        raise fields.error("routes", "it is empty, so nobody is notified. Declare at least one route.")
    duties = fields.unique("duty", partial(_duty, routes=tuple(routes), folder=folder), most=MAX_DUTIES)
    for name in duties.keys() & routes.keys():
        raise fields.error("duty", f'"{name}" is a route too. Give it another name.')
    escalations = _usual_escalations(tuple(routes))
    if "escalations" in fields:
        read = partial(_escalation, known=(*routes, *duties))
        escalations = tuple(fields.unique("escalations", read, most=MAX_ESCALATIONS).values())
        usual = [each for each in escalations if not each.profiles or NORMAL in each.profiles]
        if not any(occasion in each.occasions for each in usual for occasion in FIRES):
            why = "none of them is for alarm in a zone without a profile: nobody would hear of a fire"
            raise fields.error("escalations", why)
    public_url = _public_url(fields)
    if not public_url and any(route.replies for route in routes.values()):
        raise fields.missing("publicUrl", "Twilio hands replies to it.")
    return NotifyOptions(
        routes=routes,
        escalations=escalations,
        duties=duties,
        zone_info=read_time_zone(fields),
        public_url=public_url,
        fold=fields.duration("fold", NotifyOptions.fold, 0, 300),
        link_life=fields.duration("linkLife", NotifyOptions.link_life, 60, 7 * DAY),
    )


def _usual_escalations(routes: Sequence[str]) -> tuple[Escalation, ...]:
    """The escalations of a file without any: everybody, at once."""
    return (
        Escalation("alarms", frozenset({ALARM}), (Step(routes),), repeat=REPEAT_SECONDS),
        Escalation("pre-alarms", frozenset({PRE_ALARM}), (Step(routes),)),
        Escalation("faults", frozenset({FAULT}), (Step(routes, FAULT_SECONDS),)),
    )


def _public_url(fields: Fields) -> str:
    url = fields.text("publicUrl", "")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment
    except ValueError:
        usable = False
    if url and not usable:
        raise fields.wrong("publicUrl", "is not the console's address, such as https://fire.example.com")
    return url.rstrip("/")


def _route(fields: Fields, folder: Path) -> Route:
    name = fields.name()
    url, url_file, ca_file = fields.text("url", "").strip(), fields.file("urlFile"), fields.file("caFile")
    if bool(url) == bool(url_file):
        raise fields.error("", "give either url or urlFile")
    if url:
        _check_scheme(fields, url)
        if fields.flag("replies") and not url.startswith(TWILIO):
            raise fields.error("replies", f"only messages by {TWILIO} can be answered")
    return Route(
        name=name,
        url=url,
        url_file=folder / url_file if url_file else None,
        still=fields.flag("still", USUAL.still),
        acknowledge=fields.flag("acknowledge", USUAL.acknowledge),
        replies=fields.flag("replies"),
        allow=fields.networks("allow"),
        ca_file=folder / ca_file if ca_file else None,
        timeout=fields.duration("timeout", USUAL.timeout, 1, 60),
        give_up=fields.duration("giveUpAfter", USUAL.give_up, 10, 30 * DAY),
        quiet=tuple(fields.items("quiet", _quiet, most=MAX_QUIET)),
        canary=fields.part("canary", _canary),
        scope=_scope(fields),
    )


def _scope(fields: Fields) -> Scope:
    """The zones that a route is limited to."""
    if "zones" not in fields:
        return EVERYWHERE
    patterns = fields.texts("zones")
    if not patterns:
        raise fields.error("zones", "it is empty. Leave it out for all zones.")
    try:
        return read_scope(patterns)
    except InvalidError as error:
        raise fields.error("zones", str(error)) from error


def _check_scheme(fields: Fields, url: str) -> None:
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[a-zA-Z0-9+.-]+", scheme):
        raise fields.error("url", "it is not an address of Apprise such as ntfys://TOPIC")
    if scheme.lower() in LOCAL_PROGRAMS:
        raise fields.error("url", f"{scheme}:// shows messages on the hub's machine only")


def check_secret_url(url: str) -> None:
    """Raise ValueError, without the secret, if `url` cannot be an address of Apprise."""
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[a-zA-Z0-9+.-]+", scheme):
        raise ValueError("its content is not an address of Apprise such as ntfys://TOPIC")
    if scheme.lower() in LOCAL_PROGRAMS or url.startswith(WEB_PUSH):
        raise ValueError(f"{scheme}:// cannot be used here")


def _quiet(fields: Fields) -> Quiet:
    hours = _hours(fields)
    reason, by = fields.part("alarmsToo", _consent) or ("", "")
    return Quiet(hours, reason, by)


def _consent(fields: Fields) -> tuple[str, str]:
    """The reason why alarms wait too, and the person who decided so."""
    reason, by = fields.text("reason").strip(), fields.text("by").strip()
    for name, value in (("reason", reason), ("by", by)):
        if not value:
            raise fields.error(name, "it is empty. Alarms wait only if a person says why.")
    return reason, by


def _canary(fields: Fields) -> Canary:
    every = fields.duration("every", ..., 60, 30 * DAY)
    within = fields.duration("within", min(every, 3_600.0), 10, 30 * DAY)
    if within > every:
        raise fields.error("within", f"it is longer than every ({shown_duration(every)})")
    return Canary(every, within, fields.choice("confirm", ("person", "service"), "person") == "person")


def _hours(fields: Fields) -> Hours:
    days = read_days(fields) if "days" in fields else EVERY_DAY
    return Hours(days, read_clock(fields, "from"), read_clock(fields, "to"))


def _names(fields: Fields, known: Sequence[str], name: str = "routes", kind: str = "route") -> tuple[str, ...]:
    names = fields.texts(name, ...)
    if not names:
        raise fields.error(name, "it is empty")
    for index, each in enumerate(names):
        if each not in known:
            raise fields.wrong(name, f"is no {kind}. Declared are {', '.join(known)}.", index)
    return tuple(names)


def _duty(fields: Fields, routes: Sequence[str], folder: Path) -> Duty:
    name = fields.name()
    if ("shifts" in fields) == ("calendar" in fields):
        raise fields.error("", "give either shifts or calendar")
    shifts = fields.items("shifts", lambda shift: Shift(_hours(shift), _names(shift, routes)), most=MAX_SHIFTS)
    calendar = fields.part("calendar", partial(_calendar, routes=routes, folder=folder))
    otherwise = _names(fields, routes, "otherwise") if "otherwise" in fields else ()
    if calendar and not otherwise:
        raise fields.error("", "nobody is on duty where the calendar has no event. Add otherwise: [ROUTE].")
    if not otherwise and (gap := _gap(shifts)):
        raise fields.error("", f"nobody is on duty on {gap}. Add a shift, or otherwise: [ROUTE].")
    return Duty(name, shifts, otherwise, calendar)


def _calendar(fields: Fields, routes: Sequence[str], folder: Path) -> Calendar:
    url, url_file, ca_file = fields.text("url", "").strip(), fields.file("urlFile"), fields.file("caFile")
    if bool(url) == bool(url_file):
        raise fields.error("", "give either url or urlFile")
    if url and not is_calendar_url(url):
        raise fields.error("url", "it is not the address of a calendar, such as https://example.com/duty.ics")
    people = {name: name for name in routes}
    for person, name in fields.mapping("people").items():
        if name not in routes:
            raise fields.error(f"people.{person}", f'"{name}" is no route. Declared are {", ".join(routes)}.')
        people[person] = name
    return Calendar(
        url=url,
        url_file=folder / url_file if url_file else None,
        people=people,
        every=fields.duration("every", Calendar.every, 60, DAY),
        stale_after=fields.duration("staleAfter", Calendar.stale_after, 60, 30 * DAY),
        allow=fields.networks("allow"),
        ca_file=folder / ca_file if ca_file else None,
    )


def is_calendar_url(url: str) -> bool:
    """True if `url` can be a calendar's address."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https", "webcal"} and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


def _gap(shifts: Sequence[Shift]) -> str:
    """The first minute of the week without a shift; '' if there is none."""
    monday = datetime(2024, 1, 1)  # a Monday
    for minute in range(7 * 24 * 60):
        at = monday + timedelta(minutes=minute)
        if not any(shift.hours.includes(at) for shift in shifts):
            return f"{DAYS[at.weekday()]} at {at:%H:%M}"
    return ""


def _escalation(fields: Fields, known: Sequence[str]) -> Escalation:
    occasions = frozenset(fields.choices("for", OCCASIONS, ...))
    if not occasions:
        raise fields.error("for", f"it is empty. Use {', '.join(OCCASIONS)}.")
    steps = fields.items("steps", partial(_step, known=known), most=MAX_STEPS, least=1)
    for number in range(1, len(steps)):
        if steps[number].after < steps[number - 1].after:
            raise fields.error("steps", "its after is shorter than that of the step before it", number)
    repeat, rounds = fields.part("repeat", _repeat) or (0.0, 1)
    return Escalation(
        name=fields.name(),
        occasions=occasions,
        steps=tuple(steps),
        zones=tuple(fields.texts("zones", ("*",))),
        profiles=frozenset(fields.texts("profiles")),
        repeat=repeat,
        rounds=rounds,
        follow_up=fields.flag("followUp", True),
    )


def _repeat(fields: Fields) -> tuple[float, int]:
    """The seconds between two rounds, and their number; 0: until somebody acknowledges."""
    times = fields.whole("times", 1, 10_000, 0)
    return fields.duration("every", ..., 10, DAY), times + 1 if times else 0


def _step(fields: Fields, known: Sequence[str]) -> Step:
    return Step(_names(fields, known, kind="route or duty"), fields.duration("after", 0.0, 0, DAY))
