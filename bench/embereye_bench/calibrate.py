"""Measure what one reading, frame, picture and device cost on this machine, for `embereye plan --costs FILE`."""

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from embereye.process.lifecycle import UserError, raise_descriptor_limit
from embereye.process.telemetry.usage import cpu_seconds, resident_mb
from embereye_bench.cameras.jpeg import Fleet, fleet
from embereye_bench.cameras.video import hd_films, small_films, video_fleet
from embereye_bench.films import Films, draw, enlarge
from embereye_bench.hub.alarm_path import Site
from embereye_bench.results.records import describe_machine
from embereye_bench.sensors.load import Server, close, connect, frame_lines, paced, reading_line
from embereye_operator.decide.capacity.costs import MEGAPIXEL, Costs, PictureCost

SENSORS, RATE, FRAME_RATE = 200, 10.0, 4.0
FRAME_SENSORS = 50
HEADERS = 40 + 32  # bytes of TCP and IP for each packet and, every other one, its acknowledgement
CAMERAS, CAMERA_RATE = 20, 10.0
LARGE_CAMERAS = 4
LARGE = (1280, 960)
WATCHED = 500  # devices that a hub is told of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--calibrate", action="store_true", help="measure what things cost here, for `embereye plan`")
    parser.add_argument("--to", type=Path, default=Path("costs.json"), metavar="FILE", help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write; returns the exit code."""
    if not arguments.calibrate:
        raise UserError("say what to measure: sensors, cameras, hub, …, or --calibrate; see embereye bench --help")
    if not 0.5 <= arguments.seconds <= 600:
        raise UserError(f"--seconds {arguments.seconds:g} is not between 0.5 and 600")
    raise_descriptor_limit()
    costs = calibrate(arguments.seconds, lambda line: print(line, file=sys.stderr, flush=True))
    try:
        arguments.to.write_text(costs.to_json())
    except OSError as error:
        raise UserError(f"--to {arguments.to} cannot be written: {error.strerror}") from error
    print(f"written to {arguments.to}: embereye plan --costs {arguments.to} …")
    return 0


def calibrate(seconds: float, say: Callable[[str], None]) -> Costs:
    """Measure everything, each for `seconds`."""
    machine = describe_machine()
    where = f"{datetime.now(UTC):%Y-%m-%d} on {machine['cores']} cores of {machine['cpu']}"
    reading, idle, reading_bytes, memory = _readings(seconds)
    say(f"a reading: {reading * 1e6:.1f} µs")
    frame, frame_bytes, thermal_mb = _frames(seconds)
    say(f"a thermal frame: {frame * 1e6:.1f} µs")
    jpeg, camera_shard_mb, camera_idle, jpeg_mb = _jpeg(seconds)
    say(f"a JPEG of 640x480: {jpeg.seconds(640 * 480) * 1e3:.2f} ms")
    pictures, camera_mb = {"jpeg": jpeg}, {"jpeg": jpeg_mb}
    for codec in ("h264", "h265"):
        pictures[codec], camera_mb[codec] = _video(codec.upper(), seconds, camera_shard_mb, camera_idle)
        say(f"a picture of {codec}, 640x360: {pictures[codec].seconds(640 * 360) * 1e3:.2f} ms")
    hub = _hub(seconds)
    say(f"the hub: {hub[0]:.3f} cores, and {hub[1] * 1e6:.0f} µs/s a device")
    return Costs(
        measured=where, reading=reading, frame=frame, reading_bytes=reading_bytes, frame_bytes=frame_bytes,
        pictures=pictures, sensor_shard_mb=memory, sensor_mb=thermal_mb, camera_shard_mb=camera_shard_mb,
        camera_mb=camera_mb, shard_idle=max(idle, camera_idle),
        hub_idle=hub[0], hub_device=hub[1], hub_mb=hub[2], hub_device_mb=hub[3],
    )  # fmt: skip


def _readings(seconds: float) -> tuple[float, float, float, float]:
    """CPU seconds of a reading, cores of an idle shard, bytes of a reading on the network, MB of the shard."""
    dice = random.Random(1)
    lines = [[reading_line(f"device-{number}", dice) for _ in range(8)] for number in range(SENSORS)]
    with Server("shard", SENSORS) as server:
        memory = server.ask()["memory_kb"] / 1024
        sockets = connect(server.ports["tcp"], SENSORS)
        paced(sockets, lines, RATE, 0.5)
        before = server.cpu()
        time.sleep(seconds / 2)
        idle = (server.cpu() - before) / (seconds / 2)
        before, began = server.cpu(), time.perf_counter()
        sent = paced(sockets, lines, RATE, seconds)
        spent = server.cpu() - before - idle * (time.perf_counter() - began)
        close(sockets)
    return max(spent, 0.0) / sent, idle, len(lines[0][0]) + HEADERS, memory


def _frames(seconds: float) -> tuple[float, float, float]:
    """CPU seconds of a thermal frame, its bytes on the network, MB of a sensor that sends them."""
    with Server("shard", FRAME_SENSORS) as server:
        before_mb = server.ask()["memory_kb"] / 1024
        sockets = connect(server.ports["tcp"], FRAME_SENSORS)
        lines = []
        for number, connection in enumerate(sockets):
            calibration, frames = frame_lines(number, 8)
            connection.sendall(calibration)
            lines.append([frame + b"!" for frame in frames.split(b"!")[:-1]])
        paced(sockets, lines, FRAME_RATE, 1.0)
        before = server.cpu()
        sent = paced(sockets, lines, FRAME_RATE, seconds)
        spent = server.cpu() - before
        grown = server.ask()["memory_kb"] / 1024 - before_mb
        close(sockets)
    return spent / sent, len(lines[0][0]) + 3 * HEADERS, max(grown, 0.0) / FRAME_SENSORS


def _each(running: Fleet, idle: float, seconds: float) -> float:
    """CPU seconds of a picture."""
    measured = running.round(seconds)
    return max(measured.cores - idle, 0.0) / max(measured.rate, 1e-9)


def _jpeg(seconds: float) -> tuple[PictureCost, float, float, float]:
    """The cost of pushed JPEG, MB and cores of a shard without cameras, MB of a camera."""
    small = draw()
    large = enlarge(small, *LARGE)
    with fleet("push", small, 0, CAMERA_RATE) as empty:
        bare = resident_mb(empty.shard.pid)
        before = empty.shard.cpu
        time.sleep(seconds / 2)
        idle = (empty.shard.cpu - before) / (seconds / 2)
    with fleet("push", small, CAMERAS, CAMERA_RATE) as running:
        cost = _each(running, idle, seconds)
        memory = max(0.0, resident_mb(running.shard.pid) - bare) / CAMERAS
    with fleet("push", large, LARGE_CAMERAS, CAMERA_RATE) as running:
        more = _each(running, idle, seconds)
    return _line(cost, 640 * 480, more, LARGE[0] * LARGE[1], 8 * small.mean_bytes / (640 * 480)), bare, idle, memory


def _video(encoding: str, seconds: float, bare: float, idle: float) -> tuple[PictureCost, float]:
    """The cost of a codec's pictures, and MB of a camera."""
    found: list[float] = []
    memory = 0.0
    shapes: tuple[tuple[Films, int], ...] = ((small_films(), CAMERAS), (hd_films(), 2))
    for films, cameras in shapes:
        with video_fleet(films, cameras, CAMERA_RATE, encoding) as (_, running):
            found.append(_each(running, idle, seconds))
            if cameras == CAMERAS:
                memory = max(0.0, resident_mb(running.shard.pid) - bare) / cameras
    # What cameras are set to: some 0.1 bits a pixel for H.264, 0.07 for H.265.
    return _line(found[0], 640 * 360, found[1], 1920 * 1080, 0.1 if encoding == "H264" else 0.07), memory


def _line(cost: float, pixels: int, more: float, most: int, bits: float) -> PictureCost:
    """The line through two measurements; never less than nothing for a picture without pixels."""
    slope = max(0.0, (more - cost) / (most - pixels) * MEGAPIXEL)
    return PictureCost(each=max(0.0, cost - slope * pixels / MEGAPIXEL), per_megapixel=slope, bits_per_pixel=bits)


def _hub(seconds: float) -> tuple[float, float, float, float]:
    """Cores of the hub itself, cores for a device, MB of the hub, MB for a device."""
    found = {}
    for devices in (1, WATCHED):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            site = Site(Path(name), devices, "")
            pids = []
            for command in (site.hub_command, site.shard_command):
                process = subprocess.Popen([sys.executable, "-m", "embereye_cli", *command], stderr=subprocess.DEVNULL)
                stack.callback(_end, process)
                pids.append(process.pid)
            asyncio.run(site.ready())
            sockets = connect(site.tcp, devices)
            dice = random.Random(2)
            lines = [[reading_line(f"device-{number}", dice)] for number in range(devices)]
            paced(sockets, lines, 1.0, 2.0)
            before, began = cpu_seconds(pids[0]), time.perf_counter()
            paced(sockets, lines, 1.0, seconds)
            cores = (cpu_seconds(pids[0]) - before) / (time.perf_counter() - began)
            found[devices] = (cores, resident_mb(pids[0]))
            close(sockets)
    (idle, base), (busy, grown) = found[1], found[WATCHED]
    return idle, max(0.0, busy - idle) / (WATCHED - 1), base, max(0.0, grown - base) / (WATCHED - 1)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
