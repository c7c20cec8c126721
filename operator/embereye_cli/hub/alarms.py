"""List zones and fetch clips; watch, acknowledge, reset and silence alarms."""

import asyncio
import contextlib
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from rich.text import Text

from embereye.client.alarms import ALIVE_MS, SilentError, listen
from embereye.levels import ZoneState
from embereye.process import lifecycle
from embereye.process.condition import Condition
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.process.telemetry.logs import visible
from embereye.process.timing.backoff import Backoff
from embereye.units import DAY, SECOND, counted
from embereye.v1.alarms_pb2 import (
    ActionRequest,
    AlarmEvent,
    BeginSilenceRequest,
    EndSilenceRequest,
    FalseAlarm,
    FalseAlarmsRequest,
    HistoryRequest,
    MarkFalseRequest,
    Silence,
    SilencesRequest,
    SubscribeRequest,
    Zone,
    ZonesRequest,
)
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.zone.false_alarms import summary
from embereye.zone.unstored import Unstored
from embereye_cli.hub.clips import ClipCommands
from embereye_cli.hub.connection import add_hub_options, hub_connection
from embereye_cli.hub.errors import hub_error
from embereye_cli.hub.selection_options import add_selection_options, moment, selection_of
from embereye_cli.hub.zones import PAGE, TIMEOUT, check_zones, find_alarm, find_zone
from embereye_cli.options import Option
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import Terminal, local_time, print_json, print_messages, whole_column
from embereye_cli.values import count, cursor, duration

if TYPE_CHECKING:
    from embereye.v1.alarms_pb2_grpc import AlarmsAsyncStub

