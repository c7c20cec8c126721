import io
from dataclasses import replace

import av
import pytest

from embereye.camera.clips.recorder import Recorder
from embereye.camera.clips.ring import Budget, ClipFrame, ClipUnit, VideoRing
from embereye.camera.clips.spool import CUT, ClipSpool
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.wire.video.access_unit import AccessUnit

from ...wire.video.coded import coded
from .pictures import PICTURES, SIZE, START, about, report

STEP = SECOND // 15
GOP = 8


def clip_units(encoding="H264", count=48):
    units = []
    for number, (timestamp, nals) in enumerate(coded(encoding, count, gop=GOP)):
        data = b"".join(b"\0\0\0\1" + nal for nal in nals)
        unit = AccessUnit(data, timestamp, (96, 64), key=number % GOP == 0, encoding=encoding)
        units.append(ClipUnit(START + number * STEP, unit))
    return units


def played(data):
    with av.open(io.BytesIO(data)) as container:
        return sum(1 for _ in container.decode(video=0))


def test_the_ring_begins_with_a_key_frame_and_covers_the_wanted_time():
    ring, units = VideoRing(Budget()), clip_units()
    for entry in units:
        ring.add(entry, SECOND)
    stored = ring.frames()
    assert stored[0].unit.key
    assert stored[-1] is units[-1]
    assert SECOND <= units[-1].time_ns - stored[0].time_ns < SECOND + 2 * GOP * STEP


def test_the_ring_respects_its_budget_and_returns_it():
    units = clip_units()
    budget = Budget(3 * sum(entry.size for entry in units[:GOP]))
    ring, other = VideoRing(budget), VideoRing(budget)
    for entry in units:
        ring.add(entry, 60 * SECOND)
        other.add(entry, 60 * SECOND)
        assert budget.used <= budget.total
    assert ring.frames()[0].unit.key
    for either in (ring, other):
        either.close()
    assert (budget.used, budget.rings) == (0, 0)


def test_a_group_that_exceeds_the_budget_is_not_stored_partly():
    units = clip_units(count=GOP)
    ring = VideoRing(Budget(sum(entry.size for entry in units) - 1))
    for entry in units:
        ring.add(entry, SECOND)
    assert not ring.frames()


def test_units_before_a_long_silence_are_dropped():
    ring, units = VideoRing(Budget()), clip_units()
    for entry in units:
        ring.add(entry, 5 * SECOND)
    later = [ClipUnit(entry.time_ns + 3600 * SECOND, entry.unit) for entry in units[:4]]
    for entry in later:
        ring.add(entry, 5 * SECOND)
    assert ring.frames() == later


def test_an_empty_key_frame_is_ignored():
    ring, units = VideoRing(Budget()), clip_units()
    empty = ClipUnit(units[GOP].time_ns, replace(units[GOP].unit, data=b""))
    for entry in [*units[:GOP], empty, *units[GOP:]]:
        ring.add(entry, SECOND)
    assert ring.frames()[0].unit.key
    assert ring.frames()[-1] is units[-1]


@pytest.fixture
async def recorder(tmp_path):
    made = Recorder(tmp_path / "clips", lambda: None)
    await made.start()
    yield made
    made.close()


@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_clip_contains_every_picture_as_the_camera_coded_it(recorder, encoding):
    units = clip_units(encoding)
    stronger = recorder.record_report(
        report(), units[:20], box=None, now_ns=units[19].time_ns, about=about(), after_ns=SECOND
    )
    assert stronger
    for entry in units[20:]:
        recorder.record_frame("gate", entry, entry.time_ns)
    await recorder.flush()
    (clip,) = await recorder.run(ClipSpool.waiting)
    assert clip.media == Clip.MEDIA_VIDEO
    assert (clip.from_ns, clip.width, clip.height) == (units[0].time_ns, 96, 64)
    assert SECOND - STEP <= clip.until_ns - units[19].time_ns <= SECOND + STEP
    data = recorder.spool.path(clip).read_bytes()
    assert played(data) == clip.frames == 20 + 15
    slices = units[5].unit.data.rpartition(b"\0\0\0\1")[2]
    assert slices in data  # nothing was coded again


