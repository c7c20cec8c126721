"""Measure the time of a control loop's turn, and whether a loop keeps its rate.

A device and the hub run in separate processes; the controller is this process. A turn sends a command and waits for the
state. The turns through the hub and through pyzmq alternate, with both ends pinned to given processors, because two
processes on one processor wake each other in a third of the time.

At a fixed rate, the device's own timings count. Three bare processes run the same loop as the baseline, and show what
the machine itself misses.
"""

import contextlib
import json
import os
import queue
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import zmq

from embereye.addons.control.client import CALL, VERSION, ControllerLink
from embereye.addons.control.link import Link, LinkError
from embereye.addons.control.own_hub import OwnHub, running_hub
from embereye.process.http.bearer import bearer
from embereye.units import MILLISECOND, SECOND
from embereye.v1.control_pb2 import Command, Controller, ControlRequest, ControlResponse, Handshake
from embereye.v1.control_pb2_grpc import ControlStub
from embereye_bench.hub.companions import line_of, module, place, placements, restoring_affinity
from embereye_bench.report import Result, Scale, median

DEVICE, PEERS = (f"{__package__}.{name}" for name in ("loop_device", "peers"))  # to be run as programs
SIZES = {(160, 215): (17, 6), (210, 890): (23, 84)}  # bytes of command and state → outputs and sensors
SLOW_NS = 1_000 * MILLISECOND  # period of a device whose rate is not measured
LEAST_SECONDS = 0.1  # of consecutive turns on one way; in less time, a busy neighbour decides the result
RATES = (248, 500)  # Hz
BARE_BYTES = 4_096  # more than one message; only one is pending at a time
Turn = Callable[[], object]


def device(hub: OwnHub, outputs: int, sensors: int, period_ns: int, seconds: float = 0) -> list[str]:
    """The arguments of `module` for a device that is controlled through `hub`."""
    return [
        DEVICE, hub.unix, hub.token, str(outputs), str(sensors), str(period_ns), str(seconds),
    ]  # fmt: skip


def _times(turn: Turn, seconds: float) -> list[float]:
    """The durations in seconds of consecutive turns for `seconds`, ascending."""
    durations, now = list[float](), time.perf_counter()
    until = now + seconds
    while now < until:
        turn()
        before, now = now, time.perf_counter()
        durations.append(now - before)
    return sorted(durations)


def _through_hub(stack: contextlib.ExitStack, address: str, token: str, outputs: int) -> Turn:
    link = stack.enter_context(Link(address, CALL, token))
    side = ControllerLink(link, "bench", "joints", mode=Controller.MODE_FREE_RUNNING)
    values = [0.25] * outputs
    return lambda: side.step(values, 100_000)


def _through_zmq(stack: contextlib.ExitStack, address: str, outputs: int, sensors: int) -> tuple[Turn, int]:
    """Make a turn through pyzmq; return it and the process id of the other end."""
    peer = stack.enter_context(module(PEERS, "commands", address, str(outputs), str(sensors)))
    context = stack.enter_context(zmq.Context())
    socket = stack.enter_context(context.socket(zmq.REQ))
    socket.linger = 0
    socket.connect(line_of(peer))
    request, values = ControlRequest(command=Command()), [0.25] * outputs

    def turn() -> ControlResponse:
        command = request.command
        command.sequence += 1
        command.time_ns, command.tick = time.time_ns(), 100_000
        command.values[:] = values
        socket.send(request.SerializeToString())
        return ControlResponse.FromString(socket.recv())

    return turn, peer.pid