# Errors that another attempt does not change; NOT_FOUND: there is no subscription of that name.
FINAL = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
}
# action → the command that lists what can be named in it
LISTERS = {
    "watch": "embereye subscriptions list",
    "false": "embereye alarms --json history",
    "end-silence": "embereye alarms silences",
    "clip": "embereye alarms clips",
}
LISTED = 3  # dark devices of one zone that the table names
STYLES = {
    ZoneState.NORMAL: "green",
    ZoneState.PRE_ALARM: "bold yellow",
    ZoneState.ALARM: "bold white on red",
    ZoneState.ACKNOWLEDGED: "bold dark_orange",
    ZoneState.RESTORED: "bold blue",
}
EVENT_WORDS = {
    AlarmEvent.TYPE_FAULT: ("fault", "bold yellow"),
    AlarmEvent.TYPE_FAULT_CLEARED: ("fault cleared", "green"),
    AlarmEvent.TYPE_TEST: ("test", "magenta"),
    AlarmEvent.TYPE_EVIDENCE: ("sign", "dim"),
    AlarmEvent.TYPE_FALSE_ALARM: ("false alarm", "magenta"),
    AlarmEvent.TYPE_SILENCE: ("silence", "magenta"),
}
ZONE_COLUMNS = ("Zone", "State", "Since", "Watched", "Why")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list all zones and their state")
    watch = actions.add_parser("watch", help="print events as they happen (default)")
    watch.add_argument("--cursor", type=cursor, default=None, help="start after this event; 0: at the oldest retained")
    history = actions.add_parser("history", help="list past events")
    history.add_argument("--after", type=cursor, default=0, help="only events after this cursor")
    history.add_argument("--before", type=cursor, default=0, help="only events before this cursor")
    history.add_argument("--since", type=moment, default=0, metavar="TIME",
                         help="only events from this time on: 90m or 2d ago, or 2026-11-22T17:50")  # fmt: skip
    history.add_argument("--until", type=moment, default=0, metavar="TIME", help="only events before this time")
    history.add_argument("--newest", action="store_true", help="list the newest events instead of the oldest")
    history.add_argument("--limit", type=count, default=100, help="largest number of events (%(default)s)")
    for action in (watch, history):
        add_selection_options(action)
    watch.add_argument("--subscription", default="", metavar="NAME", help="use this saved filter instead")
    clips = actions.add_parser("clips", help="list the clips and stills of an alarm, or the newest ones")
    clips.add_argument("alarm", nargs="?", default="", help="a zone with an open alarm, or the id of an alarm")
    clips.add_argument("--limit", type=count, default=20, help="largest number of clips, up to 1000 (%(default)s)")
    clip = actions.add_parser("clip", help="download one clip or still")
    clip.add_argument("clip", metavar="CLIP", help="its name in the list of clips, or the first 8 digits of it")
    clip.add_argument("--output", type=Path, default=None, metavar="FILE",
                      help="file or folder to write to; default: DEVICE-TIME.mkv or .jpg in this folder")  # fmt: skip
    false = actions.add_parser("false", help="mark an alarm as false: similar signs then need more evidence")
    false.add_argument("alarm", help="a zone with an open alarm, or the id of an alarm")
    false.add_argument("--reason", default="", help="what looked like a fire")
    false.add_argument("--take-back", action="store_true", help="remove the mark: it was no false alarm")
    actions.add_parser("false-alarms", help="list the alarms that are marked as false")
    silence = actions.add_parser("silence", help="pause notifications about a zone or a device")
    silence.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    silence.add_argument("--device", default="", metavar="ID", help="only this device of the zone")
    silence.add_argument("--for", dest="span", type=duration, required=True, metavar="DURATION",
                         help="15m or 4h, up to 24h")  # fmt: skip
    silence.add_argument("--reason", required=True, help="why notifications are paused")
    end_silence = actions.add_parser("end-silence", help="end a silence early")
    end_silence.add_argument("silence", metavar="ID", help="its id in the list of silences")
    actions.add_parser("silences", help="list silences: zone, person, reason and end")
    acknowledge = actions.add_parser("ack", help="acknowledge the alarm of a zone")
    reset = actions.add_parser("reset", help="reset a zone after its alarm was acknowledged")
    for action in (acknowledge, reset):
        action.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
        action.add_argument("--note", default="", help="text for the history")
    for action in (false, silence, end_silence, acknowledge, reset):
        Option("--who", "your name, if several people share a token; recorded beside the token's name").add_to(action)
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; `watch` runs until interrupted."""
    return lifecycle.run(lambda stop: _Client(arguments).run(stop))


class _Client:
    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self._json: bool = arguments.json
        self._console = Terminal()
        self._hub = hub_connection(arguments)
        self._unstored = Unstored()
        self._cursor: int | None = getattr(arguments, "cursor", None)  # of the newest event that was shown

    async def run(self, stop: asyncio.Event) -> int:
        action = self._arguments.action or "watch"
        perform = self._watch() if action == "watch" else self._perform(action)
        async with beside(perform, name=action) as performing, beside(stop.wait(), name="stop") as stopping:
            await asyncio.wait((performing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if performing.done():
                await performing
                return 0
        return 0 if action == "watch" else 130

    async def _perform(self, action: str) -> None:
        async with self._hub.dial() as link:
            try:
                if action in {"clips", "clip"}:
                    await ClipCommands(link, self._arguments, self._console).run(action)
                    return
                perform = {
                    "list": self._list, "history": self._history, "ack": self._act, "reset": self._act,
                    "false": self._mark_false, "false-alarms": self._list_false,
                    "silence": self._silence, "end-silence": self._end_silence, "silences": self._list_silences,
                }[action]  # fmt: skip
                await perform(AlarmsStub(link))
            except grpc.aio.AioRpcError as error:
                raise self._error(error) from error

    def _error(self, error: grpc.aio.AioRpcError) -> UserError:
        action = self._arguments.action or "watch"
        taken_back = getattr(self._arguments, "take_back", False)
        lister = "embereye alarms false-alarms" if taken_back else LISTERS.get(action, "")
        command = f"embereye alarms {action}"
        return hub_error(error, self._hub.hub, command, lister=lister, presented=bool(self._hub.token))

    # One answer

    async def _list(self, alarms: "AlarmsAsyncStub") -> None:
        answer = await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)
        self._print_zones(answer.zones)
        if answer.failing:
            self._warn(f"{answer.failing}; the states above are not stored yet")

    def _print_zones(self, zones: Iterable[Zone]) -> None:
        empty = "No zones: no device is declared, and no shard has reported."
        print_messages(zones, ZONE_COLUMNS, zone_row, empty=empty, as_json=self._json, console=self._console)

    async def _history(self, alarms: "AlarmsAsyncStub") -> None:
        arguments, events = self._arguments, list[AlarmEvent]()
        request = HistoryRequest(
            after=arguments.after, before=arguments.before, since_ns=arguments.since, until_ns=arguments.until,
            newest=arguments.newest, selection=selection_of(arguments).message,
        )  # fmt: skip
        while len(events) < arguments.limit:
            request.limit = min(arguments.limit - len(events), PAGE)
            page = await alarms.History(request, timeout=TIMEOUT)
            events = [*page.events, *events] if arguments.newest else [*events, *page.events]
            if not page.next:
                break
            request.after = request.after if arguments.newest else page.next
            request.before = page.next if arguments.newest else request.before
        for event in events:
            self._event(event)
        if not events:
            await check_zones(alarms, arguments.zone)
            if not self._json:
                self._console.print("No matching events in the retained history.", style="dim")

    async def _act(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        zone = await find_zone(alarms, arguments.zone)
        request = ActionRequest(namespace=zone.namespace, zone=zone.name, who=arguments.who, note=arguments.note)
        call = alarms.Acknowledge if arguments.action == "ack" else alarms.Reset
        self._event(await call(request, timeout=TIMEOUT))

    async def _mark_false(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        if not (arguments.take_back or arguments.reason.strip()):
            raise UserError("--reason is missing: say what looked like a fire")
        alarm = await find_alarm(alarms, arguments.alarm)
        request = MarkFalseRequest(
            alarm=alarm, who=arguments.who, reason=arguments.reason, take_back=arguments.take_back
        )
        self._event(await alarms.MarkFalse(request, timeout=TIMEOUT))

    async def _list_false(self, alarms: "AlarmsAsyncStub") -> None:
        marks = (await alarms.FalseAlarms(FalseAlarmsRequest(), timeout=TIMEOUT)).false_alarms
        columns = (whole_column("Alarm"), "Zone", "Marked", "By", "Signs", "Reason")
        empty = "No alarm is marked as false."
        print_messages(marks, columns, _mark_row, empty=empty, as_json=self._json, console=self._console)

    async def _silence(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        if arguments.span > DAY / SECOND:
            raise UserError("--for is more than 24h: a silence lasts a day at most")
        zone = await find_zone(alarms, arguments.zone)
        request = BeginSilenceRequest(
            namespace=zone.namespace, zone=zone.name, device=arguments.device, who=arguments.who,
            reason=arguments.reason, minutes=math.ceil(arguments.span / 60),
        )  # fmt: skip
        self._event(await alarms.BeginSilence(request, timeout=TIMEOUT))

    async def _end_silence(self, alarms: "AlarmsAsyncStub") -> None:
        request = EndSilenceRequest(id=self._arguments.silence, who=self._arguments.who)
        self._event(await alarms.EndSilence(request, timeout=TIMEOUT))

    async def _list_silences(self, alarms: "AlarmsAsyncStub") -> None:
        silences = (await alarms.Silences(SilencesRequest(), timeout=TIMEOUT)).silences
        columns = (whole_column("Silence"), "Zone", "Device", "Until", "By", "Reason")
        empty = "Nothing is silenced."
        print_messages(silences, columns, _silence_row, empty=empty, as_json=self._json, console=self._console)

    # Events as they happen

    async def _watch(self) -> None:
        """Print each event once, until cancelled; reconnect when the hub restarts."""
        backoff, failing = Backoff(floor=0.2, cap=5.0), Condition()

        def note_answer() -> None:
            if failing.clear():
                self._warn("the hub is back")
            backoff.reset()

        while True:
            presented = self._hub.token
            async with self._hub.dial() as link:
                alarms = AlarmsStub(link)
                try:
                    await self._show_zones(alarms)
                    await self._follow(alarms, note_answer)
                    reason = "the hub closed the feed"
                except SilentError as error:
                    reason = f"hub {self._hub.hub}: {error}"
                except grpc.aio.AioRpcError as error:
                    failure = self._error(error)
                    if error.code() in FINAL and not self._has_new_token(presented):
                        raise failure from error
                    reason = str(failure).rstrip(".")
            if failing.fail(reason):
                self._warn(f"{reason}; what was shown may be out of date, trying again")
            await asyncio.sleep(backoff.next())

    def _has_new_token(self, presented: str) -> bool:
        """True if the token's file has another one by now."""
        with contextlib.suppress(UserError):
            return self._hub.token != presented
        return False

    async def _show_zones(self, alarms: "AlarmsAsyncStub") -> None:
        """Show every zone as it is now; start the feed from there unless it continues."""
        answer = await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)
        if self._cursor is None:
            self._cursor = answer.cursor
        if self._cursor > answer.cursor:
            self._warn(f"the hub's history ends at {answer.cursor}, before cursor {self._cursor}: it was started again")
            self._cursor = answer.cursor
        if not self._json:
            self._print_zones(answer.zones)

    async def _follow(self, alarms: "AlarmsAsyncStub", note_answer: Callable[[], None]) -> None:
        """Print events until the hub ends the feed; call `note_answer` before each. SilentError if it falls silent."""
        call = alarms.Subscribe(
            SubscribeRequest(
                cursor=self._cursor or 0,
                selection=selection_of(self._arguments).message,
                subscription=getattr(self._arguments, "subscription", ""),
                alive_ms=ALIVE_MS,
                unstored=True,
            )
        )
        try:
            async for event in listen(call):
                note_answer()
                if news := self._unstored.news(event):
                    self._warn(news)
                if not event.unstored:
                    self._cursor = event.cursor
                    if event.type != AlarmEvent.TYPE_ALIVE:
                        self._event(event)
        finally:
            call.cancel()

    # Words

    @staticmethod
    def _warn(text: str) -> None:
        print(f"embereye: {visible(text)}", file=sys.stderr, flush=True)

    def _event(self, event: AlarmEvent) -> None:
        if self._json:
            print_json(event)
            return
        word, style = EVENT_WORDS.get(event.type) or _state_word(event.state)
        line = Text.assemble(
            (f"{local_time(event.time_ns)}  ", "dim"),
            (f"{word.upper():<13}", style),
            (f" {visible(event.namespace)}/{visible(event.zone)}  ", "bold"),
            visible(event.why),
        )
        self._console.print(line, soft_wrap=True)


