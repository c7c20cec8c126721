"""Steer a simulated pan-tilt head to the hottest spot, and measure each turn of the control loop.

Without --hub it starts a temporary hub and a head.

For each way to wait, it connects as the head's controller and repeats one turn until the duration is over: decide from
the latest state, send the command, receive the next state. Each turn is split into blocked, busy and idle time, and the
summary is printed at the end.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from embereye.addons.control.client import CALL, ControllerLink
from embereye.addons.control.commands.head import add_association_options, add_motion_options, check_motion
from embereye.addons.control.link import Link, LinkError, Wait
from embereye.addons.control.own_hub import running_hub
from embereye.addons.control.pan_tilt import follow_hottest
from embereye.process.lifecycle import NotFoundError, RefusedError, UnreachableError, UserError
from embereye.process.tls.client import ClientTls
from embereye.units import MILLISECOND, SECOND
from embereye.v1.control_pb2 import Controller, State
from embereye_cli.hub.connection import hub_tls
from embereye_cli.hub.token import token_for
from embereye_cli.terminal import Terminal
from embereye_cli.values import duration_or_seconds

CONNECT_SECONDS = 20.0  # longest time until the head is connected
WAITS = (*(wait.value for wait in Wait), "all")


@dataclass
class Turns:
    """Measurements of a control loop, turn by turn; nanoseconds."""

    wait: Wait
    blocked: list[int] = field(default_factory=list)  # time that each turn waited for the hub's answer
    idle: list[int] = field(default_factory=list)  # time until the next tick, if the controller has a clock
    busy: list[int] = field(default_factory=list)  # time to decide, write and read
    sent: Counter[int] = field(default_factory=Counter)  # messages by size in bytes
    received: Counter[int] = field(default_factory=Counter)
    off: list[float] = field(default_factory=list)  # radians from the axis to the hottest spot
    processor: int = 0  # total processor time
    elapsed: int = 0
    missed: int = 0  # deadlines, as the hub counts them
    overruns: int = 0  # turns that ended after the next was due


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_association_options(parser, "; default: a temporary hub")
    parser.add_argument("--actuator", default="head", help="with --hub: name of the actuator (%(default)s)")
    add_motion_options(parser)
    parser.add_argument("--duration", type=duration_or_seconds, default=10.0, metavar="DURATION",
                        help="duration of each way to wait (10s)")  # fmt: skip
    parser.add_argument("--wait", choices=WAITS, default=Wait.BLOCK.value,
                        help="block: sleep until the answer arrives; poll: check all the time; sleep: check every 50 "
                        "µs; "
                        "all: one after the other (%(default)s)")  # fmt: skip
    parser.add_argument("--free-running", action="store_true",
                        help="send at a fixed rate instead of after each new state")  # fmt: skip
    parser.add_argument("--timings", action="store_true", help="show the distribution of blocked, idle and busy time")
    parser.add_argument("--trace-sizes", action="store_true", help="show the sizes of messages in bytes")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each way to wait")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration. UserError with the reason if the head cannot be steered."""
    check_motion(arguments)
    waits = list(Wait) if arguments.wait == "all" else [Wait(arguments.wait)]
    with contextlib.ExitStack() as stack:
        address, token, tls = arguments.hub, "", None
        if address:
            host = "localhost" if address.startswith("unix:") else address.rpartition(":")[0]
            token, tls = token_for(arguments.token, host), hub_tls(arguments)
        else:
            hub = stack.enter_context(running_hub())
            address, token = hub.unix, hub.token
            stack.callback(_end, _start_head(address, token, arguments))
        try:
            measured = [_measure(wait, address, token, tls, arguments) for wait in waits]
        except LinkError as error:
            raise command_error(error) from error
    if arguments.json:
        for turns in measured:
            print(json.dumps(_summary(turns)))
    else:
        _print(measured, arguments)
    return 0


def command_error(error: LinkError) -> UserError:
    """The error of the command for one of the association, with the exit code for its reason."""
    reason = str(error)
    kinds = {
        "cannot be reached": UnreachableError,
        "no actuator": NotFoundError,
        "token": RefusedError,
        "takes the role": RefusedError,
    }
    return next((kind for sign, kind in kinds.items() if sign in reason), UserError)(reason)


def _start_head(address: str, token: str, arguments: argparse.Namespace) -> "subprocess.Popen[bytes]":
    command = ["simulate", "head", "--hub", address, "--name", arguments.actuator]
    command += ["--rate", str(arguments.rate), "--range", str(arguments.reach)]
    # Not as an argument: every user of this machine can read the list of processes.
    environment = {**os.environ, "EMBEREYE_TOKEN": token}
    return subprocess.Popen(
        [sys.executable, "-m", "embereye_cli", *command], stderr=subprocess.DEVNULL, env=environment
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(10)


def _connect(
    wait: Wait, address: str, token: str, tls: ClientTls | None, arguments: argparse.Namespace
) -> ControllerLink:
    """Steer the head, once it is connected."""
    mode = Controller.MODE_FREE_RUNNING if arguments.free_running else Controller.MODE_SYNCHRONISED
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        link = Link(address, CALL, token, tls=tls, wait=wait)
        try:
            return ControllerLink(link, "embereye control demo", arguments.actuator, mode=mode)
        except LinkError as error:
            link.close()
            if arguments.hub or "is connected. Connected:" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)