def _through_grpc(stack: contextlib.ExitStack, hub: OwnHub, outputs: int) -> Turn:
    """Make a turn of the same session by gRPC's own blocking client."""
    link = stack.enter_context(grpc.insecure_channel(hub.grpc))
    waiting: queue.SimpleQueue[ControlRequest | None] = queue.SimpleQueue()
    stack.callback(lambda: waiting.put(None))
    controller = Controller(actuator="joints", mode=Controller.MODE_FREE_RUNNING)
    waiting.put(ControlRequest(handshake=Handshake(version=VERSION, name="bench", controller=controller)))
    call = ControlStub(link).Session(iter(waiting.get, None), metadata=bearer(hub.token))
    next(call)
    sequence, values = 0, [0.25] * outputs

    def turn() -> ControlResponse:
        nonlocal sequence
        sequence += 1
        command = Command(sequence=sequence, time_ns=time.time_ns(), tick=100_000, values=values)
        waiting.put(ControlRequest(command=command))
        return next(call)

    return turn


@dataclass
class _Turns:
    """The durations of turns in seconds, round by round, with the two ways alternating."""

    ours: list[float] = field(default_factory=list)  # medians
    late: list[float] = field(default_factory=list)  # 99th percentiles
    peers: list[float] = field(default_factory=list)  # medians

    def add(self, ours: list[float], peers: list[float]) -> None:
        """Add one round of each way, ascending."""
        self.ours.append(median(ours))
        self.late.append(ours[int(len(ours) * 0.99)])
        self.peers.append(median(peers))

    @property
    def ratio(self) -> float:
        """Our duration relative to the peer's, round by round, so that a slow machine affects both."""
        return median([ours / peer for ours, peer in zip(self.ours, self.peers, strict=True)])

    def __str__(self) -> str:
        return f"{median(self.ours) * 1e6:.0f} of {median(self.peers) * 1e6:.0f} ({self.ratio:.2f})"


def _round_trips(kind: str, sizes: tuple[int, int], scale: Scale) -> tuple[dict[str, _Turns], float]:
    """Measure turns through the hub and pyzmq by placement of both ends, and gRPC's median in seconds.

    Two processes on one processor wake each other in a third of the time that they need on two. The system chooses the
    placement again and again, and might measure one way on one processor and the other on two. So it is fixed here.
    """
    outputs, sensors = SIZES[sizes]
    by_placement = {name: _Turns() for name in placements()}
    share = max(LEAST_SECONDS, scale.seconds / 8)
    with running_hub() as hub, tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as stack:
        line_of(stack.enter_context(module(*device(hub, outputs, sensors, SLOW_NS))))
        address = "tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{folder}/peer"
        through_zmq, peer = _through_zmq(stack, address, outputs, sensors)
        with contextlib.ExitStack() as inner:
            inner.enter_context(restoring_affinity())
            through_hub = _through_hub(inner, hub.tcp if kind == "tcp" else hub.unix, hub.token, outputs)
            for _ in range(scale.rounds * 2):
                for name, (here, there) in placements().items():
                    place(os.getpid(), here)
                    for pid in (hub.pid, peer):
                        place(pid, there)
                    by_placement[name].add(_times(through_hub, share), _times(through_zmq, share))
        with contextlib.ExitStack() as inner:
            through_grpc = _through_grpc(inner, hub, outputs)
            _times(through_grpc, LEAST_SECONDS)
            by_grpc = median(_times(through_grpc, share * 2))
    return by_placement, by_grpc


def _lockstep(name: str, kind: str, scale: Scale) -> Result:
    small, by_grpc = _round_trips(kind, (160, 215), scale)
    big, _ = _round_trips(kind, (210, 890), scale)
    first = next(iter(small.values()))
    details = "; ".join(f"{where}: {small[where]}, 210/890 B {big[where]}" for where in small)
    unit = f"µs p50, p99 {median(first.late) * 1e6:.0f}, gRPC {by_grpc * 1e6:.0f}; {details}"
    worst = max(turns.ratio for turns in (*small.values(), *big.values()))
    value, baseline = median(first.ours) * 1e6, median(first.peers) * 1e6
    return Result(name, value, unit, baseline, first.ratio, "≤ 1.0 each", worst <= 1)


