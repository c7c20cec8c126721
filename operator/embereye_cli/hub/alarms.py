"""`embereye alarms`: zones, live alarms and a person's actions at the command line."""

import asyncio
import contextlib
import math
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from rich.table import Column, Table
from rich.text import Text

from embereye.client.alarms import ALIVE_MS, SilentError, listen
from embereye.levels import ZoneState
from embereye.process import lifecycle
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.process.telemetry.logs import visible
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import dial
from embereye.units import DAY, SECOND, counted
from embereye.v1.alarms_pb2 import (
    ActionRequest,
    AlarmEvent,
    BeginSilenceRequest,
    EndSilenceRequest,
    FalseAlarmsRequest,
    HistoryRequest,
    MarkFalseRequest,
    Silence,
    SilencesRequest,
    SubscribeRequest,
    ZonesRequest,
    ZonesResponse,
)
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.zone.false_alarms import summary
from embereye.zone.unstored import Unstored
from embereye_cli.hub.access import sentence
from embereye_cli.hub.clips import ClipCommands
from embereye_cli.hub.selection_options import add_selection_options, moment, selection_of
from embereye_cli.hub.token import add_hub_options, add_hub_options_behind, hub_tls, token_for
from embereye_cli.hub.zones import TIMEOUT, find_alarm, find_zone
from embereye_cli.terminal import Terminal
from embereye_cli.values import count, cursor, duration

if TYPE_CHECKING:
    from embereye.v1.alarms_pb2_grpc import AlarmsAsyncStub

PAGE = 1_000  # events in one answer
# What trying again does not change; NOT_FOUND: no subscription of that name.
FINAL = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
}
# What lists that which an action names.
SHOWS = {
    "watch": "embereye subscriptions list",
    "false": "embereye alarms --json history",
    "end-silence": "embereye alarms silences",
}
LISTED = 3  # dark devices of one zone
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


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="every zone as it is now")
    watch = actions.add_parser("watch", help="what happens, as it happens (default)")
    watch.add_argument("--cursor", type=cursor, default=None, help="begin after this event; 0: from the oldest kept")
    history = actions.add_parser("history", help="what happened")
    history.add_argument("--after", type=cursor, default=0, help="only events past this cursor")
    history.add_argument("--before", type=cursor, default=0, help="only events before this cursor")
    history.add_argument("--since", type=moment, default=0, metavar="WHEN",
                         help="only events from then on: 90m or 2d, so long ago, or 2026-11-22T17:50")  # fmt: skip
    history.add_argument("--until", type=moment, default=0, metavar="WHEN", help="only events before then")
    history.add_argument("--newest", action="store_true", help="the newest of them, not the oldest")
    history.add_argument("--limit", type=count, default=100, help="at most so many (%(default)s)")
    for action in (watch, history):
        add_selection_options(action)
    watch.add_argument("--subscription", default="", metavar="NAME", help="what is stored under this name, instead")
    clips = actions.add_parser("clips", help="the clips and stills of an alarm, or the newest of all")
    clips.add_argument("alarm", nargs="?", default="", help="a zone whose alarm is open, or an alarm's id")
    clips.add_argument("--limit", type=count, default=20, help="at most so many, up to 1000 (%(default)s)")
    clip = actions.add_parser("clip", help="fetch one clip or still")
    clip.add_argument("clip", metavar="CLIP", help="its name in the list of clips: the first 8 digits or more")
    clip.add_argument("--output", type=Path, default=None, metavar="FILE",
                      help="where to, or a folder; default: DEVICE-TIME.mkv or .jpg, here")  # fmt: skip
    false = actions.add_parser("false", help="mark an alarm as false: what is like it needs more evidence from then on")
    false.add_argument("alarm", help="a zone whose alarm is open, or an alarm's id")
    false.add_argument("--reason", default="", help="what it was that looked like a fire")
    false.add_argument("--take-back", action="store_true", help="it was no false alarm after all")
    false.add_argument("--who", default=os.environ.get("EMBEREYE_WHO", ""),
                       help="who says so, where several share a token; recorded beside its name")  # fmt: skip
    actions.add_parser("false-alarms", help="the alarms that are marked as false")
    silence = actions.add_parser("silence", help="keep notifications of a zone or a device back for a while")
    silence.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    silence.add_argument("--device", default="", metavar="ID", help="only of this device in it")
    silence.add_argument(
        "--for", dest="span", type=duration, required=True, metavar="TIME", help="15m or 4h, up to 24h"
    )
    silence.add_argument("--reason", required=True, help="why nobody is to be notified")
    end_silence = actions.add_parser("end-silence", help="end a silence before its time")
    end_silence.add_argument("silence", metavar="ID", help="as in the list of silences")
    for action in (silence, end_silence):
        action.add_argument("--who", default=os.environ.get("EMBEREYE_WHO", ""),
                            help="who says so, where several share a token; recorded beside its name")  # fmt: skip
    actions.add_parser("silences", help="what is silenced, by whom, why and until when")
    for name, text in (("ack", "acknowledge a zone's alarm"), ("reset", "reset a zone whose alarm is acknowledged")):
        action = actions.add_parser(name, help=text)
        action.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
        action.add_argument("--who", default=os.environ.get("EMBEREYE_WHO", ""),
                            help="who acts, where several share a token; recorded beside its name")  # fmt: skip
        action.add_argument("--note", default="", help="kept in the history")
    add_hub_options_behind(actions.choices.values())


