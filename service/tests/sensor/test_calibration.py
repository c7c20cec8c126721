"""Calibration of single sensors, and its measurement by `calibrate`."""

import json
import math
import random
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import yaml
from harness.settings import sensor_settings
from hypothesis import given
from hypothesis import strategies as st

from embereye.detect.sensing.bands import BandTable
from embereye.detect.sensing.calibration import settings_of
from embereye.detect.sensing.mq135 import MIN_KOHM, Mq135, r0_kohm, resistance_kohm
from embereye.detect.sensing.mq135 import ppm as ppm_of
from embereye.detect.sensing.thresholds import board_of
from embereye.levels import Kind, Level
from embereye.process.lifecycle import UserError
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import device_status, measurements
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND
from embereye.v1.shard_pb2 import GasThresholds, SensorSettings
from embereye.v1.types_pb2 import Device, DigitalFlame, SensorCalibration
from embereye_cli.devices import calibrate_gas as calibrate

SETTINGS = sensor_settings()
BOARD = board_of(SETTINGS.gas)
NAN = math.nan


def sensor(settings: SensorSettings | None = None, **calibration: Any) -> SensorDevice:
    spec = Device(id="s", zone="hall", calibration=SensorCalibration(**calibration))
    return SensorDevice(spec, settings or SETTINGS, BandTable())


def ppm(adc: float, board: Mq135 = BOARD) -> float:
    return float(ppm_of(adc, board, 4095))


def say(device: SensorDevice, *row: float) -> dict[int, int]:
    signs: list[Sign] = device.analyse_readings(np.array([row]), 10 * SECOND)
    return {sign.kind: sign.level for sign in signs}


def latest(device: SensorDevice) -> dict[str, float]:
    return {name: value for name, value, _ in measurements(device)}


def test_a_device_without_calibration_has_its_fleets_settings() -> None:
    fleet = SensorSettings(emissivity=0.9, converter_bits=10, gas=GasThresholds(r0_kohm=50, load_kohm=20))
    device = settings_of(Device(calibration=SensorCalibration(r0_kohm=30, emissivity=0.5)), fleet)
    assert (device.emissivity, device.converter_bits) == (0.5, 10)
    assert (device.gas.r0_kohm, device.gas.load_kohm) == (30, 20)
    assert settings_of(Device(), fleet) == fleet


def test_the_share_of_the_range_counts_not_the_number_of_bits() -> None:
    device = sensor(converter_bits=10)
    assert say(device, 0.3 * 1023, 300, 100, 0) == {Kind.SMOKE: Level.ALARM}
    assert latest(device)["smoke"] == pytest.approx(30)
    assert latest(device)["gas"] == pytest.approx(ppm(100 * 4095 / 1023))


def test_counts_beyond_the_converters_range_are_a_fault_of_that_device() -> None:
    coarse, fine = sensor(converter_bits=10), sensor()
    assert say(coarse, 1200, 300, 100, 0) == {}
    assert (
        device_status(coarse, 10 * SECOND, SECOND).reason
        == "smoke reads 1200 counts, outside its converter's 0 to 1023"
    )
    assert "smoke" not in latest(coarse)
    assert say(fine, 1200, 300, 100, 0) == {Kind.SMOKE: Level.ALARM}


def test_an_active_low_output_reports_flame_as_zero() -> None:
    device = sensor(digital_flame=DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW)
    assert say(device, 283, 1305, 2, 1) == {}
    assert device.readings.quiet_line(b"ADC1=283,ADC2=1305,ADC3=2,DIO=1!", 0)  # its rest changes nothing
    assert not device.readings.quiet_line(b"ADC1=283,ADC2=1305,ADC3=2,DIO=0!", 0)
    assert say(device, 283, 1305, 2, 0) == {Kind.FLAME: Level.PRE_ALARM}
    assert latest(device)["flame.digital"] == 1
    fleet = sensor_settings(flame={"digital": "activeLow"})
    assert say(sensor(fleet), 283, 1305, 2, 0) == {Kind.FLAME: Level.PRE_ALARM}
    assert say(sensor(fleet, digital_flame=DigitalFlame.DIGITAL_FLAME_ACTIVE_HIGH), 283, 1305, 2, 0) == {}


def test_a_supply_above_the_converters_reference_makes_the_same_counts_less_gas() -> None:
    five_volts = BOARD._replace(supply_ratio=5 / 3.3)
    assert ppm(1000, five_volts) < ppm(1000)
    # 10 kOhm beside 20 kOhm: a third of 5 V, of which a converter of 3.3 V makes half its range.
    counts = 5 / 3 / 3.3 * 4095
    assert resistance_kohm(counts, five_volts, 4095) == pytest.approx(20, rel=1e-4)


def test_a_converter_at_its_end_is_an_alarm_whatever_the_supply() -> None:
    fleet = sensor_settings(gas={"supplyRatio": 3, "alarmPpm": 900_000})
    device = sensor(fleet)
    assert say(device, 283, 1305, 1300, 0) == {}
    assert say(device, 283, 1305, 4095, 0)[Kind.GAS] == Level.ALARM


def test_another_gas_has_another_curve() -> None:
    ammonia = BOARD._replace(curve_scale=102.2, curve_exponent=-2.473)
    assert ppm(4095 * 10 / 86.63, ammonia) == pytest.approx(102.2, rel=1e-4)


