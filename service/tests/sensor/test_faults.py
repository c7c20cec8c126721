"""Broken sensors become faults of their device, and their values are not shown."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness.settings import sensor_settings

from embereye.detect.sensing.bands import BandTable
from embereye.detect.thermal.heat import extremes
from embereye.detect.thermal.mlx90640 import Calibration, words_of
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import device_status, measurements
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

START = 1_700_000_000 * SECOND
DEADLINE = 5 * SECOND
EEPROM = invent_eeprom(4)
CALIBRATION = Calibration.from_eeprom(EEPROM)
DICE = np.random.default_rng(3)
NAN = math.nan
SETTINGS = sensor_settings()


class Played:
    """A device that is inspected every 5 s, as in a shard."""

    def __init__(self) -> None:
        self.device = SensorDevice(Device(id="s", zone="hall"), SETTINGS, BandTable())
        self.device.calibrate(EEPROM.astype(">u2").tobytes(), START)
        self.now = START

    def read(self, *row: float, seconds: int = 5) -> str:
        for _ in range(seconds):
            self.now += SECOND
            self.device.analyse_readings(np.array([row]), self.now)
        return self.looked()

    def frame(self, words: bytes, per_look: int = 5) -> str:
        for _ in range(per_look):
            self.now += SECOND
            assert self.device.frames.calibration
            celsius = self.device.frames.calibration.temperatures(words_of(words)[None])
            self.device.analyse_frame(words, celsius[0], extremes(celsius)[0], self.now)
        return self.looked()

    def looked(self) -> str:
        self.device.inspect_sensors(self.now)
        return device_status(self.device, self.now, DEADLINE).reason

    @property
    def said(self) -> set[str]:
        return {name for name, _, _ in measurements(self.device)}


def words(spoil: Callable[[np.ndarray], None] | None = None, **state: Any) -> bytes:
    frame = measure(CALIBRATION, 22 + DICE.normal(0, 0.3, (24, 32)), **state)
    if spoil:
        spoil(frame)
    return frame.astype(">u2").tobytes()


def test_a_channel_that_falls_silent_is_a_fault_and_its_last_value_is_not_shown() -> None:
    played = Played()
    assert played.read(283, 1305, 400, 0) == ""
    assert "gas" in played.said
    for second in range(80):
        reason = played.read(283 + second % 3, 1305 + second % 2, NAN, 0, seconds=1)
    assert reason == "gas has not been reported for 79 s"
    assert "gas" not in played.said
    assert "smoke" in played.said
    assert played.read(283, 1305, 400, 0) == ""


def test_channels_in_separate_lines_are_not_silent() -> None:
    played = Played()
    for second in range(100):
        played.read(283 + second % 3, NAN, NAN, NAN, seconds=1)
        assert played.read(NAN, NAN, 400 + second % 3, NAN, seconds=1) == ""


def test_noise_that_crosses_a_threshold_is_a_fault_besides_the_alarm_it_raised() -> None:
    played = Played()
    for _ in range(60):
        reason = played.read(float(DICE.choice([20, 3000])), 1305, 2, 0, seconds=1)
    assert "smoke is noisy: it jumps by" in reason
    assert "smoke" not in played.said


def test_a_supply_outside_of_its_range_is_a_fault() -> None:
    played = Played()
    for _ in range(5):
        assert played.frame(words()) == ""
    assert "supply reads 2.80 V" in played.frame(words(vdd=2.8))
    assert "temperature.max" not in played.said
    assert played.frame(words()) == ""


def test_frames_too_damaged_to_calculate_are_a_fault_at_once() -> None:
    assert "gain" in Played().frame(words(lambda frame: frame.__setitem__(778, 3)), per_look=1)


def test_a_reason_that_detection_and_inspection_share_is_given_once() -> None:
    played = Played()
    for _ in range(3):
        assert played.frame(words()) == ""
    reason = played.frame(words(lambda frame: frame.__setitem__(778, 3)))
    assert played.device.faults, "found by the inspection too"
    assert (reason.count("gain"), ";" in reason) == (1, False), reason


def test_frames_that_stop_while_readings_continue_are_a_fault() -> None:
    played = Played()
    for _ in range(5):
        played.frame(words())
    for second in range(45):
        reason = played.read(283 + second % 3, 1305 + second % 2, 2, 0, seconds=1)
    assert reason == "its thermal frames stopped 45 s ago"
    assert played.frame(words()) == ""


def test_a_few_requested_frames_do_not_lead_to_a_fault_when_they_stop() -> None:
    played = Played()
    played.frame(words())
    for second in range(100):
        assert played.read(283 + second % 3, 1305 + second % 2, 2, 0, seconds=1) == ""


def test_the_same_frame_over_and_over_is_a_frozen_picture() -> None:
    played, same = Played(), words()
    reasons = [played.frame(same) for _ in range(10)]
    assert reasons[:4] == [""] * 4
    assert "frozen: the same data" in reasons[-1]
    assert played.frame(words()) == ""


def test_a_stuck_pixel_is_replaced_and_many_are_a_fault() -> None:
    played = Played()
    hot = 9 * 32 + 9
    for _ in range(85):
        reason = played.frame(words(lambda frame: frame.__setitem__(hot, 0x7FF0)), per_look=1)
    assert reason == ""
    assert {name: value for name, value, _ in measurements(played.device)}["pixels.replaced"] == 1
    assert played.device.frames.calibration is not None
    assert (
        played.device.frames.calibration.temperatures(words_of(words(lambda f: f.__setitem__(hot, 0x7FF0)))[None]).max()
        < 30
    )

    def many(frame: np.ndarray) -> None:
        frame[:700:7] = 0x0100

    for _ in range(85):
        reason = played.frame(words(many), per_look=1)
    assert reason == "100 of 768 thermal pixels are broken, stuck or noisy; 76 is the most"


@pytest.mark.parametrize("period", [7, 10, 30])
def test_unplugging_and_repair_are_noticed_however_rarely_a_device_reports(
    period: int, caplog: pytest.LogCaptureFixture
) -> None:
    played = Played()
    reasons: dict[int, str] = {}
    for second in range(900):
        played.now += SECOND
        if second % period == 0:
            smoke = 3.0 if 300 <= second < 600 else 500.0 + second // period % 3
            row = [smoke, 1000.0 + second // period % 3, 400.0 + second // period % 3, 0.0]
            played.device.analyse_readings(np.array([row]), played.now)
        if second % 5 == 3:
            played.device.inspect_sensors(played.now)
            reasons[second] = device_status(played.device, played.now, 60 * SECOND).reason
    assert set(reasons.values()) == {"", "smoke fell to 3 counts, as if its sensor were unplugged"}
    faulty = [second for second, reason in reasons.items() if reason]
    assert 360 - period <= min(faulty) < 300 + 60 + 2 * period + 5
    assert 600 - 5 <= max(faulty) < 600 + period + 5
    assert caplog.messages == ["device s: smoke fell to 3 counts, as if its sensor were unplugged"]


def test_a_few_equal_reports_of_a_rarely_reporting_device_are_not_a_fault() -> None:
    played = Played()
    for report in range(90):
        played.now += 600 * SECOND
        played.device.analyse_readings(
            np.array([[283.0 + report // 6 % 2, 1305.0 + report // 6 % 2, 2, 0]]), played.now
        )
        played.device.inspect_sensors(played.now)
        assert not played.device.faults


def test_a_silent_sensor_is_not_inspected() -> None:
    played = Played()
    for second in range(60):
        assert played.read(283 + second % 3, 1305 + second % 2, 400 + second % 2, 0, seconds=1) == ""
    played.now += 3600 * SECOND
    assert "silent" in played.looked()
    assert not played.device.faults


def test_a_thermal_sensor_that_was_away_has_not_lost_its_frames() -> None:
    played = Played()
    for _ in range(10):
        assert played.frame(words()) == ""
    played.now += 600 * SECOND
    assert "silent" in played.looked()
    assert played.read(283, 1305, 400, 0, seconds=1) == ""  # its first line; its next frame is not due yet
    for _ in range(8):
        reason = played.read(283, 1305, 400, 0)
    assert "its thermal frames stopped" in reason


def test_a_fault_is_logged_once_although_its_sentence_counts_seconds(caplog: pytest.LogCaptureFixture) -> None:
    played = Played()
    for second in range(120):
        played.read(283 + second % 3, 1305 + second % 2, NAN if second else 400, 0, seconds=1)
    assert played.device.faults == {"gas": "gas has not been reported for 118 s"}
    assert caplog.messages == ["device s: gas has not been reported for 60 s"]


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_reading_out_of_range_is_never_shown(column: int) -> None:
    row = [283.0, 1305.0, 2.0, 0.0]
    row[column] = 5000
    played = Played()
    assert "outside its converter's" in played.read(*row)
    assert ("smoke", "flame", "gas")[column] not in played.said
