"""Decoders that misbehave: their replies are garbled, they run another version, their socket is full."""

import os
import signal
import socket

import pytest
from harness.eventually import eventually

from embereye.camera.decode.image import Decoded, DecodeOrder, UndecodableError
from embereye.camera.decode.wire import READY, Outcome, Reply

from ..conftest import noisy_jpeg
from .test_pool import Camera, processes
from .test_video_pool import Video, access_units


def pretended(pool, monkeypatch):
    """Take the place of the pool's first decoder; return the socket on which its orders arrive."""
    process = pool._decoders[0].process
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    process._disconnect()
    with monkeypatch.context() as patch:
        patch.setattr(process.forker, "fork", lambda number: ours)
        process.start()
    pool._decoders[1].process._disconnect()  # so that all frames go to the first one
    return theirs


@pytest.mark.parametrize(
    "garbage",
    [b"\0", b"nonsense" * 20, Reply(0, Outcome.DELAYED, 1.0, 2.0).pack()],
    ids=["short", "random", "slot without a frame"],
)
async def test_a_garbled_reply_costs_only_the_frame_that_it_answers(pool, monkeypatch, garbage):
    decoder = pretended(pool, monkeypatch)
    decoder.send(READY)
    bad, behind = Camera(pool), Camera(pool)
    for camera in (bad, behind):
        camera.offer(1)
        await eventually(lambda camera=camera: camera in pool._turns.running)
    decoder.send(garbage)
    await eventually(lambda: bad.results and behind.results)
    assert isinstance(bad.results[0], UndecodableError)
    assert isinstance(behind.results[0], Decoded)
    assert pool.died == 1


async def test_a_decoder_of_another_version_is_reported_and_gets_no_frames(pool, monkeypatch, caplog):
    decoder, camera = pretended(pool, monkeypatch), Camera(pool)
    camera.offer(1)
    await eventually(lambda: camera in pool._turns.running)
    decoder.send(b"ready 00000000")
    await eventually(lambda: camera.results)
    assert isinstance(camera.results[0], Decoded)
    assert "another version of EmberEye. Restart this process" in caplog.text


async def test_orders_that_do_not_fit_into_the_socket_are_sent_later(pool):
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for decoder in pool._decoders:
        decoder.process.link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the smallest one, 4.5 KB
    pool._cost = 1e-9  # so that decoders get work far in advance
    cameras = [Camera(pool) for _ in range(40)]
    for camera in cameras:
        camera.offer(1)
        pool._dispatch()
    assert pool.in_work == len(cameras)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: all(camera.results for camera in cameras))
    assert all(isinstance(camera.results[0], Decoded) for camera in cameras)
    assert pool.died == 0


async def test_pictures_that_crash_decoders_disturb_a_neighbours_video_once(pool):
    bad, videos = Camera(pool, DecodeOrder(0)), [Video(pool, access_units()) for _ in range(2)]
    for number in range(1, 6):
        for video in videos:
            await video.show()
        bad.offer(number)
        await eventually(lambda number=number: len(bad.results) == number)
        assert bad.results[-1].crashed
    assert all(video.lost <= 1 for video in videos)
    bad.how = DecodeOrder(2)
    bad.offer(9)
    await eventually(lambda: len(bad.results) == 6)
    assert isinstance(bad.results[-1], Decoded)


async def test_a_camera_whose_picture_is_replaced_by_a_video_is_decoded(pool):
    camera, busy = Video(pool, access_units()), [Camera(pool) for _ in range(12)]
    stopped = await processes(pool)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for other in busy:
        other.offer(1)
    camera.box.offer_frame(noisy_jpeg(size=(240, 320)), 1, 1)
    pool.submit(camera)
    assert camera not in pool._turns.running
    # not submitted: it may wait for the next one
    camera.video.offer_unit(camera.units[0], 2, 2, boosted=False, refused=False)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: camera.results)
    assert isinstance(camera.results[0], Decoded)
