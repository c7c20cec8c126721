import math
import os
import signal
from dataclasses import replace

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.decode import pool as module
from embereye.camera.decode.image import Decoded, DecodeOrder, PictureDelayedError, UndecodableError
from embereye.camera.decode.pool import ContextLostError
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.decode.wire import SLOTS
from embereye.camera.scheduling.mailbox import Mailbox
from embereye.camera.scheduling.video_mailbox import VideoFrame, VideoMailbox
from embereye.wire.video.access_unit import AccessUnit

from ...wire.video.coded import coded
from ..conftest import noisy_jpeg
from .test_pool import processes

CRASH = DecodeOrder(1, [(math.inf, 0, 1, 1)])  # such a box cannot be drawn
WHOLE = DecodeOrder(1)
SIZE = (320, 240)


def access_units(encoding="H264", count=24, gop=24, **options):
    units = []
    for number, (timestamp, nals) in enumerate(coded(encoding, count, *SIZE, gop=gop, **options)):
        data = b"".join(b"\0\0\0\1" + nal for nal in nals)
        units.append(AccessUnit(data, timestamp, SIZE, key=number % gop == 0, encoding=encoding))
    return units


class Video:
    """A camera that offers its access units one after another."""

    pause, urgent = 60.0, False

    def __init__(self, pool, units, order=WHOLE):
        self.pool, self.units, self.order = pool, units, order
        self.box, self.results, self.lost, self.number = Mailbox(), [], 0, 0
        self.video = VideoMailbox(self.box)

    @property
    def encoding(self):
        return self.box.encoding

    def offer(self):
        unit = self.units[self.number % len(self.units)]
        self.number += 1
        self.video.offer_unit(unit, self.number, self.number, boosted=False, refused=False)
        if self.box.waiting:
            self.pool.submit(self)

    async def show(self):
        """Offer one unit and wait for its result."""
        count = len(self.results)
        self.offer()
        await eventually(lambda: len(self.results) > count or not self.box.waiting)
        await eventually(lambda: not self.pool.is_busy or len(self.results) > count)
        return self.results[-1]

    def lose_context(self):
        self.lost += 1
        self.video.restart_decoding(replay=True)

    def next_frame(self):
        frame = self.box.take_frame()
        return self.video.with_units(frame) if isinstance(frame, VideoFrame) else frame

    def decode_order(self, frame):
        return self.order

    def finish_turn(self, turn):
        if self.box.waiting:
            self.pool.submit(self)
        result = turn.result
        if isinstance(result, Decoded):
            result = Decoded(result.image.copy(), result.still, result.cpu_seconds, result.unit, result.picture)
        elif isinstance(result, UndecodableError):
            self.video.restart_decoding(replay=False)
        self.results.append(result)


def exact(encoding, units):
    decoder = VideoDecoder(encoding)
    return [decoder.decode(WHOLE, [(unit.data, 0)]).image for unit in units]


@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_a_video_is_decoded_by_only_one_of_two_decoders(pool, encoding):
    units = access_units(encoding)
    cameras = [Video(pool, units) for _ in range(3)]
    for number, expected in enumerate(exact(encoding, units), 1):
        for camera in cameras:
            result = await camera.show()
            assert isinstance(result, Decoded)
            assert result.unit == number
            assert np.array_equal(result.image, expected)
            assert result.image.shape == (120, 160, 3)


async def test_frames_that_pile_up_are_decoded_together_and_the_last_is_returned(pool):
    units = access_units()
    camera, expected = Video(pool, units), exact("H264", units)
    await camera.show()
    for _ in range(6):
        camera.offer()
    await eventually(lambda: not pool.is_busy)
    assert np.array_equal(camera.results[-1].image, expected[6])


async def test_frames_in_separate_slots_are_all_returned_in_order(pool):
    units = access_units()
    camera, expected = Video(pool, units), exact("H264", units)
    camera.video.slots = 3
    await camera.show()
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for _ in range(6):
        camera.offer()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: not pool.is_busy)
    seen = [result.unit for result in camera.results]
    assert seen[-3:] == [5, 6, 7]
    assert len(seen) + camera.box.ledger.shed["superseded"] == 7
    assert all(np.array_equal(result.image, expected[result.unit - 1]) for result in camera.results)


async def test_a_decoder_may_delay_pictures_and_returns_their_numbers(pool):
    units = access_units(x264="bframes=2:b-adapt=0")
    camera = Video(pool, units)
    results = [await camera.show() for _ in range(12)]
    delayed = [result for result in results if isinstance(result, PictureDelayedError)]
    shown = [units[result.unit - 1].timestamp for result in results if isinstance(result, Decoded)]
    assert 1 <= len(delayed) <= 3
    assert shown == sorted(shown)
    assert len(shown) == 12 - len(delayed)


