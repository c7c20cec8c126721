import hashlib

import pytest

from embereye.camera import clip_spool
from embereye.camera.clip_spool import CUT, FULL, ClipSpool
from embereye.camera.ring import Kept
from embereye.v1.clips_pb2 import Clip
from embereye.wire.matroska import frames

from .clips import PICTURES, START, about, frame, make_clip


def test_a_finished_clip_is_named_by_its_content_and_holds_every_frame(tmp_path):
    spool = ClipSpool(tmp_path)
    clip = make_clip(spool)
    data = spool.path(clip).read_bytes()
    assert clip.sha256 == hashlib.sha256(data).hexdigest()
    assert (clip.bytes, clip.frames, clip.width, clip.height) == (len(data), 20, 128, 96)
    assert [still.time_ns for still in frames(data)] == [frame(number).time_ns for number in range(20)]
    assert (clip.from_ns, clip.until_ns) == (START, frame(19).time_ns)
    assert spool.waiting() == [clip]
    spool.forget(clip)
    assert list(tmp_path.iterdir()) == []


def test_what_waits_is_known_after_a_restart(tmp_path):
    clip = make_clip(ClipSpool(tmp_path))
    assert ClipSpool(tmp_path).waiting() == [clip]


@pytest.mark.parametrize("cut", [0, 100, 5000])
def test_a_clip_that_a_crash_cut_off_is_recovered(tmp_path, cut):
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    for number in range(1, 12):
        recording.append(frame(number))
    recording.path.write_bytes(recording.path.read_bytes()[: -cut or None])
    again = ClipSpool(tmp_path)
    (clip,) = again.waiting()
    assert clip.note == CUT
    assert clip.frames == len(list(frames(again.path(clip).read_bytes())))
    assert 10 <= clip.frames <= 12
    assert (clip.episode, clip.zone) == ("e1", "yard")
    assert not list(tmp_path.glob("*.part"))


def test_what_cannot_be_recovered_is_removed(tmp_path):
    spool = ClipSpool(tmp_path)
    for content in (b"", b"\x1a\x45", b"no clip at all"):
        spool.begin(about(), frame(0)).path.write_bytes(content)
    make_clip(spool)
    (tmp_path / ("a" * 64 + ".mkv")).write_bytes(b"nobody knows it")
    (tmp_path / ("b" * 64 + ".json")).write_text("{")
    (tmp_path / "x.still").write_bytes(b"half")
    (tmp_path / "x.json.tmp").write_bytes(b"half")
    again = ClipSpool(tmp_path)
    assert len(again.waiting()) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_the_oldest_go_where_the_hub_stays_away_for_too_long(tmp_path):
    spool = ClipSpool(tmp_path, capacity=3 * 20 * len(PICTURES[0]))
    clips = [make_clip(spool, start=100 * number) for number in range(6)]
    waiting = spool.waiting()
    assert waiting == clips[-len(waiting) :]
    assert spool.dropped == 6 - len(waiting) > 0


def test_a_clip_that_grows_too_large_ends_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(clip_spool, "CLIP_BYTES", 5 * len(PICTURES[0]))
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    taken = [recording.append(frame(number)) for number in range(1, 10)]
    assert not all(taken)
    assert spool.finish(recording).note == FULL


def test_a_picture_of_another_size_is_left_out(tmp_path):
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    assert recording.append(Kept(frame(1).time_ns, PICTURES[1], 64, 48))
    assert spool.finish(recording).frames == 1


def test_a_still_is_kept_as_it_is(tmp_path):
    spool = ClipSpool(tmp_path)
    still = spool.add_still(about(), PICTURES[0])
    assert spool.path(still).read_bytes() == PICTURES[0]
    assert still.media == Clip.MEDIA_STILL
    assert spool.waiting() == [still]
