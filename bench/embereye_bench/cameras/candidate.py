"""The cost of a camera's candidate: `embereye.camera.candidate`."""

import time

from embereye.camera.candidate import CameraCandidate
from embereye.camera.decode.image import Decoded
from embereye.camera.device.camera import CameraDevice
from embereye.camera.replay import START_NS, Replay
from embereye.camera.scheduling.mailbox import Frame
from embereye.sim.scenes.scene import render
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Assignment, CameraSettings, Candidate
from embereye_bench.cameras.margins import HEIGHT, RATE, SPAN_S, SPANS, WIDTH
from embereye_bench.report import Benchmark, Result, Scale
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings


def candidate(scale: Scale) -> Result:
    """Measure the candidate of one camera at 15/s while a fire grows. Baseline: decoding and analysis in force."""
    settings, changed = build_camera_settings(CameraFleetSpec()), CameraSettings()
    changed.CopyFrom(settings)
    changed.flame_threshold = 0.6
    judging = CameraCandidate(Candidate(name="bench", id="1", camera=changed), "bench/cameras/yard")

    def judge(camera: CameraDevice, frame: Frame, decoded: Decoded | None) -> None:
        judging.judge(camera, frame, decoded, START_NS + round(replay.seconds * SECOND), None, Assignment())

    replay = Replay(settings, analysed=judge)
    judging.watch({replay.camera.device.id: replay.camera}, START_NS)
    loops = render(WIDTH, HEIGHT, 5, float(RATE))
    frames, count = [*loops.quiet, *loops.growth], scale.rounds * SPANS * SPAN_S * RATE
    began = time.thread_time()
    for number in range(count):
        replay.show(frames[number % len(frames)], number / RATE)
    spent, seconds = time.thread_time() - began, count / RATE
    value = judging.counts.cpu_seconds / seconds * 100
    baseline = (spent - judging.counts.cpu_seconds) / seconds * 100
    unit = f"% of a core for a camera at {RATE}/s, with a fire half of the time"
    return Result("candidate-camera", value, unit, baseline, value / baseline, "≤ the baseline", value <= baseline)


BENCHMARKS: dict[str, Benchmark] = {"candidate-camera": candidate}