async def test_a_still_and_a_picture_are_made_on_request(pool):
    camera = Video(pool, access_units(), DecodeOrder(1, [(0.1, 0.1, 0.2, 0.2)], picture_side=200))
    result = await camera.show()
    assert result.still.startswith(b"\xff\xd8")
    assert result.picture.startswith(b"\xff\xd8")
    assert result.picture != result.still


async def test_a_picture_full_of_detail_is_made(pool):
    ((timestamp, nals),) = coded("H264", 1, 1280, 1280, gop=1, noise=40)
    unit = AccessUnit(b"".join(b"\0\0\0\1" + nal for nal in nals), timestamp, (1280, 1280), key=True)
    result = await Video(pool, [unit], DecodeOrder(1, picture_side=1280)).show()
    assert cv2.imdecode(np.frombuffer(result.picture, np.uint8), cv2.IMREAD_COLOR).shape == (1280, 1280, 3)


async def test_videos_and_pictures_share_the_decoders(pool):
    units, jpeg = access_units(), noisy_jpeg(size=(240, 320))

    class Pictures(Video):
        def offer(self):
            self.number += 1
            self.box.offer_frame(jpeg, self.number, self.number)
            self.pool.submit(self)

    cameras = [Video(pool, units) for _ in range(4)] + [Pictures(pool, [], DecodeOrder(2)) for _ in range(4)]
    for _ in range(10):
        for camera in cameras:
            camera.offer()
        await eventually(lambda: not pool.is_busy)
    assert all(isinstance(camera.results[-1], Decoded) for camera in cameras)
    assert all(len(camera.results) == 10 for camera in cameras)


async def test_videos_of_a_killed_decoder_continue_with_the_next_key_frame(pool):
    units = access_units()
    cameras, expected = [Video(pool, units) for _ in range(4)], exact("H264", units)
    for _ in range(5):
        for camera in cameras:
            await camera.show()
    os.kill((await processes(pool))[0], signal.SIGKILL)
    await eventually(lambda: pool.died == 1)
    for camera in cameras:
        result = await camera.show()
        if isinstance(result, ContextLostError):
            result = await camera.show()
        assert np.array_equal(result.image, expected[camera.number - 1])
    assert sum(camera.lost for camera in cameras) == 2


async def test_a_video_that_crashes_its_decoder_is_isolated_and_logged(pool):
    units = access_units(gop=8)
    cameras = [Video(pool, units) for _ in range(4)]
    bad = cameras[0]
    for _ in range(3):
        for camera in cameras:
            await camera.show()
    bad.order = CRASH
    error = await bad.show()
    assert isinstance(error, UndecodableError)
    assert error.crashed
    bad.order = WHOLE
    homes = {camera: pool._pins[camera].decoder for camera in cameras}
    assert [homes[bad] is homes[camera] for camera in cameras] == [True, False, False, False]
    for _ in range(16):
        for camera in cameras:
            camera.offer()
        await eventually(lambda: not pool.is_busy)
    assert all(isinstance(camera.results[-1], Decoded) for camera in cameras)
    died = pool.died
    bad.order = CRASH
    assert (await bad.show()).crashed
    assert pool.died == died + 1
    assert all(camera.lost <= 1 for camera in cameras[1:])  # the other cameras used another decoder


async def test_a_video_that_keeps_crashing_decoders_is_paused(pool, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.3)
    camera = Video(pool, access_units(gop=1), CRASH)
    assert (await camera.show()).crashed
    assert (await camera.show()).crashed
    count = len(camera.results)
    camera.offer()
    await eventually(lambda: not pool.is_busy)
    assert len(camera.results) == count
    camera.order = WHOLE

    def offered():
        camera.offer()
        return len(camera.results) > count

    await eventually(offered)
    await eventually(lambda: not pool.is_busy)
    assert isinstance(camera.results[-1], Decoded)


async def test_a_video_that_behaves_long_enough_leaves_isolation(pool, monkeypatch):
    monkeypatch.setattr(module, "ISOLATION_SECONDS", 0.2)
    camera = Video(pool, access_units(gop=4), CRASH)
    assert (await camera.show()).crashed
    camera.order = WHOLE
    for _ in range(4):
        camera.offer()
        await eventually(lambda: not pool.is_busy)
    assert pool._pins[camera].decoder is pool._isolated_decoder

    def back():
        camera.offer()
        return pool._pins[camera].decoder is not pool._isolated_decoder

    await eventually(back)
    await eventually(lambda: not pool.is_busy)
    assert isinstance(camera.results[-1], Decoded)


