import asyncio
import errno
import threading

import cv2
import numpy as np
import pytest

from embereye.camera.clips.recorder import Recorder
from embereye.camera.clips.spool import ClipSpool, Recording
from embereye.camera.clips.stills import annotate_still, caption
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip
from embereye.v1.types_pb2 import Term
from embereye.wire.matroska import frames

from .pictures import PICTURES, START, about, frame, report


@pytest.fixture
async def recorder(tmp_path):
    finished = []
    made = Recorder(tmp_path / "clips", lambda: finished.append(1))
    await made.start()
    yield made
    made.close()


def sign(recorder, item, upto, now_ns, after=SECOND):
    before = [frame(number) for number in range(max(0, upto - 20), upto + 1)]
    recorder.record_report(item, before, box=(0.1, 0.1, 0.3, 0.4), now_ns=now_ns, about=about(), after_ns=after)


async def waiting(recorder):
    await recorder.flush()
    stored = await recorder.run(ClipSpool.waiting)
    stills = [clip for clip in stored if clip.media == Clip.MEDIA_STILL]
    return [clip for clip in stored if clip.media == Clip.MEDIA_CLIP], stills


async def test_a_clip_covers_the_time_before_and_after_a_sign(recorder):
    sign(recorder, report(), 30, frame(30).time_ns)
    for number in range(30, 60):
        recorder.record_frame("gate", frame(number), frame(number).time_ns)
    (clip,), (still,) = await waiting(recorder)
    assert (clip.from_ns, clip.until_ns) == (frame(10).time_ns, frame(40).time_ns)
    assert clip.frames == 31
    assert (clip.episode, clip.device, clip.zone, clip.fleet) == ("e1", "gate", "yard", "default/cameras/yard")
    assert (still.from_ns, still.episode) == (frame(30).time_ns, "e1")


async def test_a_growing_sign_extends_its_clip_and_gets_another_still(recorder):
    sign(recorder, report(Level.PRE_ALARM), 0, START)
    for number in range(1, 40):
        if number == 8:
            sign(recorder, report(Level.ALARM), 8, frame(8).time_ns)
        if number == 9:
            sign(recorder, report(Level.ALARM), 9, frame(9).time_ns)
        recorder.record_frame("gate", frame(number), frame(number).time_ns)
    clips, stills = await waiting(recorder)
    assert len(clips) == 1
    assert clips[0].until_ns == frame(18).time_ns
    assert len(stills) == 2


async def test_a_sign_that_returns_gets_a_separate_clip(recorder):
    sign(recorder, report(Level.PRE_ALARM, "e1"), 10, frame(10).time_ns)
    for number in range(10, 40):
        if number == 16:
            sign(recorder, report(Level.ALARM, "e2"), 16, frame(16).time_ns)
        recorder.record_frame("gate", frame(number), frame(number).time_ns)
    clips, stills = await waiting(recorder)
    spans = {clip.episode: (clip.from_ns, clip.until_ns) for clip in clips}
    assert spans == {"e1": (START, frame(15).time_ns), "e2": (START, frame(26).time_ns)}
    assert sorted(still.episode for still in stills) == ["e1", "e2"]


async def test_a_sign_that_returns_while_the_disk_stalls_does_not_change_the_earlier_clip(recorder):
    sign(recorder, report(Level.PRE_ALARM, "e1"), 0, START)
    recorder.pending_bytes = 0
    sign(recorder, report(Level.ALARM, "e2"), 1, frame(1).time_ns)
    await recorder.run(lambda _: None)
    await asyncio.sleep(0)
    recorder.record_frame("gate", frame(2), frame(2).time_ns)
    (clip,), (_,) = await waiting(recorder)
    assert (clip.episode, clip.until_ns) == ("e1", frame(2).time_ns)


async def test_an_episode_is_recorded_once_for_each_level(recorder):
    for number in range(0, 100, 10):
        sign(recorder, report(Level.ALARM), number, frame(number).time_ns)
        recorder.end_overdue(frame(number).time_ns + 2 * SECOND)
    sign(recorder, report(Level.CLEAR, "e2"), 100, frame(100).time_ns)
    clips, stills = await waiting(recorder)
    assert (len(clips), len(stills)) == (1, 1)


async def test_a_camera_that_falls_silent_still_gets_its_clip(recorder):
    sign(recorder, report(), 30, frame(30).time_ns)
    recorder.end_overdue(frame(30).time_ns + 2 * SECOND)
    (clip,), _ = await waiting(recorder)
    assert clip.frames == 21


async def test_a_full_disk_is_logged_once_and_clips_resume_when_there_is_room(recorder, monkeypatch, caplog):
    append, full = Recording.append, True

    def no_room(recording, frame):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return append(recording, frame)

    monkeypatch.setattr(Recording, "append", no_room)
    for number in range(3):
        sign(recorder, report(episode=f"e{number}", device=f"gate-{number}"), 5, START)
    await recorder.flush()
    await asyncio.sleep(0)
    assert recorder.failing.why == "No space left on device"
    assert caplog.text.count("cannot be written") == 1
    full = False
    sign(recorder, report(episode="later"), 5, START)
    clips, _ = await waiting(recorder)
    assert [clip.episode for clip in clips] == ["later"]
    assert not recorder.failing


