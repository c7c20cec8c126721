"""Measure the cost of a reading, frame, picture and device on this machine, for `embereye plan --costs FILE`."""

import argparse
import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from embereye.process.files import check_writable, system_errors
from embereye.process.lifecycle import UserError, raise_descriptor_limit
from embereye.process.telemetry.usage import cpu_seconds, resident_mb
from embereye_bench.cameras.jpeg import Fleet, fleet
from embereye_bench.cameras.video import hd_films, small_films, video_fleet
from embereye_bench.ending import terminate
from embereye_bench.films import Films, draw, enlarge
from embereye_bench.hub.alarm_path import Site
from embereye_bench.results.records import describe_machine
from embereye_bench.sensors.load import Server, close, connect, frame_lines, paced, reading_line
from embereye_operator.decide.capacity.costs import MEGAPIXEL, Costs, Curve, PictureCost

SENSORS, RATES = 400, (2.5, 20.0)  # readings/s of each
FRAME_SENSORS, FRAME_RATES = 50, (4.0, 16.0)  # thermal frames/s of each
HEADERS = 40 + 32  # bytes of TCP and IP for each packet, and for every second one its acknowledgement
CAMERAS, CAMERA_RATE = (10, 50), 10.0
LARGE, LARGE_CAMERAS = (1280, 960), 4
HD, HD_CAMERAS = (1920, 1080), 2
REACHED = 0.9  # share of the sent pictures/s that must be analysed: shed pictures have no cost
BITS = {"h264": 0.1, "h265": 0.07}  # bits per pixel: common settings of cameras
WATCHED = 500  # devices of a hub


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--calibrate", action="store_true", help="measure costs here, for `embereye plan`")
    parser.add_argument("--to", type=Path, default=Path("costs.json"), metavar="FILE", help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write; return the exit code."""
    if not arguments.calibrate:
        raise UserError(
            "nothing to measure. Name sensors, cameras, hub, …, or use --calibrate; see embereye bench --help."
        )
    if not 0.5 <= arguments.seconds <= 600:
        raise UserError(f"--seconds {arguments.seconds:g} is not between 0.5 and 600")
    check_writable("--to", arguments.to)
    raise_descriptor_limit()
    costs = calibrate(arguments.seconds, lambda line: print(line, file=sys.stderr, flush=True))
    with system_errors(f"--to {arguments.to}: cannot be written"):
        arguments.to.write_text(costs.to_json())
    print(f"written to {arguments.to}; use it with: embereye plan --costs {arguments.to} …")
    return 0


def calibrate(seconds: float, say: Callable[[str], None]) -> Costs:
    """Measure everything, each for `seconds`."""
    machine = describe_machine()
    readings, sensor_shard, reading_bytes, sensor_shard_mb = _readings(seconds)
    say(f"readings: {readings}")
    frames, frame_bytes, sensor_mb = _frames(seconds)
    say(f"thermal frames: {frames}")
    camera_shard, camera_shard_mb = _empty(seconds)
    pictures, camera_mb = {}, {}
    for codec in ("jpeg", *BITS):
        pictures[codec], camera_mb[codec] = _pictures(codec, seconds, camera_shard, camera_shard_mb)
        say(f"{codec}: {pictures[codec]}")
    hub = _hub(seconds)
    say(f"the hub: {hub[0]:.3f} cores, and {hub[1] * 1e6:.0f} µs/s a device")
    return Costs(
        measured=f"{datetime.now(UTC):%Y-%m-%d} on {machine['cores']} cores of {machine['cpu']}",
        readings=readings, frames=frames, reading_bytes=reading_bytes, frame_bytes=frame_bytes, pictures=pictures,
        sensor_shard_mb=sensor_shard_mb, sensor_mb=sensor_mb, camera_shard_mb=camera_shard_mb, camera_mb=camera_mb,
        sensor_shard=sensor_shard, camera_shard=camera_shard,
        hub_idle=hub[0], hub_device=hub[1], hub_mb=hub[2], hub_device_mb=hub[3],
    )  # fmt: skip


def _curve(points: Sequence[tuple[float, float]], idle: float) -> Curve:
    """Cores by rate, without those of an idle shard; the curve never falls."""
    curve: list[tuple[float, float]] = []
    for rate, cores in points:
        curve.append((rate, max(cores - idle, curve[-1][1] if curve else 0.0)))
    return Curve(tuple(curve))


def _readings(seconds: float) -> tuple[Curve, float, float, float]:
    """Cores by readings/s, cores of an idle shard, bytes of a reading on the network, MB of the shard."""
    dice = random.Random(1)
    lines = [[reading_line(f"device-{number}", dice) for _ in range(8)] for number in range(SENSORS)]
    with Server("shard", SENSORS) as server:
        memory = server.ask()["memory_kb"] / 1024
        sockets = connect(server.ports["tcp"], SENSORS)
        paced(sockets, lines, RATES[0], 0.5)
        before = server.cpu()
        time.sleep(seconds)
        idle = (server.cpu() - before) / seconds
        points = [(rate * SENSORS, _paced_cores(server, sockets, lines, rate, seconds)) for rate in RATES]
        close(sockets)
    return _curve(points, idle), idle, len(lines[0][0]) + HEADERS, memory


def _paced_cores(
    server: Server, sockets: Sequence[socket.socket], lines: Sequence[Sequence[bytes]], rate: float, seconds: float
) -> float:
    before, began = server.cpu(), time.perf_counter()
    paced(sockets, lines, rate, seconds)
    return (server.cpu() - before) / (time.perf_counter() - began)


def _frames(seconds: float) -> tuple[Curve, float, float]:
    """Cores by thermal frames/s, bytes of a frame on the network, MB of a sensor that sends them."""
    with Server("shard", FRAME_SENSORS) as server:
        before_mb = server.ask()["memory_kb"] / 1024
        sockets = connect(server.ports["tcp"], FRAME_SENSORS)
        lines = []
        for number, connection in enumerate(sockets):
            calibration, frames = frame_lines(number, 8)
            connection.sendall(calibration)
            lines.append([frame + b"!" for frame in frames.split(b"!")[:-1]])
        paced(sockets, lines, FRAME_RATES[0], 1.0)
        server.idle_counters(0.3)  # calibrations are computed once
        points = [(rate * FRAME_SENSORS, _paced_cores(server, sockets, lines, rate, seconds)) for rate in FRAME_RATES]
        grown = server.ask()["memory_kb"] / 1024 - before_mb
        close(sockets)
    return _curve(points, 0.0), len(lines[0][0]) + 3 * HEADERS, max(grown, 0.0) / FRAME_SENSORS


def _empty(seconds: float) -> tuple[float, float]:
    """Cores and MB of a camera shard without cameras."""
    with fleet("push", draw(), 0, CAMERA_RATE) as empty:
        before = empty.shard.cpu
        time.sleep(seconds)
        return (empty.shard.cpu - before) / seconds, resident_mb(empty.shard.pid)


@contextlib.contextmanager
def _cameras(codec: str, films: Films, count: int) -> Iterator[Fleet]:
    if codec == "jpeg":
        with fleet("push", films, count, CAMERA_RATE) as running:
            yield running
    else:
        with video_fleet(films, count, CAMERA_RATE, codec.upper()) as (_, running):
            yield running


def _pictures(codec: str, seconds: float, idle: float, bare: float) -> tuple[PictureCost, float]:
    """The cost of pictures of a codec, and MB of a camera; `idle` cores and `bare` MB are those of an empty shard."""
    jpeg = codec == "jpeg"
    small, large = (draw(), enlarge(draw(), *LARGE)) if jpeg else (small_films(), hd_films())
    pixels, most = (640 * 480, LARGE[0] * LARGE[1]) if jpeg else (640 * 360, HD[0] * HD[1])
    points, memory = [], 0.0
    for count in CAMERAS:
        with _cameras(codec, small, count) as running:
            measured = running.round(seconds)
            if measured.rate < REACHED * count * CAMERA_RATE:
                sent = f"{count * CAMERA_RATE:g} pictures/s of {codec}"
                raise UserError(f"{measured.rate:.0f} of {sent} were analysed: this machine is busy or too slow")
            points.append((measured.rate, measured.cores))
            memory = max(0.0, resident_mb(running.shard.pid) - bare) / count
    curve = _curve(points, idle)
    with _cameras(codec, large, LARGE_CAMERAS if jpeg else HD_CAMERAS) as running:
        measured = running.round(seconds)
    more = (measured.cores - idle - curve.cores(measured.rate)) / measured.rate
    bits = 8 * small.mean_bytes / pixels if jpeg else BITS[codec]
    return PictureCost(curve, pixels, max(0.0, more / (most - pixels) * MEGAPIXEL), bits), memory


def _hub(seconds: float) -> tuple[float, float, float, float]:
    """Cores of the hub itself, cores per device, MB of the hub, MB per device."""
    by_devices = {}
    for devices in (1, WATCHED):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            site = Site(Path(name), devices, "")
            pids = []
            for command in (site.hub_command, site.shard_command):
                process = subprocess.Popen([sys.executable, "-m", "embereye_cli", *command], stderr=subprocess.DEVNULL)
                stack.callback(terminate, process)
                pids.append(process.pid)
            asyncio.run(site.wait_ready())
            sockets = connect(site.tcp, devices)
            dice = random.Random(2)
            lines = [[reading_line(f"device-{number}", dice)] for number in range(devices)]
            paced(sockets, lines, 1.0, 2.0)
            before, began = cpu_seconds(pids[0]), time.perf_counter()
            paced(sockets, lines, 1.0, seconds)
            cores = (cpu_seconds(pids[0]) - before) / (time.perf_counter() - began)
            by_devices[devices] = (cores, resident_mb(pids[0]))
            close(sockets)
    (idle, base), (busy, grown) = by_devices[1], by_devices[WATCHED]
    return idle, max(0.0, busy - idle) / (WATCHED - 1), base, max(0.0, grown - base) / (WATCHED - 1)