def run(arguments: Namespace) -> int:
    """Run one action; `watch` runs until interrupted."""
    return lifecycle.run(lambda stop: _Client(arguments).run(stop))


class _Client:
    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self._json: bool = arguments.json
        self._console = Terminal(highlight=False)
        self._token = self._read_token()
        self._tls = hub_tls(arguments)
        self._unstored = Unstored()
        self._cursor: int | None = getattr(arguments, "cursor", None)  # of the last event

    def _read_token(self) -> str:
        return token_for(self._arguments.token, self._arguments.hub.rpartition(":")[0])

    async def run(self, stop: asyncio.Event) -> int:
        action = self._arguments.action or "watch"
        doing = self._watch() if action == "watch" else self._perform(action)
        async with beside(doing, name=action) as acting, beside(stop.wait(), name="stop") as stopping:
            await asyncio.wait((acting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                await acting
                return 0
        return 0 if action == "watch" else 130

    async def _perform(self, action: str) -> None:
        async with dial(self._arguments.hub, self._tls, token=self._token) as link:
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
                raise UserError(self._sentence(error)) from error

    def _sentence(self, error: grpc.aio.AioRpcError) -> str:
        action = self._arguments.action or "watch"
        shows = (
            "embereye alarms false-alarms" if getattr(self._arguments, "take_back", False) else SHOWS.get(action, "")
        )
        return sentence(error, self._arguments.hub, f"embereye alarms {action}", shows=shows)

    # One answer

    async def _list(self, alarms: "AlarmsAsyncStub") -> None:
        answer = await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)
        if self._json:
            for zone in answer.zones:
                self._line(zone)
        else:
            self._console.print(_zone_table(answer))
        if answer.failing:
            self._warn(f"{answer.failing}; what is shown here is not stored yet")

    async def _history(self, alarms: "AlarmsAsyncStub") -> None:
        arguments, found = self._arguments, list[AlarmEvent]()
        request = HistoryRequest(
            after=arguments.after, before=arguments.before, since_ns=arguments.since, until_ns=arguments.until,
            newest=arguments.newest, selection=selection_of(arguments).message,
        )  # fmt: skip
        while len(found) < arguments.limit:
            request.limit = min(arguments.limit - len(found), PAGE)
            page = await alarms.History(request, timeout=TIMEOUT)
            found = [*page.events, *found] if arguments.newest else [*found, *page.events]
            if not page.next:
                break
            request.after = request.after if arguments.newest else page.next
            request.before = page.next if arguments.newest else request.before
        for event in found:
            self._event(event)
        if not found and not self._json:
            self._console.print("nothing of that happened, as far as it is kept", style="dim")

    async def _act(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        zone = await find_zone(alarms, arguments.zone)
        request = ActionRequest(namespace=zone.namespace, zone=zone.name, who=arguments.who, note=arguments.note)
        call = alarms.Acknowledge if arguments.action == "ack" else alarms.Reset
        self._event(await call(request, timeout=TIMEOUT))

    async def _mark_false(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        if not (arguments.take_back or arguments.reason.strip()):
            raise UserError("--reason is missing: say what it was that looked like a fire")
        alarm = await find_alarm(alarms, arguments.alarm)
        request = MarkFalseRequest(
            alarm=alarm, who=arguments.who, reason=arguments.reason, take_back=arguments.take_back
        )
        self._event(await alarms.MarkFalse(request, timeout=TIMEOUT))

    async def _list_false(self, alarms: "AlarmsAsyncStub") -> None:
        marks = (await alarms.FalseAlarms(FalseAlarmsRequest(), timeout=TIMEOUT)).false_alarms
        if self._json:
            for mark in marks:
                self._line(mark)
            return
        alarm = Column("Alarm", no_wrap=True)  # to be copied whole
        table = Table(alarm, "Zone", "Marked", "By", "Seen", "Reason", box=None, header_style="dim", pad_edge=False)
        for mark in marks:
            seen = ", ".join(summary(item) for item in mark.signs)
            where = f"{mark.namespace}/{mark.zone}"
            told = (mark.alarm, where, _time(mark.time_ns), mark.who, seen, mark.reason)
            table.add_row(*(Text(visible(text)) for text in told))
        if not marks:
            table.add_row("no alarm is marked as false", "", "", "", "", "")
        self._console.print(table)

    async def _silence(self, alarms: "AlarmsAsyncStub") -> None:
        arguments = self._arguments
        if arguments.span > DAY / SECOND:
            raise UserError("--for is more than 24h: a silence ends by itself within a day")
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
        if self._json:
            for silence in silences:
                self._line(silence)
            return
        name = Column("Silence", no_wrap=True)  # to be copied whole
        table = Table(name, "Zone", "Device", "Until", "By", "Reason", box=None, header_style="dim", pad_edge=False)
        for silence in silences:
            where = f"{silence.namespace}/{silence.zone}"
            told = (silence.id, where, silence.device, _time(silence.until_ns), silence.who, silence.reason)
            table.add_row(*(Text(visible(text)) for text in told))
        if not silences:
            table.add_row("nothing is silenced", "", "", "", "", "")
        self._console.print(table)

    # As it happens

    async def _watch(self) -> None:
        """Follow events for ever, over restarts of the hub, each once."""
        backoff, failing = Backoff(floor=0.2, cap=5.0), ""

        def heard() -> None:
            nonlocal failing
            if failing:
                self._warn("the hub is back")
            backoff.reset()
            failing = ""

        while True:
            async with dial(self._arguments.hub, self._tls, token=self._token) as link:
                alarms = AlarmsStub(link)
                try:
                    await self._show_zones(alarms)
                    await self._follow(alarms, heard)
                    reason = "the hub closed the feed"
                except SilentError as error:
                    reason = f"hub {self._arguments.hub}: {error}"
                except grpc.aio.AioRpcError as error:
                    shown = self._token
                    with contextlib.suppress(UserError):  # one in a file may have been replaced, and is another now
                        self._token = self._read_token()
                    if error.code() in FINAL and self._token == shown:
                        raise UserError(self._sentence(error)) from error
                    reason = self._sentence(error)
            if reason != failing:
                self._warn(f"{reason}; what was shown may no longer be true, trying again")
                failing = reason
            await asyncio.sleep(backoff.next())

    async def _show_zones(self, alarms: "AlarmsAsyncStub") -> None:
        """Show every zone as it is now, and go on from there where nothing was followed before."""
        answer = await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)
        if self._cursor is None:
            self._cursor = answer.cursor
        if self._cursor > answer.cursor:
            self._warn(f"the hub's history ends at {answer.cursor}, before cursor {self._cursor}: it starts anew")
            self._cursor = answer.cursor
        if not self._json:
            self._console.print(_zone_table(answer))

    async def _follow(self, alarms: "AlarmsAsyncStub", heard: Callable[[], None]) -> None:
        """Show events, `heard` before each, until the hub ends the feed; SilentError where nobody is there any more."""
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
                heard()
                if told := self._unstored.news(event):
                    self._warn(told)
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

    @staticmethod
    def _line(message: Message) -> None:
        print(json_format.MessageToJson(message, indent=None, ensure_ascii=False), flush=True)

    def _event(self, event: AlarmEvent) -> None:
        if self._json:
            self._line(event)
            return
        word, style = EVENT_WORDS.get(event.type) or _state_word(event.state)
        line = Text.assemble(
            (f"{_time(event.time_ns)}  ", "dim"),
            (f"{word.upper():<13}", style),
            (f" {visible(event.namespace)}/{visible(event.zone)}  ", "bold"),
            visible(event.why),
        )
        self._console.print(line, soft_wrap=True)


def _state_word(number: int) -> tuple[str, str]:
    state = ZoneState(number)
    return state.word, STYLES.get(state, "")


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _silenced(silence: Silence) -> str:
    what = f"{silence.device} is silenced" if silence.device else "silenced"
    return visible(f"{what} until {_time(silence.until_ns)} by {silence.who}: {silence.reason}")


def _zone_table(answer: ZonesResponse) -> Table:
    table = Table("Zone", "State", "Watched", "Why", box=None, header_style="dim", pad_edge=False)
    for zone in answer.zones:
        word, style = _state_word(zone.state)
        if zone.faults and ZoneState(zone.state) is ZoneState.NORMAL:
            word, style = "fault", "bold yellow"  # of what nobody watches, nothing is known
        state = Text(word.upper(), style=style)
        watched = Text(
            f"{zone.covered} of {zone.declared}", style="bold yellow" if zone.covered < zone.declared else ""
        )
        reasons = [visible(zone.why)] if zone.why else []
        reasons += [visible(f"{fault.device} is dark: {fault.reason}") for fault in zone.faults[:LISTED]]
        reasons += (
            [counted(len(zone.faults) - LISTED, "more is dark", "more are dark")] if len(zone.faults) > LISTED else []
        )
        reasons += ["under test"] if zone.testing else []
        reasons += [_silenced(silence) for silence in zone.silences]
        table.add_row(Text(visible(f"{zone.namespace}/{zone.name}")), state, watched, Text("; ".join(reasons)))
    if not answer.zones:
        table.add_row("no zone is known", "", "", "no device is declared, and no shard has reported")
    return table