async def test_frames_that_the_disk_is_too_slow_for_are_left_out(recorder):
    recorder.pending_bytes = 0
    sign(recorder, report(), 0, START, after=60 * SECOND)
    for number in range(1, 50):
        recorder.record_frame("gate", frame(number), frame(number).time_ns)
    (clip,), _ = await waiting(recorder)
    assert recorder.left_out > 0
    assert clip.frames + recorder.left_out == 50


async def test_signs_wait_in_memory_up_to_a_limit_while_the_disk_stalls(recorder):
    recorder.pending_bytes = recorder.pending_max_bytes = 50_000
    released = threading.Event()
    blocker = asyncio.ensure_future(recorder.run(lambda _: released.wait()))
    sign(recorder, report(), 30, START)
    pending = recorder._pending
    assert pending > 50_000
    for number in range(20):
        sign(recorder, report(episode=f"e-{number}", device=f"gate-{number}"), 30, START)
        recorder.record_still(about(), frame(30), report(), None)
    assert recorder._pending == pending
    released.set()
    await blocker
    await recorder.flush()
    await asyncio.sleep(0)
    sign(recorder, report(episode="e-0", device="gate-0"), 30, START)
    clips, stills = await waiting(recorder)
    assert sorted(clip.episode for clip in clips) == sorted(still.episode for still in stills) == ["e-0", "e1"]


async def test_a_killed_recorder_leaves_its_frames_on_disk(tmp_path):
    killed = Recorder(tmp_path, lambda: None)
    await killed.start()
    sign(killed, report(), 30, frame(30).time_ns, after=60 * SECOND)
    for number in range(31, 40):
        killed.record_frame("gate", frame(number), frame(number).time_ns)
    await killed.run(lambda _: None)
    successor = Recorder(tmp_path, lambda: None)
    await successor.start()
    await successor.complete_cut_off()
    (clip,), (_,) = await waiting(successor)
    data = await successor.run(lambda spool: spool.path(clip).read_bytes())
    assert len(list(frames(data))) == 30
    killed.close()
    successor.close()


async def test_completing_cut_off_clips_delays_neither_the_start_nor_new_clips(tmp_path, monkeypatch):
    killed = Recorder(tmp_path, lambda: None)
    await killed.start()
    for number in range(3):
        sign(killed, report(episode=f"cut-{number}", device=f"gate-{number}"), 30, START)
    await killed.run(lambda _: None)
    killed.close()
    finish, entered, released, finished = ClipSpool.finish, threading.Event(), threading.Event(), []

    def block(spool, recording):
        entered.set()
        released.wait()
        finished.append(recording.about.episode)
        return finish(spool, recording)

    monkeypatch.setattr(ClipSpool, "finish", block)
    successor = Recorder(tmp_path, lambda: None)
    async with asyncio.timeout(20):
        await successor.start()
        completing = asyncio.ensure_future(successor.complete_cut_off())
        await asyncio.to_thread(entered.wait)
        sign(successor, report(episode="new"), 30, START)
        flushing = asyncio.ensure_future(successor.flush())
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(flushing, completing)
    clips, _ = await waiting(successor)
    assert sorted(clip.episode for clip in clips) == sorted(finished) == ["cut-0", "cut-1", "cut-2", "new"]
    assert finished.index("new") == 1
    successor.close()


def test_a_still_shows_place_kind_time_and_reasons():
    plain = cv2.imdecode(np.frombuffer(PICTURES[0], np.uint8), cv2.IMREAD_COLOR)
    data, width, height = annotate_still(PICTURES[0], report(), (0.25, 0.25, 0.5, 0.5), START)
    still = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert still.shape[:2] == (height, width)
    assert width == plain.shape[1]
    assert height > plain.shape[0]
    reddish = still[..., 2].astype(int) - still[..., 1]
    assert reddish[24, 40:90].mean() > 60
    assert still[plain.shape[0] :].max() > 150


def test_a_caption_is_plain_text():
    item = report()
    item.why.append(Term(name="temperature.max", value=81.2, threshold=57, unit="°C"))
    assert caption(item, START + 123_000_000) == [
        "gate, yard   flame ALARM",
        "2026-11-18 11:06:40.123 UTC   score 0.61",
        "flame.flicker 0.41  (limit 0.25)",
        "temperature.max 81.2 C  (limit 57 C)",
    ]


async def test_clips_leave_the_disk_space_that_alarms_need(recorder, monkeypatch):
    monkeypatch.setattr("embereye.shard.clips.spool.FREE_BYTES", 2**60)
    sign(recorder, report(), 5, START)
    clips, stills = await waiting(recorder)
    await asyncio.sleep(0)
    assert not clips
    assert not stills
    assert recorder.failing.why.endswith("MB are free")
    assert not list(recorder.spool.path(Clip(media=Clip.MEDIA_CLIP)).parent.iterdir())
