"""Recordings of a sensor around an alarm, and their replay, which has to come to the same decision."""

import asyncio
import struct
from pathlib import Path

import numpy as np
import pytest
from harness.settings import sensor_settings

from embereye.detect.sensing.bands import BandTable
from embereye.levels import Kind, Level
from embereye.process.tasks import Tasks
from embereye.sensor.device.recent import HEAD, Piece, PieceKind, RecentData
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.recorder import RECORDED_BYTES, RETAINED_NS, TIDY_CALLS, LineRecorder
from embereye.sensor.recording import Judged, RecordingError, read_recording, write_recording
from embereye.sensor.replay import LineReplay
from embereye.sensor.tick import TickBatcher
from embereye.shard.evidence.episodes import Sign
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip
from embereye.units import MINUTE, SECOND
from embereye.v1.evidence_pb2 import EvidenceItem
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


def test_the_newest_data_is_retained_up_to_the_limit() -> None:
    recent = RecentData()
    recent.limit = 20_000
    for number in range(0, 1_000, 2):
        recent.short.append((number, b"#Sensor:ADC1=%d!\r\n" % number))
        recent.add(PieceKind.LINES, b"#Sensor:ADC1=%d!\r\n" % (number + 1) * 20, number + 1)
        assert len(recent) <= 20_000
    _, pieces = recent.cut(0)
    assert pieces[-2] == Piece(998, PieceKind.LINES, b"#Sensor:ADC1=998!\r\n")
    assert [piece.time_ns for piece in pieces] == sorted({piece.time_ns for piece in pieces})
    assert len(pieces) > 50
    assert [piece.time_ns for piece in recent.cut(998)[1]] == [998, 999]
    recent.limit = 2_000
    assert len(recent) <= 2_000
    assert recent.cut(0)[1][-1].time_ns == 999


def test_a_calibration_from_before_the_retained_data_is_known() -> None:
    recent = RecentData()
    recent.limit = 10_000
    recent.add(PieceKind.EEPROM, b"first", 1)
    recent.add(PieceKind.EEPROM, b"second", 2)
    assert recent.cut(0)[0] == b""
    assert recent.cut(2) == (b"first", [Piece(2, PieceKind.EEPROM, b"second")])
    for number in range(3, 40):
        recent.add(PieceKind.FRAME, bytes(1_000), number)
    assert recent.cut(0)[0] == b"second"


def test_data_too_old_for_recordings_is_dropped_but_the_calibration_is_known() -> None:
    recent = RecentData()
    recent.limit = 100_000
    recent.add(PieceKind.EEPROM, b"words", 1)
    for number in range(2, 40):
        recent.add(PieceKind.FRAME, bytes(1_000), number)
        recent.short.append((number, b"#Sensor:ADC1=1!\r\n"))
    before = len(recent)
    recent.expire(38)
    eeprom, pieces = recent.cut(0)
    assert eeprom == b"words"
    assert [piece.time_ns for piece in pieces] == [38, 38, 39, 39]
    assert len(recent) < before / 10
    recent.expire(100)
    assert recent.cut(0) == (b"words", [])
    assert len(recent) == 0
    recent.expire(200)


def test_only_as_many_readings_are_copied_as_there_is_room_for() -> None:
    recent = RecentData()
    recent.limit = 2 * (10 * 32 + HEAD.size)
    recent.add_rows(np.arange(4_000, dtype=np.float64).reshape(1_000, 4), 7)
    assert len(recent) <= recent.limit
    recent.limit = 200 * 32
    recent.add_rows(np.arange(40, dtype=np.float64).reshape(10, 4), 8)
    (piece,) = recent.cut(8)[1]
    assert struct.unpack("<40d", piece.data)[-1] == 39.0


def test_a_recording_has_text_lines_equivalent_to_the_sent_data() -> None:
    odd = (0.1 + 0.2, float("nan"), 1e-7, 1.0)
    content = recorded(
        Piece(START, PieceKind.LINES, b"#Sensor:ADC1=1,ADC2=2,ADC3=3,DIO=0!\r\n"),
        Piece(START + 1, PieceKind.ROWS, rows(odd, CALM)),
        Piece(START + 2, PieceKind.FRAME, bytes(range(256)) * 6),
        Piece(START + 3, PieceKind.ROWS, rows((float("nan"),) * 4)),
    )
    _, moments = read_recording(content)
    decoded = list(moments)
    assert [moment.time_ns - START for moment in decoded] == [0, 1, 2]
    assert decoded[1].text.startswith(b"#Sensor:ADC1=0.30000000000000004,ADC3=1e-07,DIO=1!")
    assert decoded[2].text.startswith(b"#frame:0001")


def test_smoke_is_an_alarm_again_by_the_settings_then() -> None:
    pieces = [Piece(START + number * SECOND, PieceKind.ROWS, rows(CALM)) for number in range(20)]
    pieces += [Piece(START + number * SECOND, PieceKind.ROWS, rows(SMOKE)) for number in range(20, 25)]
    replay = replayed(recorded(*pieces))
    assert replay.level(Kind.SMOKE) == replay.judged.level == Level.ALARM
    assert replay.readings == 25
    assert replayed(recorded(*pieces[:20])).level(Kind.SMOKE) == Level.CLEAR