def _measure(wait: Wait, address: str, token: str, tls: ClientTls | None, arguments: argparse.Namespace) -> Turns:
    side = _connect(wait, address, token, tls, arguments)
    with side.link:
        if side.period_ns <= 0 or len(side.actuator.outputs) != 4:
            raise UserError(f"{arguments.actuator} is not a pan-tilt head: it has {len(side.actuator.outputs)} outputs")
        return _turn(side, wait, arguments)


def _turn(side: ControllerLink, wait: Wait, arguments: argparse.Namespace) -> Turns:
    turns, link = Turns(wait), side.link
    period = int(SECOND / arguments.rate)
    state = side.first_state() if side.synchronised else side.step([0.0] * 4)
    while not state.tick:
        state = side.step([0.0] * 4)
    began, worked = time.monotonic_ns(), time.process_time_ns()
    until, due = began + int(arguments.duration * SECOND), began
    show = _progress_printer(arguments)
    now = began
    while now < until:
        waited, before = link.waited_ns, now
        state = side.step(follow_hottest(state), state.tick)
        after = time.monotonic_ns()
        turns.blocked.append(link.waited_ns - waited)
        turns.busy.append(after - before - turns.blocked[-1])
        turns.sent[link.sent] += 1
        turns.received[link.received] += 1
        turns.off.append((state.sensors[1] ** 2 + state.sensors[2] ** 2) ** 0.5)
        if state.fault:
            raise UserError(state.fault)
        show(after - began, state)
        now = time.monotonic_ns()
        if not side.synchronised:
            due += period
            if due < now:
                turns.overruns += 1
                due = now
            time.sleep((due - now) / SECOND)
            ended = time.monotonic_ns()
            turns.idle.append(ended - now)
            now = ended
    turns.elapsed, turns.processor = now - began, time.process_time_ns() - worked
    turns.missed = state.missed
    return turns


def _progress_printer(arguments: argparse.Namespace) -> Callable[[int, State], None]:
    """A function that prints once a second where the head points."""
    next_ns = 0

    def show(elapsed: int, state: State) -> None:
        nonlocal next_ns
        if arguments.json or elapsed < next_ns:
            return
        next_ns += SECOND
        pan, tilt, _, lamp = state.measured
        degrees = [57.29578 * value for value in (pan, tilt, state.sensors[1], state.sensors[2])]
        axis = f"points {degrees[0]:+6.1f}° {degrees[1]:+6.1f}°"
        spot = f"hottest {state.sensors[0]:5.1f} °C at {degrees[2]:+5.1f}° {degrees[3]:+5.1f}° of that"
        print(f"{elapsed / SECOND:5.1f} s   {axis}   {spot}   lamp {'on' if lamp else 'off'}", file=sys.stderr)

    return show


def _summary(turns: Turns) -> dict[str, object]:
    return {
        "wait": turns.wait.value,
        "turns": len(turns.blocked),
        "rate": round(len(turns.blocked) / (turns.elapsed / SECOND), 1),
        "blocked": round(sum(turns.blocked) / turns.elapsed, 4),
        "idle": round(sum(turns.idle) / turns.elapsed, 4),
        "processor": round(turns.processor / turns.elapsed, 4),
        "missed": turns.missed,
        "overruns": turns.overruns,
        "offMedianDegrees": round(57.29578 * _share(turns.off, 0.5), 2),
        "milliseconds": {name: _spread(values) for name, values in _parts(turns)},
        "bytes": {"commands": dict(turns.sent), "states": dict(turns.received)},
    }


def _parts(turns: Turns) -> list[tuple[str, list[int]]]:
    return [("blocked", turns.blocked), ("busy", turns.busy), *([("idle", turns.idle)] if turns.idle else [])]


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _spread(values: Sequence[int]) -> dict[str, float]:
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(_share(values, share) / MILLISECOND, 3) for name, share in places.items()}


def _print(measured: Sequence[Turns], arguments: argparse.Namespace) -> None:
    console = Terminal()
    table = Table("Wait", "Turns", "Rate", "Blocked", "Idle", "Processor", "Missed", "Overruns", "Off by", box=None,
                  header_style="dim", pad_edge=False)  # fmt: skip
    for turns in measured:
        table.add_row(
            turns.wait.value, str(len(turns.blocked)), f"{len(turns.blocked) / (turns.elapsed / SECOND):.1f} Hz",
            f"{sum(turns.blocked) / turns.elapsed:.1%}", f"{sum(turns.idle) / turns.elapsed:.1%}",
            f"{turns.processor / turns.elapsed:.1%}", str(turns.missed), str(turns.overruns),
            f"{57.29578 * _share(turns.off, 0.5):.1f}°",
        )  # fmt: skip
    console.print(table)
    if arguments.timings:
        table = Table("Wait", "Part", "p50 ms", "p90", "p99", "max", box=None, header_style="dim", pad_edge=False)
        for turns in measured:
            for name, values in _parts(turns):
                table.add_row(turns.wait.value, name, *(f"{value:.3f}" for value in _spread(values).values()))
        console.print(table)
    if arguments.trace_sizes:
        table = Table("Wait", "Message", "Bytes", "Times", box=None, header_style="dim", pad_edge=False)
        for turns in measured:
            for name, counts in (("command", turns.sent), ("state", turns.received)):
                for size, times in sorted(counts.items()):
                    table.add_row(turns.wait.value, name, str(size), str(times))
        console.print(table)