@pytest.mark.parametrize("analysed_stream", ["this stream", "another one"])
async def test_after_a_picture_that_was_left_out_a_clip_resumes_with_a_key_frame(recorder, analysed_stream):
    units = clip_units()
    recorder.record_report(report(), units[:10], box=None, now_ns=START, about=about(), after_ns=60 * SECOND)
    for number, entry in enumerate(units[10:], 10):
        recorder.pending_bytes = -1 if number == 10 else 2**30
        recorder.record_frame("gate", entry, entry.time_ns)
        if analysed_stream == "another one":  # its pictures do not change the clip
            recorder.record_frame("gate", ClipFrame(entry.time_ns, PICTURES[0], *SIZE), entry.time_ns)
    await recorder.flush()
    (clip,) = await recorder.run(ClipSpool.waiting)
    key = 2 * GOP
    assert (clip.frames, recorder.left_out) == (10 + len(units) - key, key - 10)
    data = recorder.spool.path(clip).read_bytes()
    assert played(data) == clip.frames
    assert units[key + 1].unit.data.rpartition(b"\0\0\0\1")[2] in data


async def test_a_report_that_is_no_stronger_requests_no_still(recorder):
    units = clip_units()
    options = {"box": None, "now_ns": units[19].time_ns, "after_ns": SECOND}
    assert recorder.record_report(report(Level.ALARM), units[:20], about=about(), **options)
    assert not recorder.record_report(report(Level.PRE_ALARM), units[:20], about=about(), **options)


async def test_a_picture_of_another_size_is_left_out(recorder):
    units = clip_units(count=GOP)
    other = AccessUnit(units[0].unit.data, 0, (320, 240), key=True)
    recorder.record_report(report(), units, box=None, now_ns=units[-1].time_ns, about=about(), after_ns=SECOND)
    recorder.record_frame("gate", ClipUnit(units[-1].time_ns + STEP, other), units[-1].time_ns + STEP)
    await recorder.flush()
    (clip,) = await recorder.run(ClipSpool.waiting)
    assert clip.frames == GOP


@pytest.mark.parametrize("left", ["nothing", "parameter sets"])
@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_picture_without_any_slice_does_not_spoil_a_clip(recorder, encoding, left):
    units = clip_units(encoding)
    lost = units[3 * GOP]
    sets = lost.unit.data.rpartition(b"\0\0\0\1")[0] if left != "nothing" else b""
    assert bool(sets) == (left != "nothing")
    units[3 * GOP] = ClipUnit(lost.time_ns, replace(lost.unit, data=sets, damaged="a part of it was lost"))
    recorder.record_report(report(), units[:20], box=None, now_ns=START, about=about(), after_ns=60 * SECOND)
    for entry in units[20:]:
        recorder.record_frame("gate", entry, entry.time_ns)
    await recorder.flush()
    (clip,) = await recorder.run(ClipSpool.waiting)
    assert clip.frames == len(units) - 1
    assert played(recorder.spool.path(clip).read_bytes()) >= len(units) - GOP


@pytest.mark.parametrize(
    ("lost", "behind", "fragments"), [(0, 0, 5), (1, 0, 4), (1000, 0, 4), (0, 4096, 5)],
    ids=["a whole fragment", "a byte is missing", "much is missing", "blocks that were never written"],
)  # fmt: skip
async def test_a_crashed_shards_clip_is_delivered_as_far_as_it_was_written(recorder, tmp_path, lost, behind, fragments):
    units = clip_units()
    recording = recorder.spool.begin(about(), units[0])
    for entry in units[1:]:
        recording.append(entry)
    data = recording.path.read_bytes()
    recording.path.write_bytes(data[: len(data) - lost] + bytes(behind))
    spool = ClipSpool(tmp_path / "clips")
    assert spool.complete_next()
    (clip,) = spool.waiting()
    assert clip.note == CUT
    assert played(spool.path(clip).read_bytes()) == fragments * GOP


async def test_a_clip_without_a_picture_after_a_crash_is_removed(recorder, tmp_path):
    recorder.spool.begin(about(), clip_units()[0])
    spool = ClipSpool(tmp_path / "clips")
    assert spool.complete_next()
    assert list((tmp_path / "clips").iterdir()) == []


async def test_a_stream_without_parameter_sets_makes_no_clip_and_no_error(recorder):
    units = clip_units()
    recorder.record_report(report(), units[1:5], box=None, now_ns=units[4].time_ns, about=about(), after_ns=SECOND)
    recorder.record_frame("gate", units[5], units[5].time_ns)
    await recorder.flush()
    assert not await recorder.run(ClipSpool.waiting)
    assert not recorder.failing
