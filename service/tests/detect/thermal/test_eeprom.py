"""Damaged calibration words are named, and working devices have none."""

import pytest
from harness.need import CAPTURE, CAPTURE_16_BIT, RECORDINGS, RECORDINGS_16_BIT
from harness.settings import HEAT

from embereye.detect.thermal.eeprom import implausible_words
from embereye.detect.thermal.mlx90640 import words_of
from embereye.sensor.device.frames import FrameAnalysis
from embereye.sim.mlx90640 import invent_eeprom
from embereye.wire.device.messages import Eeprom
from embereye.wire.device.reader import LineReader


@pytest.mark.parametrize("seed", range(20))
def test_an_undamaged_calibration_is_plausible(seed: int) -> None:
    assert implausible_words(invent_eeprom(seed).tolist()) == ()


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(RECORDINGS, marks=pytest.mark.needs(CAPTURE)),
        pytest.param(RECORDINGS_16_BIT, marks=pytest.mark.needs(CAPTURE_16_BIT)),
    ],
    ids=["18 bit", "16 bit"],
)
def test_a_real_devices_calibration_is_plausible(folder) -> None:
    messages = LineReader().feed((folder / "capture.bin").read_bytes())
    eeprom = next(message for message in messages if isinstance(message, Eeprom))
    assert implausible_words(words_of(eeprom.words).tolist()) == ()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (12, 0xFFFF), (12, 0), (16, 0), (16, 0xFFFF), (17, 0xFFFF), (17, 0), (32, 0), (33, 0xFFFF), (48, 0x2000),
        (50, 0x532D), (56, 0), (63, 0),
    ],
)  # fmt: skip
def test_a_damaged_word_is_named_and_the_device_is_degraded(word: int, value: int) -> None:
    eeprom = invent_eeprom(3)
    eeprom[word] = value
    analysis = FrameAnalysis("s-1", HEAT)
    analysis.calibrate(eeprom.astype(">u2").tobytes())
    assert f"word 0x{0x2400 + word:04X} (0x{value:04X})" in analysis.degraded
    analysis.calibrate(invent_eeprom(3).astype(">u2").tobytes())
    assert analysis.degraded == ""


def test_every_exchanged_pair_of_bytes_that_shifts_the_whole_picture_is_named() -> None:
    whole = invent_eeprom(3)
    for word in (16, 17, 32, 33, 48, 49, 50, 51, 56, 63):
        eeprom = whole.tolist()
        eeprom[word] = (eeprom[word] & 0xFF) << 8 | eeprom[word] >> 8
        assert implausible_words(eeprom), f"0x{0x2400 + word:04X}"
