"""Compare `embereye plan` with real runs of other sizes than those at which its costs were measured."""

import random
import time
from importlib import resources

from embereye_bench.cameras.jpeg import fleet
from embereye_bench.cameras.video import small_films, video_fleet
from embereye_bench.films import draw
from embereye_bench.report import Benchmark, Result, Scale, Suite, median
from embereye_bench.sensors.load import Server, close, connect, frame_lines, paced, reading_line
from embereye_operator.decide.capacity.costs import Costs, parse_costs
from embereye_operator.decide.capacity.plan import CameraDemand, plan

WITHIN = 0.20  # share by which a plan may be wrong
SENSORS, RATE = 400, 5.0
THERMAL = 100  # devices that send readings and thermal frames in turn
CAMERAS, CAMERA_RATE = 40, 8.0


def recorded_costs() -> Costs:
    """The default costs of `embereye plan`."""
    package = resources.files("embereye_operator.decide.capacity")
    return parse_costs((package / "recorded.json").read_text())


def _result(name: str, measured: float, planned: float) -> Result:
    ratio = measured / planned
    return Result(name, measured, "cores; baseline: as planned", planned, ratio, "within 20 % of the plan",
                  abs(ratio - 1) <= WITHIN)  # fmt: skip


def sensors(scale: Scale) -> Result:
    """Measure text sensors; a quarter of them also send thermal frames."""
    dice, lines = random.Random(8), []
    with Server("shard", SENSORS) as server:
        sockets = connect(server.ports["tcp"], SENSORS)
        for number, connection in enumerate(sockets):
            readings = [reading_line(f"device-{number}", dice) for _ in range(8)]
            if number < THERMAL:
                calibration, frames = frame_lines(number, 8)
                connection.sendall(calibration)
                turns = zip(readings, frames.split(b"!")[:-1], strict=True)
                readings = [packet for reading, frame in turns for packet in (reading, frame + b"!")]
            lines.append(readings)
        paced(sockets, lines, RATE, 1.0)
        server.idle_counters(0.3)
        cores = []
        for _ in range(scale.rounds):
            before, began = server.cpu(), time.perf_counter()
            paced(sockets, lines, RATE, scale.seconds)
            cores.append((server.cpu() - before) / (time.perf_counter() - began))
        close(sockets)
    costs = recorded_costs()
    planned = costs.sensor_shard + costs.readings.cores((SENSORS - THERMAL / 2) * RATE)
    planned += costs.frames.cores(THERMAL * RATE / 2)
    return _result("plan-sensors", median(cores), planned)


def jpeg(scale: Scale) -> Result:
    """Measure cameras that push JPEG."""
    with fleet("push", draw(), CAMERAS, CAMERA_RATE) as running:
        cores = [running.round(scale.seconds).cores for _ in range(scale.rounds)]
    (need,) = plan([CameraDemand("c", CAMERAS, CAMERA_RATE, "jpeg", 640, 480, 4.0)], recorded_costs()).needs
    return _result("plan-jpeg", median(cores), need.cores)


def h264(scale: Scale) -> Result:
    """Measure H.264 cameras pulled by RTSP."""
    with video_fleet(small_films(), CAMERAS, CAMERA_RATE) as (_, running):
        cores = [running.round(scale.seconds).cores for _ in range(scale.rounds)]
    (need,) = plan([CameraDemand("c", CAMERAS, CAMERA_RATE, "h264", 640, 360, 4.0)], recorded_costs()).needs
    return _result("plan-h264", median(cores), need.cores)


BENCHMARKS: dict[str, Benchmark] = {"plan-sensors": sensors, "plan-jpeg": jpeg, "plan-h264": h264}
SUITE = Suite("plans against real runs", BENCHMARKS, full=Scale(4, 5.0), quick=Scale(2, 2.0))
add_arguments, run = SUITE.add_arguments, SUITE.run
