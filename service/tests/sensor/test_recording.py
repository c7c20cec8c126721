"""What is kept of a sensor around an alarm, and whether this version decides on it as its shard did."""

import struct

import numpy as np
import pytest
from harness.settings import sensor_settings

from embereye.levels import Kind, Level
from embereye.sensor.device.recent import HEAD, Piece, RecentData, What
from embereye.sensor.recording import Judged, RecordingError, read_recording, write_recording
from embereye.sensor.replay import LineReplay
from embereye.units import SECOND
from embereye.v1.types_pb2 import Device

START = 1_700_000_000 * SECOND
DEVICE = Device(id="s-01", zone="hall")
CALM, SMOKE = (100.0, 100.0, 100.0, 0.0), (4095.0, 100.0, 100.0, 0.0)


def rows(*readings: tuple[float, ...]) -> bytes:
    return np.array(readings, np.float64).tobytes()


def recorded(*pieces: Piece, level: Level = Level.ALARM) -> bytes:
    return write_recording(Judged(DEVICE, sensor_settings(), level), pieces)


def replayed(content: bytes) -> LineReplay:
    judged, moments = read_recording(content)
    replay = LineReplay(judged)
    for moment in moments:
        replay.show(moment)
    return replay


def test_the_newest_is_kept_and_no_more_than_there_is_room_for() -> None:
    recent = RecentData()
    recent.limit = 20_000
    for number in range(0, 1_000, 2):
        recent.short.append((number, b"#Sensor:ADC1=%d!\r\n" % number))
        recent.add(What.LINES, b"#Sensor:ADC1=%d!\r\n" % (number + 1) * 20, number + 1)
        assert len(recent) <= 20_000
    _, pieces = recent.cut(0)
    assert pieces[-2] == Piece(998, What.LINES, b"#Sensor:ADC1=998!\r\n")
    assert [piece.time_ns for piece in pieces] == sorted({piece.time_ns for piece in pieces})
    assert len(pieces) > 50
    assert [piece.time_ns for piece in recent.cut(998)[1]] == [998, 999]
    recent.limit = 2_000
    assert len(recent) <= 2_000
    assert recent.cut(0)[1][-1].time_ns == 999


def test_a_calibration_is_known_although_it_came_before_what_is_kept() -> None:
    recent = RecentData()
    recent.limit = 10_000
    recent.add(What.EEPROM, b"first", 1)
    recent.add(What.EEPROM, b"second", 2)
    assert recent.cut(0)[0] == b""
    assert recent.cut(2) == (b"first", [Piece(2, What.EEPROM, b"second")])
    for number in range(3, 40):
        recent.add(What.FRAME, bytes(1_000), number)
    assert recent.cut(0)[0] == b"second"


def test_of_many_readings_only_as_many_are_copied_as_there_is_room_for() -> None:
    recent = RecentData()
    recent.limit = 2 * (10 * 32 + HEAD.size)
    recent.add_rows(np.arange(4_000, dtype=np.float64).reshape(1_000, 4), 7)
    assert len(recent) <= recent.limit
    recent.limit = 200 * 32
    recent.add_rows(np.arange(40, dtype=np.float64).reshape(10, 4), 8)
    (piece,) = recent.cut(8)[1]
    assert struct.unpack("<40d", piece.data)[-1] == 39.0


def test_what_a_sensor_sent_is_written_as_lines_that_say_the_same() -> None:
    odd = (0.1 + 0.2, float("nan"), 1e-7, 1.0)
    content = recorded(
        Piece(START, What.LINES, b"#Sensor:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"),
        Piece(START + 1, What.ROWS, rows(odd, CALM)),
        Piece(START + 2, What.FRAME, bytes(range(256)) * 6),
        Piece(START + 3, What.ROWS, rows((float("nan"),) * 4)),
    )
    _, moments = read_recording(content)
    told = list(moments)
    assert [moment.time_ns - START for moment in told] == [0, 1, 2]
    assert told[1].text.startswith(b"#Sensor:ADC1=0.30000000000000004,ADC3=1e-07,DIO=1!")
    assert told[2].text.startswith(b"#frame:0001")


def test_smoke_is_an_alarm_again_by_the_settings_then() -> None:
    pieces = [Piece(START + number * SECOND, What.ROWS, rows(CALM)) for number in range(20)]
    pieces += [Piece(START + number * SECOND, What.ROWS, rows(SMOKE)) for number in range(20, 25)]
    replay = replayed(recorded(*pieces))
    assert replay.level(Kind.SMOKE) == replay.judged.level == Level.ALARM
    assert replay.readings == 25
    assert replayed(recorded(*pieces[:20])).level(Kind.SMOKE) == Level.CLEAR


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"embereye": "1"}', b"\xff\xfe"])
def test_what_is_no_recording_is_refused(content: bytes) -> None:
    with pytest.raises(RecordingError, match="first line"):
        read_recording(content)


def test_a_line_that_is_no_moment_is_named() -> None:
    _, moments = read_recording(recorded() + b'{"timeNs": "x"}\n')
    with pytest.raises(RecordingError, match="line 2"):
        list(moments)
