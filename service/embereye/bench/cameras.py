"""Measure the camera path: cores for a fleet, delay from arrival to analysis, memory, overload.

Every number stands beside a baseline that runs in the same command, in rounds that alternate with the measured ones;
values are medians over the rounds. The senders run on the same machine; their cores are told, and are not the shard's.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from embereye.bench import report
from embereye.bench.load import HOST
from embereye.bench.pictures import Films, draw
from embereye.bench.process import CameraShardProcess, Counters, Sender, free_ports, resident_mb
from embereye.bench.report import Result, Scale, median
from embereye.v1.shard_pb2 import Assignment, CameraSettings
from embereye.v1.types_pb2 import Device

CAMERAS, RATE = 100, 15.0  # frames/s each
SETTLE = 1.0  # seconds of sending before each round, not counted
DEADLINE_NS = 2_000_000_000
OFFERED, ANALYSED = "embereye_camera_frames_offered_total", "embereye_camera_frames_analysed_total"
SHED, REJECTED = "embereye_camera_frames_shed_total", "embereye_camera_frames_rejected_total"
DELAY = "embereye_camera_frame_delay_seconds_bucket"


@dataclass(frozen=True)
class Round:
    """What one round measured."""

    rate: float  # frames analysed/s
    cores: float
    sender: float  # cores
    dropped: int  # shed, rejected or not even sent
    buckets: dict[float, float]  # frames by upper bound of their delay in seconds, cumulative


def assignment(sources: list[str], *, fps_min: float = 5.0, target: float = RATE) -> Assignment:
    """A shard that owns camera-0 and so on."""
    return Assignment(
        fleet="bench/cameras/bench",
        shard="bench-0",
        epoch=1,
        devices=[
            Device(id=f"camera-{number}", zone=f"zone-{number}", source=source, fps_target=target, fps_min=fps_min)
            for number, source in enumerate(sources)
        ],
        camera=CameraSettings(deadline_ns=DEADLINE_NS, detectors=["motion", "flame"]),
    )


def quantile(buckets: dict[float, float], share: float) -> float:
    """The value below which `share` of what is counted lies, interpolated as Prometheus does; 0 of nothing."""
    total = buckets.get(float("inf"), 0.0)
    below, under = 0.0, 0.0
    for bound, count in sorted(buckets.items()):
        if total and count >= share * total:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (share * total - under) / max(1e-9, count - under)
        below, under = bound, count
    return 0.0


def _buckets(counters: Counters) -> dict[float, float]:
    found = {}
    for key, value in counters.values.items():
        if key.startswith(DELAY):
            found[float(key.partition('le="')[2].rstrip('"}'))] = value
    return found


@dataclass
class Fleet:
    """A shard and its senders."""

    shard: CameraShardProcess
    sender: Sender

    def round(self, seconds: float) -> Round:
        """Send for `seconds`, and let what is on its way arrive."""
        self.sender.tell("start")
        time.sleep(SETTLE)
        told, before = self.sender.tell("ask"), self.shard.counters()
        time.sleep(seconds)
        sent, after = self.sender.tell("ask"), self.shard.counters()
        self.sender.tell("stop")
        elapsed = after.at - before.at
        dropped = sum(after.total(name) - before.total(name) for name in (SHED, REJECTED))
        earlier = _buckets(before)
        return Round(
            rate=(after.total(ANALYSED) - before.total(ANALYSED)) / elapsed,
            cores=(after.cpu - before.cpu) / elapsed,
            sender=(sent["cpu"] - told["cpu"]) / elapsed,
            dropped=int(dropped) + sent["unsent"] - told["unsent"],
            buckets={bound: count - earlier.get(bound, 0.0) for bound, count in _buckets(after).items()},
        )


@contextlib.contextmanager
def fleet(kind: str, films: Films, cameras: int = CAMERAS, rate: float = RATE) -> Iterator[Fleet]:
    """`cameras` that send `rate` frames/s each by `kind`, to a shard of their own."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        films.save(folder / "films")
        hub = f"{HOST}:{free_ports(1)[0]}"
        options = ["--hub", hub, "--films", str(folder / "films"), "--cameras", str(cameras), "--rate", str(rate)]
        if kind == "push":
            shard = stack.enter_context(CameraShardProcess(assignment(["push:"] * cameras), folder, hub))
            shard.wait_ready(cameras)
            sender = stack.enter_context(Sender(kind, *options, "--target", shard.grpc))
        else:
            sender = stack.enter_context(Sender(kind, *options))
            sources = [f"http://{HOST}:{sender.told['port']}/{number}" for number in range(cameras)]
            shard = stack.enter_context(CameraShardProcess(assignment(sources), folder, hub))
            shard.wait_ready(cameras)
        yield Fleet(shard, sender)


