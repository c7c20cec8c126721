"""The content of `notify.yaml`: routes to people, who is on duty, and escalations (pure)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from zoneinfo import ZoneInfo

from embereye.hub.roles import EVERYWHERE, Scope
from embereye.process.fields import Network
from embereye.process.timing.hours import Hours

PRE_ALARM, ALARM, CRITICAL, FAULT = "pre-alarm", "alarm", "critical", "fault"
OCCASIONS = (PRE_ALARM, ALARM, CRITICAL, FAULT)
FIRES = (ALARM, CRITICAL)
NORMAL = "normal"  # the profile of a zone without one
WEB_PUSH = "webpush://"


@dataclass(frozen=True)
class Quiet:
    """Hours in which a route gets only alarms."""

    hours: Hours
    reason: str = ""  # why alarms wait too; '': they do not
    by: str = ""  # the person who decided so

    def is_waiting(self, occasion: str, at: datetime) -> bool:
        """True if a message about `occasion` waits at `at`."""
        return self.hours.includes(at) and (occasion not in FIRES or bool(self.reason))


@dataclass(frozen=True)
class Canary:
    """A message at an interval that proves a route."""

    every: float  # seconds
    within: float  # seconds until it must be confirmed
    by_person: bool = True  # False: the service's acceptance confirms it


@dataclass(frozen=True)
class Route:
    """One way to one or several people."""

    name: str
    url: str = ""  # of Apprise, or WEB_PUSH
    url_file: Path | None = None  # instead of `url`; read again for each message
    still: bool = True  # attach the picture of the alarm
    acknowledge: bool = True  # add a link that acknowledges
    replies: bool = False  # by SMS, instead of the link: Twilio hands them to the hub
    allow: tuple[Network, ...] = ()  # addresses that may be called although they are, say, this machine's
    ca_file: Path | None = None  # the authorities of the service's certificate; None: the usual ones
    timeout: float = 10.0  # seconds for one attempt
    give_up: float = 3_600.0  # seconds after which an undelivered message becomes a dead letter
    quiet: tuple[Quiet, ...] = ()
    canary: Canary | None = None
    scope: Scope = EVERYWHERE  # it gets news about these zones only

    @property
    def is_web_push(self) -> bool:
        """True if it goes to browsers that subscribed in the console."""
        return self.url.startswith(WEB_PUSH)

    def is_waiting(self, occasion: str, at: datetime) -> bool:
        """True if a message about `occasion` waits for the end of quiet hours."""
        return any(quiet.is_waiting(occasion, at) for quiet in self.quiet)


@dataclass(frozen=True)
class Shift:
    """Routes to those who are on duty in some hours."""

    hours: Hours
    routes: Sequence[str]


@dataclass(frozen=True)
class Calendar:
    """A calendar on the web whose events name who is on duty."""

    url: str = ""
    url_file: Path | None = None  # instead of `url`; read again each time
    people: Mapping[str, str] = field(default_factory=dict)  # routes by what an event's title says
    every: float = 900.0  # seconds between two requests
    stale_after: float = 86_400.0  # seconds without a readable answer, after which it is a fault
    allow: tuple[Network, ...] = ()  # as those of a route
    ca_file: Path | None = None


@dataclass(frozen=True)
class Duty:
    """A roster of people on duty. Steps name it like a route."""

    name: str
    shifts: Sequence[Shift] = ()
    otherwise: Sequence[str] = ()  # routes when nobody is on duty
    calendar: Calendar | None = None  # instead of `shifts`

    def routes(self, at: datetime) -> Sequence[str]:
        """The routes to those on duty at `at`, in the hub's time zone."""
        on_duty = [route for shift in self.shifts if shift.hours.includes(at) for route in shift.routes]
        return tuple(dict.fromkeys(on_duty)) or self.otherwise

    @property
    def all_routes(self) -> frozenset[str]:
        """The routes to everybody who is ever on duty."""
        people = self.calendar.people.values() if self.calendar else ()
        return frozenset([*people, *(route for shift in self.shifts for route in shift.routes), *self.otherwise])


OnDuty = Callable[[Duty, datetime], Sequence[str]]  # the routes to those on duty at a time


@dataclass(frozen=True)
class Step:
    """One step of an escalation."""

    routes: Sequence[str]  # names of routes and of duties
    after: float = 0.0  # seconds since the beginning


@dataclass(frozen=True)
class Escalation:
    """Steps that follow until somebody acknowledges."""

    name: str
    occasions: frozenset[str]
    steps: Sequence[Step]
    profiles: frozenset[str] = frozenset()  # of zones, NORMAL for none; empty: all
    zones: Sequence[str] = ("*",)  # patterns of "zone" or "namespace/zone"; those with ! exclude
    repeat: float = 0.0  # seconds from the last step to the next round; 0: one round
    rounds: int = 0  # at most; 0: until somebody acknowledges
    follow_up: bool = True  # let the notified routes know when it is acknowledged or over

    def is_for(self, occasion: str, namespace: str, zone: str, profile: str = NORMAL) -> bool:
        """True if it reacts to `occasion` in that zone, which has `profile`. A critical alarm is an alarm too."""
        wanted = occasion in self.occasions or (occasion == CRITICAL and ALARM in self.occasions)
        fits = not self.profiles or profile in self.profiles
        return wanted and fits and self.has_zone(namespace, zone)

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if its patterns select that zone."""
        names = (zone, f"{namespace}/{zone}")

        def matches(pattern: str) -> bool:
            return any(fnmatchcase(name, pattern) for name in names)

        included = [pattern for pattern in self.zones if not pattern.startswith("!")]
        excluded = [pattern[1:] for pattern in self.zones if pattern.startswith("!")]
        return (not included or any(map(matches, included))) and not any(map(matches, excluded))


@dataclass(frozen=True)
class NotifyOptions:
    """Everything that `notify.yaml` declares."""

    routes: Mapping[str, Route]
    escalations: Sequence[Escalation]
    duties: Mapping[str, Duty] = field(default_factory=dict)
    zone_info: ZoneInfo | None = None  # of hours and of times in messages; None: the machine's
    public_url: str = ""  # address of the console for people, without a slash at its end; '': no links
    fold: float = 5.0  # seconds in which further news for a route joins one message
    link_life: float = 86_400.0  # seconds in which a link works

    def expand(self, names: Sequence[str], at: datetime, on_duty: OnDuty = Duty.routes) -> tuple[str, ...]:
        """Resolve names of routes and duties to routes at `at`, each one once; `on_duty` knows the calendars."""
        routes = [
            route for name in names for route in (on_duty(self.duties[name], at) if name in self.duties else (name,))
        ]
        return tuple(dict.fromkeys(routes))

    def routes_of(self, escalation: Escalation) -> frozenset[str]:
        """All routes that the steps of `escalation` can use."""
        names = {name for step in escalation.steps for name in step.routes}
        duties = [self.duties[name].all_routes for name in names & self.duties.keys()]
        return frozenset(names & self.routes.keys()).union(*duties)

    def is_for(self, route: str, namespace: str, zone: str) -> bool:
        """True if `route` is declared and not limited to other zones."""
        return route in self.routes and self.routes[route].scope.has_zone(namespace, zone)

    def local(self, wall_ns: int) -> datetime:
        """The time `wall_ns` in the hub's time zone."""
        return datetime.fromtimestamp(wall_ns / 1e9).astimezone(self.zone_info)
