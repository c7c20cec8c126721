"""`embereye inspect` on complete, truncated, foreign and empty captures."""

import argparse
import io
import json
from pathlib import Path

import numpy as np
import pytest
from harness.need import CAPTURE, RECORDINGS

from embereye.detect.thermal.mlx90640 import Calibration
from embereye.process.lifecycle import UserError
from embereye.sim.mlx90640 import invent_eeprom, measure
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords, SensorReading, SerialNumber
from embereye_cli.devices import inspect_capture as inspect


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    inspect.add_arguments(parser)
    return inspect.run(parser.parse_args(arguments))


def frame(device: str, seed: int, celsius: float, words: int = 834) -> bytes:
    calibration = Calibration.from_eeprom(invent_eeprom(seed))
    raw = measure(calibration, np.full((24, 32), celsius)).astype(">u2").tobytes()
    return encode(FrameWords(device, raw[: words * 2]))


def eeprom(device: str, seed: int) -> bytes:
    return encode(Eeprom(device, invent_eeprom(seed).astype(">u2").tobytes()))


READING = encode(SensorReading("a", 283, 1305, 2, False))


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "capture.bin"
    path.write_bytes(
        encode(SerialNumber("a"))
        + READING
        + frame("a", 1, 30)
        + b"#Sensor1:ADC"
        + frame("b", 2, 60)
        + eeprom("a", 1)
        + eeprom("b", 2)
        + b"noise!"
        + frame("c", 1, 90)
        + READING[:20]
    )
    return path


def test_values_of_a_damaged_frame_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "capture.bin"
    path.write_bytes(eeprom("a", 1) + encode(FrameWords("a", bytes(2 * 834))))
    assert run(str(path), "--json") == 0
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert report["packets"][1]["damaged"]
    assert "ambientC" not in report["packets"][1]


def test_a_devices_name_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "capture.bin"
    path.write_bytes("#serialno:a\x9b2J!".encode())
    assert run(str(path)) == 0
    printed = capsys.readouterr().out
    assert printed.count("a\\x9b2J") == 2
    assert "\x9b" not in printed


def test_every_packet_is_printed_with_offset_and_values(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(capture), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    data = capture.read_bytes()
    packets = report["packets"]
    assert [packet["type"] for packet in packets] == [
        *("serial", "reading", "frame", "garbage", "frame", "eeprom", "eeprom", "garbage", "frame", "garbage")
    ]
    starts = (b"#serialno:a", b"#Sensora", b"#framea", b"#Sensor1:ADC", b"#frameb", b"#EEPROMa", b"#EEPROMb", b"noise")
    assert [packet["offset"] for packet in packets[:8]] == [data.find(start) for start in starts]
    assert packets[1] == {
        "offset": 14,
        "type": "reading",
        "device": "a",
        "smokeAdc": 283,
        "smokePercent": 6.911,
        "flameAdc": 1305,
        "flamePercent": 31.868,
        "gasAdc": 2,
        "gasPpm": 0,
        "flameDetected": False,
    }
    assert packets[3] == {"offset": data.find(b"#Sensor1:ADC"), "type": "garbage", "reason": "cut off", "length": 12}
    assert packets[9]["reason"] == "not finished"


def test_a_later_calibration_of_the_device_applies_to_earlier_frames(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(str(capture), "--json")
    report = json.loads(capsys.readouterr().out)
    frames = [packet for packet in report["packets"] if packet["type"] == "frame"]
    assert [packet["meanC"] for packet in frames] == pytest.approx([30, 60, 90], abs=0.1)
    for packet in frames:
        assert packet["ambientC"] == pytest.approx(30, abs=0.05)
        assert packet["vddV"] == pytest.approx(3.29, abs=0.01)
        assert packet["subpage"] == 0
    summary = report["summary"]
    assert summary["packets"] == {"serial": 1, "reading": 1, "frame": 3, "garbage": 3, "eeprom": 2}
    assert summary["garbage"] == {"cut off": 1, "no start": 1, "not finished": 1}
    assert summary["devices"] == ["a", "b", "c"]
    assert summary["temperatureC"]["mean"] == pytest.approx(60, abs=0.1)


def test_temperatures_are_written_as_float32(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "temperatures.npy"
    assert run(str(capture), "--out", str(out)) == 0
    celsius = np.load(out)
    assert (celsius.shape, celsius.dtype) == ((3, 24, 32), np.float32)
    assert celsius.mean(axis=(1, 2)) == pytest.approx([30, 60, 90], abs=0.1)


def test_text_has_a_line_for_each_packet_and_a_summary(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(capture)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[10] == ""
    assert lines[11].endswith("1 serial, 1 reading, 3 frame, 3 garbage, 2 eeprom")
    assert any(line.startswith("temperatures: ") for line in lines)


def test_a_lower_emissivity_makes_hot_things_hotter(capture: Path, tmp_path: Path) -> None:
    run(str(capture), "--out", str(tmp_path / "a.npy"))
    run(str(capture), "--out", str(tmp_path / "b.npy"), "--emissivity", "0.6")
    assert np.load(tmp_path / "b.npy")[2].mean() > np.load(tmp_path / "a.npy")[2].mean() + 10


def test_a_capture_can_come_from_standard_input(
    capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(capture.read_bytes())))
    assert run("-") == 0
    assert "3 frame" in capsys.readouterr().out


def sentence(*arguments: str) -> str:
    with pytest.raises(UserError) as raised:
        run(*arguments)
    return str(raised.value)


def test_unreadable_and_unwritable_files_are_named(capture: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.bin"
    assert sentence(str(missing)) == f"{missing} does not exist. Name a file with the bytes that a device sent."
    assert sentence(str(tmp_path)) == f"cannot read the capture {tmp_path}: Is a directory"
    out = tmp_path / "no" / "such" / "folder.npy"
    assert sentence(str(capture), "--out", str(out)).startswith(f"cannot write the temperatures to {out}: No such file")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n!!!", "has no line of a sensor"),
        (b"a line that never ends", "has no line of a sensor"),
        (frame("a", 1, 30), "no temperatures for 1 frame: the capture has no EEPROM. Send EEPROM1"),
        (
            frame("a", 1, 30) + encode(Eeprom("a", bytes(1664))),
            "the EEPROM at offset 3347 is not usable: EEPROM is blank",
        ),
        (frame("a", 1, 30, words=768) + eeprom("a", 1), "no frame of 834 words"),
    ],
)
def test_a_capture_without_temperatures_is_explained(data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.bin"
    path.write_bytes(data)
    assert expected in sentence(str(path))
    assert expected.removeprefix("no temperatures for 1 frame: ") in sentence(
        str(path), "--out", str(tmp_path / "t.npy")
    )
    assert not (tmp_path / "t.npy").exists()


def test_a_capture_of_only_readings_needs_no_eeprom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "capture.bin"
    path.write_bytes(READING * 3)
    assert run(str(path)) == 0
    assert "3 reading" in capsys.readouterr().out


def test_an_emissivity_out_of_range_is_refused(capture: Path) -> None:
    assert sentence(str(capture), "--emissivity", "1.5") == "--emissivity 1.5 is not above 0 and at most 1"


@pytest.mark.needs(CAPTURE)
def test_a_real_devices_capture_is_decoded_completely(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(RECORDINGS / "capture.bin"), "--json") == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["packets"] == {"reading": 27, "frame": 27, "eeprom": 1}
    assert summary["devices"] == ["1234"]
    assert summary["garbage"] == {}
    assert summary["ambientC"] == pytest.approx(31.5, abs=0.1)