@pytest.mark.parametrize("limit", [RECORDED_BYTES, 60_000])
def test_the_replay_of_thermal_frames_leads_to_the_same_level(limit: int) -> None:
    chip, bands, signs = Chip(7), BandTable(), list[Sign]()
    device = SensorDevice(DEVICE, sensor_settings(), bands)
    device.arrivals.recent.limit = limit
    batcher = TickBatcher(bands, lambda observed, _: signs.extend(observed))
    batcher.configure(sensor_settings())
    batcher.calibrate(device, chip.eeprom, START)
    for number in range(160):
        at_ns = START + number * SECOND // 4
        batcher.add_frame(device, chip.frame(min(max(0, number - 100) / 20, 1), number), at_ns)
        batcher.analyse_collected(at_ns)
    then = max(sign.level for sign in signs if sign.kind is Kind.HEAT)
    assert then >= Level.ALARM
    eeprom, pieces = device.arrivals.recent.cut(START)
    replay = replayed(write_recording(Judged(DEVICE, sensor_settings(), then, eeprom), pieces))
    assert replay.level(Kind.HEAT) == then
    assert 10 < replay.frames <= 160


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"embereye": "1"}', b"\xff\xfe"])
def test_content_that_is_no_recording_is_refused(content: bytes) -> None:
    with pytest.raises(RecordingError, match="first line"):
        read_recording(content)


def test_an_error_names_a_line_that_is_no_moment() -> None:
    _, moments = read_recording(recorded() + b'{"timeNs": "x"}\n')
    with pytest.raises(RecordingError, match="line 2"):
        list(moments)


def recorder_context(folder: Path, tasks: Tasks) -> ShardContext:
    """A recorder in a shard that reaches no hub."""
    options = ShardOptions("s", Path("none"), "", folder, "127.0.0.1", 0, 0, 0, 0, 0)
    return ShardContext(options, tasks, lambda _: None, lambda: None)


async def test_a_recorder_drops_data_that_is_too_old_for_any_recording(tmp_path: Path) -> None:
    many = [RecentData() for _ in range(100)]
    async with Tasks() as tasks:
        recorder = await LineRecorder.start(recorder_context(tmp_path, tasks))
        recorder.share_among(many)
        now_ns = 1_000 * SECOND
        for recent in many:
            recent.add(PieceKind.LINES, b"long ago", now_ns - RETAINED_NS - 1)
            recent.add(PieceKind.LINES, b"lately", now_ns - RETAINED_NS + SECOND)
        for _ in range(TIDY_CALLS):
            recorder.end_overdue(now_ns)
        assert all([piece.data for piece in recent.cut(0)[1]] == [b"lately"] for recent in many)
        recorder.close()


async def test_a_flickering_sensor_leaves_room_for_recordings_of_others(tmp_path: Path) -> None:
    async with Tasks() as tasks:
        recorder = await LineRecorder.start(recorder_context(tmp_path, tasks))
        devices = {name: SensorDevice(Device(id=name), sensor_settings(), BandTable()) for name in ("s-01", "s-02")}
        recorder.share_among([device.arrivals.recent for device in devices.values()])

        def burn(name: str, minute: int) -> None:
            now_ns, device = START + minute * MINUTE, devices[name]
            device.arrivals.recent.add_rows(np.array([SMOKE]), now_ns)
            report = EvidenceItem(
                device=name, episode=f"{name}-{minute}", kind=Kind.SMOKE.wire, level=Level.PRE_ALARM.wire
            )
            recorder.note_report(report, device, sensor_settings(), now_ns)
            recorder.note_report(report, device, sensor_settings(), now_ns)  # the sign continues
            recorder.end_overdue(now_ns + MINUTE // 2)

        for minute in range(40):
            burn("s-01", minute)
        burn("s-02", 40)
        await recorder.run(lambda spool: None)
        await asyncio.sleep(0)
        assert (recorder.made, recorder.left_out) == (13, 28)
        burn("s-01", 61)
        await recorder.run(lambda spool: None)
        await asyncio.sleep(0)
        assert recorder.made == 14
        assert len(await recorder.run(lambda spool: spool.waiting())) == 14
        recorder.close()


async def test_a_recording_contains_all_retained_data(tmp_path: Path) -> None:
    async with Tasks() as tasks:
        recorder = await LineRecorder.start(recorder_context(tmp_path, tasks))
        device = SensorDevice(DEVICE, sensor_settings(), BandTable())
        recent = device.arrivals.recent
        recorder.share_among([recent, *(RecentData() for _ in range(999))])
        report = EvidenceItem(device="s-01", episode="e", kind=Kind.HEAT.wire, level=Level.ALARM.wire)
        recorder.note_report(report, device, sensor_settings(), START)
        for number in range(100):
            recent.add(PieceKind.FRAME, bytes(1_668), START + number)
            recent.short.append((START + number, b"#Sensor:ADC1=1!\r\n"))
        recorder.end({"s-01"})
        (clip,) = await recorder.run(lambda spool: spool.waiting())
        assert clip.frames == 200
        assert len(recent) <= recorder.share
        recorder.close()