async def test_after_undecodable_data_the_next_key_frame_is_decoded(pool):
    units = access_units(gop=4)
    camera = Video(pool, [units[0], AccessUnit(b"\0\0\0\1\x65" + bytes(50), 0, SIZE, key=True), *units[1:]])
    assert isinstance(await camera.show(), Decoded)
    assert isinstance(await camera.show(), UndecodableError)
    for _ in range(8):
        camera.offer()
        await eventually(lambda: not pool.is_busy)
    assert isinstance(camera.results[-1], Decoded)


async def test_a_withdrawn_videos_context_is_dropped(pool):
    camera = Video(pool, access_units())
    await camera.show()
    pool.withdraw(camera)
    assert not pool._pins
    other = Video(pool, access_units())
    assert isinstance(await other.show(), Decoded)


async def test_a_video_withdrawn_with_a_frame_in_work_is_forgotten(pool):
    gone, other = Video(pool, access_units()), Video(pool, access_units())
    await gone.show()
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    gone.offer()
    await eventually(lambda: pool.in_work)
    pool.withdraw(gone)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: not pool.is_busy)
    assert len(gone.results) == 2
    assert not pool._pins
    assert isinstance(await other.show(), Decoded)


async def test_a_camera_that_switches_to_video_has_one_turn_at_a_time(pool):
    pool.prefetch_seconds = 0.0
    camera, busy = Video(pool, access_units()), [Video(pool, access_units()) for _ in range(8)]
    for other in busy:
        await other.show()
    camera.video.slots = 3
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for other in busy:
        other.offer()
    camera.box.offer_frame(noisy_jpeg(size=(240, 320)), 1, 1)
    pool.submit(camera)
    await eventually(lambda: pool.in_work == 2 * module.PREFETCH_FRAMES)
    for _ in range(3):
        camera.offer()
    assert camera not in pool._turns.running
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: not pool.is_busy)
    for _ in range(3):
        for video in (camera, *busy):
            video.offer()
        await eventually(lambda: not pool.is_busy)
    assert all(isinstance(video.results[-1], Decoded) for video in (camera, *busy))
    assert all(len(decoder.free) == SLOTS for decoder in pool._decoders)


async def test_units_beyond_a_decoders_room_are_dropped_until_the_next_key_frame(pool):
    units = access_units(count=12, gop=6)
    filler = b"\0\0\0\1\x0c" + b"\xff" * (3 * 1024 * 1024)  # filler data, which every decoder skips
    large = [replace(unit, data=unit.data + filler) for unit in units]
    camera, other = Video(pool, large), Video(pool, access_units())
    assert isinstance(await camera.show(), Decoded)
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        other.offer()
        camera.offer()
    for _ in range(3):
        camera.offer()
    assert camera.box.waiting
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: not pool.is_busy)
    for _ in range(6):
        assert isinstance(await other.show(), Decoded)
        result = await camera.show()
    assert isinstance(result, Decoded)
    assert all(len(decoder.free) == SLOTS for decoder in pool._decoders)


async def test_prefetching_is_limited_by_the_work_in_a_decoders_orders(pool):
    """If frames were counted, frames with many units would leave a decoder without work or with far too much."""
    units = access_units(count=96, gop=96)
    cameras = [Video(pool, units) for _ in range(16)]
    for camera in cameras:
        await camera.show()
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        pool.prefetch_seconds = 0.0
        for _ in range(8):
            for camera in cameras:
                camera.offer()
        pool._dispatch()
        assert pool.in_work == 2 * module.PREFETCH_FRAMES
        pool.prefetch_seconds = 30 * pool._cost
        pool._dispatch()
        given = [sum(len(of.turn.frame.units) for of in decoder.dispatched) for decoder in pool._decoders]
        assert all(30 <= units < 30 + 8 for units in given)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    await eventually(lambda: not pool.is_busy)


async def test_blocks_are_smoothed_or_not_from_the_next_key_frame_on(pool):
    units, rough = access_units(count=24, gop=8), DecodeOrder(1, smoothed=False)
    camera, expected = Video(pool, units, rough), exact("H264", units)
    same = []
    for number in range(24):
        camera.order = rough if number < 4 else WHOLE
        result = await camera.show()
        same.append(np.array_equal(result.image, expected[number]))
        assert np.abs(result.image.astype(int) - expected[number]).mean() < 3
    assert not any(same[1:8])
    assert all(same[8:])