def _state_word(number: int) -> tuple[str, str]:
    state = ZoneState(number)
    return state.word, STYLES.get(state, "")


def _mark_row(mark: FalseAlarm) -> tuple[str, ...]:
    zone, signs = f"{mark.namespace}/{mark.zone}", ", ".join(map(summary, mark.signs))
    return mark.alarm, zone, local_time(mark.time_ns), mark.who, signs, mark.reason


def _silence_row(silence: Silence) -> tuple[str, ...]:
    zone, until = f"{silence.namespace}/{silence.zone}", local_time(silence.until_ns)
    return silence.id, zone, silence.device, until, silence.who, silence.reason


def _silenced(silence: Silence) -> str:
    subject = f"{silence.device} is silenced" if silence.device else "silenced"
    return f"{subject} until {local_time(silence.until_ns)} by {silence.who}: {silence.reason}"


def zone_row(zone: Zone) -> tuple[str | Text, ...]:
    """The cells of `ZONE_COLUMNS`. A zone with a dark device is not shown as normal: it is not watched."""
    word, style = _state_word(zone.state)
    if zone.faults and ZoneState(zone.state) is ZoneState.NORMAL:
        word, style = "fault", "bold yellow"
    watched_style = "bold yellow" if zone.covered < zone.declared else ""
    reasons = [zone.why] if zone.why else []
    reasons += [f"{fault.device} is dark: {fault.reason}" for fault in zone.faults[:LISTED]]
    if len(zone.faults) > LISTED:
        reasons.append(counted(len(zone.faults) - LISTED, "more is dark", "more are dark"))
    reasons += ["under test"] if zone.testing else []
    reasons += [_silenced(silence) for silence in zone.silences]
    since_ns = min((fault.since_ns for fault in zone.faults), default=0) if word == "fault" else zone.since_ns
    return (
        f"{zone.namespace}/{zone.name}", Text(word.upper(), style=style), local_time(since_ns) if since_ns else "",
        Text(f"{zone.covered} of {zone.declared}", style=watched_style), "; ".join(reasons),
    )  # fmt: skip