def lockstep_tcp(scale: Scale) -> Result:
    """Measure a command of 160 bytes to the hub and a state of 215 bytes back, by TCP. Baseline: pyzmq."""
    return _lockstep("lockstep-tcp", "tcp", scale)


def lockstep_unix(scale: Scale) -> Result:
    """Measure the same messages by a Unix socket. Baseline: pyzmq."""
    return _lockstep("lockstep-unix", "unix", scale)


# At a fixed rate


@dataclass
class _Paced:
    """The precision of a loop's rate."""

    ticks: int = 0
    missed: int = 0
    jitters: list[float] = field(default_factory=list)  # seconds

    def add(self, report: dict[str, Any], missed: int = 0) -> None:
        """Add a device's report, and the number of ticks that the hub counted as missed."""
        # The usual delay of commands after their ticks does not count; deviations from it are jitter.
        usual = median(report["arrivals"])
        self.jitters += (abs(arrival - usual) for arrival in report["arrivals"])
        self.ticks += report["ticks"]
        self.missed += max(missed, report["late"]) + report["slept"]

    @property
    def jitter(self) -> float:
        """The 99th percentile in milliseconds."""
        return sorted(self.jitters)[int(len(self.jitters) * 0.99)] * 1e3

    def __str__(self) -> str:
        return f"{self.missed} missed of {self.ticks:,}, {self.jitter:.2f} ms"


def _pace_through_hub(hub: OwnHub, rate: int, seconds: float) -> tuple[dict[str, Any], int]:
    """Control a device through `hub`; return its report, and the ticks that the hub counted as missed."""
    outputs, sensors = SIZES[160, 215]
    with module(*device(hub, outputs, sensors, SECOND // rate, seconds)) as process:
        line_of(process)
        with Link(hub.unix, CALL, hub.token) as link:
            side = ControllerLink(link, "bench", "joints")
            values = [0.25] * outputs
            state = side.first_state()
            with contextlib.suppress(LinkError):
                while True:
                    state = side.step(values, state.tick)
        return json.loads(line_of(process)), int(state.missed)


def _pace_bare(path: str, rate: int, seconds: float) -> dict[str, Any]:
    """Run the loop with bytes only, relayed by a process in place of the hub; return the device's report."""
    with (
        module(PEERS, "relay", path) as relay,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as controller,
    ):
        line_of(relay)
        controller.connect(path)
        with module(DEVICE, "bare", path, str(SECOND // rate), str(seconds)) as process:
            line_of(process)
            while controller.recv(BARE_BYTES):
                controller.sendall(bytes(160))
            report: dict[str, Any] = json.loads(line_of(process))
            return report


def lockstep_500hz(scale: Scale) -> Result:
    """Measure missed ticks and jitter of a device controlled at 248 and 500 Hz, in lockstep.

    A minute each, ten seconds in a quick run. Baseline: three bare processes, a timer, a relay and an answering one, in
    alternating rounds of half the time. Ticks that they miss are missed by the machine.
    """
    seconds, rounds = (60.0, 6) if scale.seconds >= 3 else (10.0, 2)
    ours = {rate: _Paced() for rate in RATES}
    bare = {rate: _Paced() for rate in RATES}
    with running_hub() as hub, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for number in range(rounds):
            for rate in RATES:
                ours[rate].add(*_pace_through_hub(hub, rate, seconds / rounds))
                bare[rate].add(_pace_bare(f"{folder}/{number}-{rate}", rate, seconds / rounds / 2))
    worst, baseline = (max(loop.jitter for loop in loops.values()) for loops in (ours, bare))
    details = "; ".join(f"{rate} Hz: {ours[rate]}, bare {bare[rate]}" for rate in RATES)
    ok = worst <= 0.5 and not sum(loop.missed for loop in ours.values())
    unit = f"ms jitter p99 in {seconds:g} s each; {details}"
    return Result("lockstep-500hz", worst, unit, baseline, worst / baseline, "0 missed, ≤ 0.5", ok)