@given(st.floats(1, 400), st.floats(200, 5000), st.floats(0.5, 3))
def test_the_measured_r0_gives_back_the_air_it_was_measured_in(kohm: float, amount: float, supply: float) -> None:
    r0 = r0_kohm(kohm, amount, curve_scale=BOARD.curve_scale, curve_exponent=BOARD.curve_exponent)
    limits = BOARD._replace(r0_kohm=r0, supply_ratio=supply, load_kohm=10)
    counts = 4095 * supply * 10 / (10 + kohm)
    if counts < 4094:
        assert ppm(counts, limits) == pytest.approx(amount, rel=1e-3)


@given(st.integers(8, 16), st.floats(0.3, 3), st.floats(0, 1), st.sampled_from([0.0, 1.0]), st.booleans())
def test_a_skipped_reading_would_not_have_changed_a_level(
    bits: int, supply: float, share: float, digital: float, low: bool
) -> None:
    polarity = DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW if low else DigitalFlame.DIGITAL_FLAME_ACTIVE_HIGH
    devices = [sensor(converter_bits=bits, supply_ratio=supply, digital_flame=polarity) for _ in range(2)]
    counts = round(share * (2**bits - 1))
    row = (counts, round(0.3 * 2**bits), counts, digital)
    if devices[0].readings.quiet_line(b"ADC1=%d,ADC2=%d,ADC3=%d,DIO=%d!" % row, 0):
        for sign in devices[1].readings._assess_row(row, 11 * SECOND):
            pytest.fail(f"{row} means {sign}")


class Hub(BaseHTTPRequestHandler):
    dice = random.Random(5)
    resistance = 60.0
    drift = 0.0
    delay = 0.0  # seconds before an answer
    entry: Mapping[str, object] = MappingProxyType({})

    def do_GET(self) -> None:
        type(self).resistance += self.drift
        time.sleep(self.delay)
        terms = [{"name": "gas.resistance", "value": self.resistance * self.dice.uniform(0.99, 1.01), "unit": "kOhm"}]
        body = json.dumps({"devices": [{"id": "s-1", "covered": True, "reason": "", "latest": terms, **self.entry}]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object, **_: object) -> None: ...


@contextmanager
def hub(**state: object) -> Iterator[str]:
    handler = type("Handler", (Hub,), state)
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "PERIOD", 0.01)


def calibrated(console: str, *arguments: str, device: str = "s-1") -> int:
    parser = ArgumentParser()
    calibrate.add_arguments(parser)
    return calibrate.run(parser.parse_args([device, "--console", console, *arguments]))


@pytest.mark.usefixtures("quick")
def test_calibrating_prints_the_settings_for_the_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as console:
        assert calibrated(console, "--seconds", "0.3") == 0
    printed = capsys.readouterr().out
    clean_air = float(printed.rpartition("cleanAirKilohm: ")[2].rstrip("}\n"))
    assert ppm(4095 * 10 / 70, BOARD._replace(r0_kohm=clean_air)) == pytest.approx(425, rel=0.05)
    assert BOARD.r0_kohm != pytest.approx(clean_air)


@pytest.mark.usefixtures("quick")
def test_a_slow_hub_makes_calibrating_take_longer_and_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    with hub(delay=0.05) as console:
        assert calibrated(console, "--seconds", "0.1") == 0
    assert "cleanAirKilohm" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("device", ["1235", "no", "s-1", "1e3"])
def test_a_fleet_accepts_the_settings_that_calibrating_prints(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    with hub(entry={"id": device}) as console:
        assert calibrated(console, "--seconds", "0.3", device=device) == 0
    (entry,) = yaml.safe_load(capsys.readouterr().out)
    assert entry["id"] == device
    assert entry["calibration"]["cleanAirKilohm"] > 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"drift": -0.5}, "Let the sensor warm up"),
        ({"entry": {"covered": False, "reason": "silent"}}, "s-1 is not covered: silent"),
        ({"entry": {"latest": []}}, "reports no gas"),
        ({"resistance": MIN_KOHM}, "R0 would be .* Check it for a short circuit or a broken wire"),
        ({"resistance": float(resistance_kohm(0, BOARD, 4095))}, "R0 would be .* Check it for a short circuit"),
        ({"entry": {"id": "other"}}, "there is no device s-1: no fleet declares it"),
    ],
)
def test_an_error_names_air_or_a_sensor_that_cannot_be_calibrated(state: dict[str, object], sentence: str) -> None:
    with hub(**state) as console, pytest.raises(UserError, match=sentence):
        calibrated(console, "--seconds", "0.3")


@pytest.mark.parametrize("option", [["--seconds", "1"], ["--ppm", "0"], ["--curve-exponent", "2"]])
def test_calibrating_refuses_options_that_make_no_sense(option: list[str]) -> None:
    with pytest.raises(UserError, match=option[0]):
        calibrated("http://127.0.0.1:1", *option)


@pytest.mark.usefixtures("quick")
def test_the_reason_for_the_end_of_calibrating_is_on_a_separate_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    answers: Iterator[float | UserError] = iter([60.0, UserError("s-1 is not covered: silent")])

    def measured(*_: object) -> float:
        answer = next(answers)
        if isinstance(answer, UserError):
            raise answer
        return answer

    monkeypatch.setattr(calibrate, "_resistance", measured)
    with pytest.raises(UserError):
        calibrated("http://127.0.0.1:1", "--seconds", "1")
    assert capsys.readouterr().err.endswith("\r\x1b[K")
