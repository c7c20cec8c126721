"""How long a turn of a control loop takes, and whether it keeps its rate."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import grpc
import zmq

from embereye.client.control import CALL, VERSION, ControllerLink
from embereye.client.link import Link, LinkError
from embereye.process.http.bearer import bearer
from embereye.sim.own_hub import OwnHub, running_hub
from embereye.units import MILLISECOND, SECOND
from embereye.v1.control_pb2 import Command, Controller, ControlRequest, ControlResponse, Handshake
from embereye.v1.control_pb2_grpc import ControlStub
from embereye_bench.report import Result, Scale, median

SIZES = {(160, 215): (17, 6), (210, 890): (23, 84)}  # bytes of command and state → outputs and sensors
SLOW_NS = 1_000 * MILLISECOND  # period of a device that is not what is measured
WARM_UP = 200  # turns
Turn = Callable[[], object]


@contextlib.contextmanager
def module(name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`python -m name`, ended with the block; its first line is read by whoever enters."""
    process = subprocess.Popen([sys.executable, "-m", name, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that `process` prints; RuntimeError where it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the benchmark ended early; its last words are above")
    return line.strip()


def device(hub: OwnHub, outputs: int, sensors: int, period_ns: int, seconds: float = 0) -> list[str]:
    """The arguments of `module` for a device that is steered through `hub`."""
    return [
        "embereye_bench.hub.loop_device", hub.unix, hub.token, str(outputs), str(sensors), str(period_ns), str(seconds),
    ]  # fmt: skip


def _times(turn: Turn, seconds: float) -> list[float]:
    """Seconds of each of the turns that follow one another for `seconds`."""
    found, now = list[float](), time.perf_counter()
    until = now + seconds
    while now < until:
        turn()
        before, now = now, time.perf_counter()
        found.append(now - before)
    return found


def _through_hub(stack: contextlib.ExitStack, address: str, token: str, outputs: int) -> Turn:
    link = stack.enter_context(Link(address, CALL, token))
    side = ControllerLink(link, "bench", "joints", mode=Controller.MODE_FREE_RUNNING)
    values = [0.25] * outputs
    return lambda: side.step(values, 100_000)


def _through_zmq(stack: contextlib.ExitStack, address: str, outputs: int, sensors: int) -> Turn:
    peer = stack.enter_context(module("embereye_bench.hub.peers", "commands", address, str(outputs), str(sensors)))
    socket = stack.enter_context(zmq.Context().socket(zmq.REQ))
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

    return turn


def _through_grpc(stack: contextlib.ExitStack, hub: OwnHub, outputs: int) -> Turn:
    """The same session by gRPC's own blocking client."""
    import queue

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


def _round_trips(kind: str, sizes: tuple[int, int], scale: Scale) -> tuple[float, float, float, float]:
    """Median µs of a turn through the hub, its 99th percentile, the median through pyzmq, and through gRPC."""
    outputs, sensors = SIZES[sizes]
    ours, peers, grpcs = list[float](), list[float](), list[float]()
    share = scale.seconds / scale.rounds / 4
    with running_hub() as hub, tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as stack:
        slow = stack.enter_context(module(*device(hub, outputs, sensors, SLOW_NS)))
        line_of(slow)
        zeromq = "tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{folder}/peer"
        peer = _through_zmq(stack, zeromq, outputs, sensors)
        with contextlib.ExitStack() as inner:
            through_hub = _through_hub(inner, hub.tcp if kind == "tcp" else hub.unix, hub.token, outputs)
            for turn in (through_hub, peer):
                for _ in range(WARM_UP):
                    turn()
            for _ in range(scale.rounds * 2):
                ours += _times(through_hub, share)
                peers += _times(peer, share)
        with contextlib.ExitStack() as inner:
            through_grpc = _through_grpc(inner, hub, outputs)
            for _ in range(WARM_UP):
                through_grpc()
            grpcs = _times(through_grpc, share * 2)
    ours.sort()
    late = ours[int(len(ours) * 0.99)]
    return median(ours) * 1e6, late * 1e6, median(peers) * 1e6, median(grpcs) * 1e6


def _lockstep(name: str, kind: str, scale: Scale) -> Result:
    value, late, peer, by_grpc = _round_trips(kind, (160, 215), scale)
    big, _, big_peer, _ = _round_trips(kind, (210, 890), scale)
    ratio, big_ratio = value / peer, big / big_peer
    unit = f"µs p50, p99 {late:.0f}, gRPC {by_grpc:.0f}; 210/890 B: {big:.0f} of {big_peer:.0f} ({big_ratio:.2f})"
    return Result(name, value, unit, peer, ratio, "≤ 1.0 each", ratio <= 1 and big_ratio <= 1)


def lockstep_tcp(scale: Scale) -> Result:
    """A command of 160 bytes to the hub and a state of 215 back, by TCP. Baseline: pyzmq with the same messages."""
    return _lockstep("lockstep-tcp", "tcp", scale)


def lockstep_unix(scale: Scale) -> Result:
    """The same by a Unix socket, against pyzmq's."""
    return _lockstep("lockstep-unix", "unix", scale)


def _paced(hub: OwnHub, rate: int, seconds: float) -> tuple[int, int, float]:
    """(missed ticks, ticks, 99th percentile of the jitter in ms) of a device that is steered through `hub`."""
    outputs, sensors = SIZES[160, 215]
    with module(*device(hub, outputs, sensors, SECOND // rate, seconds)) as process:
        line_of(process)
        with Link(hub.unix, CALL, hub.token) as link:
            side = ControllerLink(link, "bench", "joints")
            values = [0.25] * outputs
            state = side.first()
            with contextlib.suppress(LinkError):
                while True:
                    state = side.step(values, state.tick)
        told = json.loads(line_of(process))
    # A command on time comes the same while after its tick each time: what differs from that is jitter.
    usual = median(told["arrivals"])
    jitter = sorted(abs(arrival - usual) for arrival in told["arrivals"])
    missed = max(int(state.missed), told["late"]) + told["slept"]
    return missed, told["ticks"], jitter[int(len(jitter) * 0.99)] * 1e3


def lockstep_500hz(scale: Scale) -> Result:
    """A device that is steered synchronised at 248 and 500 Hz: missed ticks, and jitter of its commands' arrival.

    Baseline: half a millisecond. A minute each; in a quick run ten seconds, and said so.
    """
    seconds = 60.0 if scale.seconds >= 3 else 10.0
    with running_hub() as hub:
        found = {rate: _paced(hub, rate, seconds) for rate in (248, 500)}
    missed = sum(one[0] for one in found.values())
    worst = max(one[2] for one in found.values())
    each = ", ".join(f"{rate} Hz: {one[0]} missed of {one[1]}, {one[2]:.2f} ms" for rate, one in found.items())
    unit = f"ms jitter p99 in {seconds:g} s each; {each}"
    return Result("lockstep-500hz", worst, unit, 0.5, worst / 0.5, "0 missed, ≤ 0.5", not missed and worst <= 0.5)
