"""The cost of a sensor's candidate: `embereye.sensor.candidate`."""

import asyncio
import random
import time

import numpy as np

from embereye.detect.sensing.bands import BandTable
from embereye.sensor.candidate import QUEUED, SensorCandidate
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.tick import TickBatcher
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Candidate, SensorSettings
from embereye.v1.types_pb2 import Device
from embereye_bench.report import Result, Scale, median
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

SENSORS, RATE = 1000, 10
CALM = (200.0, 900.0, 400.0, 0.0)  # smoke, flame, gas, digital flame
BETWEEN = 1343.0  # gas between both thresholds, at one sensor of a hundred


def candidate(scale: Scale) -> Result:
    """Measure the candidate of 1,000 sensors whose readings arrive in batches. Baseline: their analysis in force."""
    return asyncio.run(_candidate(scale))


async def _candidate(scale: Scale) -> Result:
    settings, changed = build_sensor_settings(SensorFleetSpec()), SensorSettings()
    changed.CopyFrom(settings)
    changed.gas.alarm_ppm = 4000
    dice, table = random.Random("candidate"), BandTable()
    names = [f"device-{number}" for number in range(SENSORS)]
    devices = {name: SensorDevice(Device(id=name, zone="hall"), settings, table) for name in names}
    judging = SensorCandidate(Candidate(name="bench", id="1", sensor=changed))

    def observe(signs: list[Sign], now_ns: int) -> None:
        for sign in signs:
            judging.note_in_force(sign, now_ns, "")

    batcher = TickBatcher(table, observe)
    batcher.configure(settings)
    batcher.candidate = judging
    judging.watch(devices)
    assert SENSORS * RATE <= QUEUED
    now_ns, costs, baselines = time.time_ns(), list[float](), list[float]()
    for _ in range(max(scale.rounds, 3) * 5):
        now_ns += SECOND
        before = judging.counts.cpu_seconds
        for number, device in enumerate(devices.values()):
            rows = np.array([CALM] * RATE)
            rows[:, 0] += dice.randrange(20)
            rows[:, 2] = BETWEEN if number % 100 == 0 else CALM[2]
            batcher.add_rows(device, rows)
        began = time.thread_time()
        batcher.analyse_collected(now_ns)
        baselines.append(time.thread_time() - began)
        judging.work()
        judging.differences(now_ns)
        costs.append(judging.counts.cpu_seconds - before)
    judging.close(devices.values())
    value, baseline = median(costs) * 100, median(baselines) * 100
    unit = f"% of a core for {SENSORS:,} sensors at {RATE}/s"
    return Result("candidate-1000x10hz", value, unit, baseline, value / baseline, "≤ the baseline", value <= baseline)
