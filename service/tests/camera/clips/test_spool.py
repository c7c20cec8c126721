import errno
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embereye.camera.clips.ring import ClipFrame
from embereye.camera.clips.spool import CUT, FULL, ClipSpool
from embereye.shard.clips import spool as clip_spool
from embereye.v1.clips_pb2 import Clip
from embereye.wire.matroska import frames

from .pictures import PICTURES, START, about, frame, make_clip


def reopened(folder):
    """Open the spool again, as after a restart."""
    spool = ClipSpool(folder)
    while spool.complete_next():
        pass
    return spool


def test_a_finished_clip_is_named_by_its_content_and_contains_every_frame(tmp_path):
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


def test_waiting_clips_are_known_after_a_restart(tmp_path):
    clip = make_clip(ClipSpool(tmp_path))
    assert reopened(tmp_path).waiting() == [clip]


@pytest.mark.parametrize("cut", [0, 100, 5000])
def test_a_clip_that_a_crash_cut_off_is_recovered(tmp_path, cut):
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    for number in range(1, 12):
        recording.append(frame(number))
    recording.path.write_bytes(recording.path.read_bytes()[: -cut or None])
    again = reopened(tmp_path)
    (clip,) = again.waiting()
    assert clip.note == CUT
    assert clip.frames == len(list(frames(again.path(clip).read_bytes())))
    assert 10 <= clip.frames <= 12
    assert (clip.episode, clip.zone) == ("e1", "yard")
    assert not list(tmp_path.glob("*.part"))


def test_a_clip_that_cannot_be_recovered_on_a_full_disk_waits_for_the_next_start(tmp_path, monkeypatch, caplog):
    recording = ClipSpool(tmp_path).begin(about(), frame(0))
    recording.append(frame(1))
    left = sorted(tmp_path.iterdir())
    monkeypatch.setattr(clip_spool, "FREE_BYTES", 2**60)
    assert reopened(tmp_path).waiting() == []
    assert "cannot be completed before the next start: less than" in caplog.text
    assert sorted(tmp_path.iterdir()) == left
    monkeypatch.undo()
    (clip,) = reopened(tmp_path).waiting()
    assert (clip.frames, clip.note) == (2, CUT)


def test_a_briefly_unreadable_disk_loses_no_clip(tmp_path, monkeypatch, caplog):
    spool = ClipSpool(tmp_path)
    finished = make_clip(spool)
    spool.begin(about(), frame(30)).append(frame(31))

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_text", fail)
    assert reopened(tmp_path).waiting() == []
    assert caplog.text.count("Input/output error") == 2
    monkeypatch.undo()
    recovered = reopened(tmp_path)
    assert [clip.frames for clip in recovered.waiting()] == [20, 2]
    assert finished in recovered.waiting()


def test_a_folder_that_cannot_be_created_fails_every_clip_but_not_the_shard(tmp_path, caplog):
    (tmp_path / "clips").write_text("a file")
    spool = ClipSpool(tmp_path / "clips")
    assert "cannot be read: File exists" in caplog.text
    assert spool.waiting() == []
    with pytest.raises(OSError, match="Not a directory"):
        make_clip(spool)


def test_a_missing_folder_is_created_for_the_next_clip(tmp_path):
    folder = tmp_path / "data" / "clips"
    folder.parent.write_text("a file")
    spool = ClipSpool(folder)
    folder.parent.unlink()
    still = spool.add_still(about(), b"a still")
    assert spool.waiting() == [still]
    recording = spool.begin(about(), frame(0))
    shutil.rmtree(folder.parent)
    with pytest.raises(FileNotFoundError):
        recording.append(frame(1))
    spool.abandon(recording)
    clip = make_clip(spool)
    assert spool.waiting() == [clip]


def test_a_file_system_full_in_the_middle_of_a_frame_loses_only_that_clip(tmp_path):
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("fill_disk.py"), tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (7, "File too large\n"), done.stderr
    frames_by_device = {clip.device: clip.frames for clip in reopened(tmp_path).waiting()}
    assert frames_by_device == {"gate": 5, "full": 2}


def test_unrecoverable_clips_are_removed(tmp_path):
    spool = ClipSpool(tmp_path)
    for content in (b"", b"\x1a\x45", b"no clip at all"):
        spool.begin(about(), frame(0)).path.write_bytes(content)
    make_clip(spool)
    (tmp_path / ("a" * 64 + ".mkv")).write_bytes(b"nobody knows it")
    (tmp_path / ("b" * 64 + ".json")).write_text("{")
    (tmp_path / "x.still").write_bytes(b"half")
    (tmp_path / "x.json.tmp").write_bytes(b"half")
    again = reopened(tmp_path)
    assert len(again.waiting()) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_a_clip_with_damaged_times_is_removed_and_the_others_are_completed(tmp_path):
    spool = ClipSpool(tmp_path)
    for number in (0, 30):
        recording = spool.begin(about(), frame(number))
        recording.append(frame(number + 1))
    data = recording.path.read_bytes()
    at = data.index(b"\x44\x61\x88") + 3  # the date of its first picture
    recording.path.write_bytes(data[:at] + b"\x7f" * 8 + data[at + 8 :])
    (clip,) = reopened(tmp_path).waiting()
    assert (clip.from_ns, clip.frames) == (START, 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_oldest_clips_are_dropped_if_the_hub_is_away_for_too_long(tmp_path):
    spool = ClipSpool(tmp_path, capacity=3 * 20 * len(PICTURES[0]))
    clips = [make_clip(spool, start=100 * number) for number in range(6)]
    waiting = spool.waiting()
    assert waiting == clips[-len(waiting) :]
    assert spool.dropped == 6 - len(waiting) > 0


def test_a_clip_that_grows_too_large_ends_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr("embereye.camera.clips.spool.CLIP_BYTES", 5 * len(PICTURES[0]))
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    appended = [recording.append(frame(number)) for number in range(1, 10)]
    assert not all(appended)
    assert spool.finish(recording).note == FULL


def test_a_picture_of_another_size_is_left_out(tmp_path):
    spool = ClipSpool(tmp_path)
    recording = spool.begin(about(), frame(0))
    assert recording.append(ClipFrame(frame(1).time_ns, PICTURES[1], 64, 48))
    assert spool.finish(recording).frames == 1


def test_a_still_is_stored_unchanged(tmp_path):
    spool = ClipSpool(tmp_path)
    still = spool.add_still(about(), PICTURES[0])
    assert spool.path(still).read_bytes() == PICTURES[0]
    assert still.media == Clip.MEDIA_STILL
    assert spool.waiting() == [still]
