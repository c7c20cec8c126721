"""The cost of sensors' margins, by which people learn why there was no alarm: `embereye.sensor.margins`."""

import random
import time

from embereye.detect.sensing.bands import BandTable
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.margins import margins_of
from embereye.sensor.recorder import DEVICE_BYTES, RECENT_BYTES
from embereye.shard.margins import DEVICE_DAY_BYTES, SPAN_TICKS, Margins
from embereye.units import DAY, SECOND
from embereye.v1.types_pb2 import Device
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import reading_line
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_sensor_settings

SENSORS, RATE, SPAN_S = 1000, 10, 5
BLOCK_SPANS = 6  # of 5 s: a shard ends a block every 30 s


def margins(scale: Scale) -> Result:
    """Measure the margins of 1,000 sensors at 10 Hz. Baseline: matching the lines, which is their other cost."""
    dice, table, settings = random.Random("margins"), BandTable(), build_sensor_settings(SensorFleetSpec())
    named = [Device(id=f"device-{number}", zone="hall") for number in range(SENSORS)]
    devices = [SensorDevice(device, settings, table) for device in named]
    for device in devices:
        device.arrivals.recent.limit = min(DEVICE_BYTES, RECENT_BYTES // SENSORS)
    collected = Margins(lambda: ("bench/sensors/hall", "hall-0"))
    now_ns, size, spans = time.time_ns(), 0, max(scale.rounds, 3) * BLOCK_SPANS
    costs, baselines = list[float](), list[float]()
    for span in range(spans + 1):
        lines = [[reading_line("", dice) for _ in range(RATE * SPAN_S)] for _ in devices]
        began = time.process_time()
        for device, sent in zip(devices, lines, strict=True):
            for number, line in enumerate(sent):
                match = device.readings.quiet_line(line, line.index(b"ADC1"))
                if match:
                    device.arrivals.count_quiet_lines([match], now_ns + number * SECOND // RATE)
        matched = time.process_time() - began
        now_ns += SPAN_S * SECOND
        began = time.process_time()
        for tick in range(SPAN_TICKS):
            for margin in margins_of(devices[tick::SPAN_TICKS], now_ns, DAY):
                collected.add(margin)
        if span % BLOCK_SPANS == 0:
            collected.end_block()
        if span:  # the first call for a device only begins its span
            costs.append(time.process_time() - began)
            baselines.append(matched)
    while (block := collected.next_block()) is not None:
        size += len(block.content)
    day = size / SENSORS / (spans * SPAN_S) * 86_400
    value, baseline = median(costs) / SPAN_S * 100, median(baselines) / SPAN_S * 100
    unit = f"% of a core for {SENSORS:,} sensors at {RATE}/s; {day / 1e6:.2f} MB a device-day"
    ok = value <= 2 * baseline and day <= DEVICE_DAY_BYTES
    return Result("margins-1000x10hz", value, unit, baseline, value / baseline, "≤ 2 of the baseline, ≤ 2 MB", ok)
