"""The cost of a camera's margins, by which people learn why there was no alarm: `embereye.camera.margins`."""

import time

from embereye.camera.margins import margin_of
from embereye.camera.replay import START_NS, Replay
from embereye.shard.margins import DEVICE_DAY_BYTES, Margins
from embereye.sim.scenes.scene import render
from embereye.units import SECOND
from embereye_bench.report import Benchmark, Result, Scale
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings

RATE, SPAN_S = 15, 5
WIDTH, HEIGHT = 640, 480
SPANS = 6  # of 5 s: a shard ends a block every 30 s


def margins(scale: Scale) -> Result:
    """Measure the margins of one camera at 15/s while a fire grows. Baseline: the analysis of its frames."""
    replay = Replay(build_camera_settings(CameraFleetSpec()))
    loops = render(WIDTH, HEIGHT, 5, float(RATE))
    frames = [*loops.quiet, *loops.growth]
    collected, spent, analysed, number = Margins(lambda: ("bench/cameras/yard", "yard-0")), 0.0, 0.0, 0
    for _ in range(scale.rounds):
        for _ in range(SPANS * SPAN_S * RATE):
            began = time.process_time()
            seen = replay.show(frames[number % len(frames)], number / RATE)
            analysed += time.process_time() - began
            number += 1
            if seen:
                began = time.process_time()
                replay.camera.status.peaks.note(seen.findings)  # again, to be timed
                if number % (SPAN_S * RATE) == 0 and (
                    margin := margin_of(replay.camera, START_NS + number * SECOND // RATE)
                ):
                    collected.add(margin)
                spent += time.process_time() - began
        collected.end_block()
    size = 0
    while (block := collected.next_block()) is not None:
        size += len(block.content)
    seconds = number / RATE
    day = size / seconds * 86_400
    value, baseline = spent / seconds * 100, analysed / seconds * 100
    unit = f"% of a core for a camera at {RATE}/s; {day / 1e6:.2f} MB a device-day"
    ok = value <= 0.05 * baseline and day <= DEVICE_DAY_BYTES * 1.5
    return Result("margins-camera", value, unit, baseline, value / baseline, "≤ 5 % of the analysis, ≤ 2 MB", ok)


BENCHMARKS: dict[str, Benchmark] = {"margins-camera": margins}