def decoding(films: Films, seconds: float) -> float:
    """CPU seconds per frame of nothing but decoding, reduced as the shard does."""
    frames = [films.frame(camera, number) for camera in range(10) for number in range(10)]
    began, started, done = time.thread_time(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        cv2.imdecode(np.frombuffer(frames[done % len(frames)], np.uint8), cv2.IMREAD_REDUCED_COLOR_4)
        done += 1
    return (time.thread_time() - began) / done


def _fleet_result(kind: str, scale: Scale) -> Result:
    films = draw()
    rounds, baselines = [], []
    with fleet(kind, films) as running:
        for _ in range(scale.rounds):
            baselines.append(decoding(films, 0.1 * scale.seconds))
            rounds.append(running.round(scale.seconds))
    rate, cores, baseline = median([one.rate for one in rounds]), median([one.cores for one in rounds]), 0.0
    baseline = median(baselines) * CAMERAS * RATE
    dropped = sum(one.dropped for one in rounds)
    p99 = quantile({bound: sum(one.buckets[bound] for one in rounds) for bound in rounds[0].buckets}, 0.99) * 1e3
    sender = median([one.sender for one in rounds])
    unit = f"cores at {rate:,.0f} frames/s, {dropped} dropped, p99 {p99:.1f} ms; senders {sender:.2f} cores"
    ok = rate >= 0.99 * CAMERAS * RATE and not dropped and p99 <= 20 and cores <= 1.5
    reach = "≤ 1.5 cores, 1,500/s, 0 dropped, p99 ≤ 20 ms; baseline: decoding alone"
    return Result(f"fleet-{kind}", cores, unit, baseline, cores / baseline, reach, ok)


def fleet_push(scale: Scale) -> Result:
    """100 cameras that push over gRPC, each on a connection of its own."""
    return _fleet_result("push", scale)


def fleet_mjpeg(scale: Scale) -> Result:
    """100 cameras that are pulled as MJPEG over HTTP."""
    return _fleet_result("mjpeg", scale)


def fleet_memory(scale: Scale) -> Result:
    """Memory of a shard that 100 cameras push to; beside it a shard without cameras."""
    films = draw()
    with fleet("push", films, 0) as idle:
        baseline = resident_mb(idle.shard.pid)
    with fleet("push", films) as running:
        for _ in range(scale.rounds):
            running.round(scale.seconds)
        value = resident_mb(running.shard.pid)
    return Result("fleet-memory", value, "MB", baseline, value / baseline, "≤ 200 MB", value <= 200)


BENCHMARKS: dict[str, report.Benchmark] = {
    "fleet-push": fleet_push,
    "fleet-mjpeg": fleet_mjpeg,
    "fleet-memory": fleet_memory,
}
FULL, QUICK = Scale(5, 10.0), Scale(2, 1.5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    report.add_arguments(parser, list(BENCHMARKS))


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmarks; 1 where one of them falls short."""
    return report.run(arguments, "camera path", BENCHMARKS, full=FULL, quick=QUICK)
