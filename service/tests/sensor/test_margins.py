"""The margins of sensors: the highest of quiet readings, and the strongest results."""

from typing import Any

import numpy as np
from harness.settings import sensor_settings

from embereye.detect.sensing.bands import BandTable
from embereye.margins import Margin
from embereye.sensor.device.recent import PieceKind
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.margins import margins_of
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

START = 1_700_000_000 * SECOND
STEP = 5 * SECOND
DEADLINE = 60 * SECOND


def sensor() -> SensorDevice:
    device = SensorDevice(Device(id="s-1", zone="hall"), sensor_settings(), BandTable())
    device.arrivals.recent.limit = 64 * 1024
    return device


def send_quiet(device: SensorDevice, lines: bytes, now_ns: int) -> None:
    """Let a device send lines as a session does: quiet ones are not parsed."""
    prefix = b"#Sensor:"
    matches = [device.readings.quiet_line(line + b"!", len(prefix)) for line in lines.split(b"!") if line.strip()]
    assert all(matches)
    for match in matches:
        device.arrivals.count_quiet_lines([match], now_ns)  # type: ignore[list-item]


def peaks(margin: Margin) -> dict[str, Any]:
    return {peak["kind"]: peak for peak in margin["peaks"]}


def later(device: SensorDevice, step: int) -> list[Margin]:
    return list(margins_of([device], START + step * STEP, DEADLINE))


def test_the_highest_of_quiet_lines_stands_beside_the_limit_of_an_alarm() -> None:
    device = sensor()
    assert later(device, 0) == []
    for number, smoke in enumerate((100, 250, 200)):
        send_quiet(device, b"#Sensor:ADC1=%d,ADC2=8,ADC3=9,DIO=0!" % smoke, START + (number + 1) * SECOND)
    (margin,) = later(device, 1)
    assert (margin["fromNs"], margin["untilNs"], margin["analysed"]) == (START, START + STEP, 3)
    smoke = peaks(margin)["smoke"]
    name, value, limit, unit = smoke["nearest"]
    assert (name, unit, smoke["level"]) == ("smoke", "%", "clear")
    assert abs(value - 250 / device.readings.thresholds.full_scale * 100) < 0.01
    assert limit == device.readings.thresholds.smoke.alarm
    assert {"smoke", "flame", "gas"} == peaks(margin).keys()


def test_lines_that_came_together_or_in_an_odd_form_count_too() -> None:
    device = sensor()
    later(device, 0)
    send_quiet(device, b"#Sensor:ADC1=10,ADC2=8,ADC3=9,DIO=0!", START + SECOND)
    text = b"#Sensor:ADC1=20,ADC2=8,ADC3=9,DIO=0!\r\n#Sensor:ADC3=9,ADC1=30!\r\n"
    device.arrivals.recent.add(PieceKind.LINES, text, START + 2 * SECOND)
    device.arrivals.recent.add_rows(np.array([[40.0, np.nan, 1.0, 0.0]]), START + 3 * SECOND)
    (margin,) = later(device, 1)
    value = peaks(margin)["smoke"]["nearest"][1]
    assert abs(value - 40 / device.readings.thresholds.full_scale * 100) < 0.01


def test_a_sign_between_two_margins_is_the_peak_although_it_is_over() -> None:
    device = sensor()
    later(device, 0)
    full = device.readings.thresholds.full_scale
    device.analyse_readings(np.array([[full, 8.0, 9.0, 0.0], [7.0, 8.0, 9.0, 0.0]]), START + SECOND)
    (margin,) = later(device, 1)
    assert peaks(margin)["smoke"]["level"] == "alarm"
    device.analyse_readings(np.array([[7.0, 8.0, 9.0, 0.0]]), START + STEP + SECOND)
    (margin,) = later(device, 2)
    assert peaks(margin)["smoke"]["level"] == "clear"


def test_a_digital_flame_output_halves_what_is_missing() -> None:
    device = sensor()
    later(device, 0)
    device.analyse_readings(np.array([[7.0, 8.0, 9.0, 1.0]]), START + SECOND)
    (margin,) = later(device, 1)
    flame = peaks(margin)["flame"]
    assert flame["level"] == "pre-alarm"
    assert flame["nearest"][2] == device.readings.thresholds.flame.pre_alarm
    assert flame["note"] == "digital flame output alone"


def test_a_silent_device_says_why_nothing_was_watched() -> None:
    device = sensor()
    later(device, 0)
    (margin,) = list(margins_of([device], START + 2 * DEADLINE, DEADLINE))
    assert margin["blind"]
    assert "analysed" not in margin
    assert margin["peaks"] == []


def test_what_was_shed_is_counted_by_reason() -> None:
    device = sensor()
    later(device, 0)
    device.arrivals.shed("overflow", 3)
    device.arrivals.refuse("bad value")
    (margin,) = later(device, 1)
    assert (margin["shed"], margin["rejected"]) == ({"overflow": 3}, {"bad value": 1})
