import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.decode import image as image_module
from embereye.camera.decode import pool as module
from embereye.camera.decode import process
from embereye.camera.decode.image import (
    _REDUCED,
    Decoded,
    DecodeOrder,
    UndecodableError,
    add_logits,
    decode,
    decode_frame,
)
from embereye.camera.decode.pool import DecoderPool
from embereye.camera.decode.shipped import load_network
from embereye.camera.decode.wire import MARK, READY, Forget
from embereye.camera.scheduling.mailbox import Mailbox

from ..conftest import noisy_jpeg

JPEG = noisy_jpeg(size=(240, 320))
HALF = DecodeOrder(2)
UNDECODABLE = JPEG.replace(b"\xff\xdb", b"\xff\xe9")  # without its quantization tables


class Camera:
    pause, urgent, encoding = 60.0, False, ""

    def __init__(self, pool, order=HALF):
        self.box, self.results, self.pool, self.how = Mailbox(), [], pool, order

    def offer(self, number, jpeg=JPEG):
        self.box.offer_frame(jpeg, number, number)
        self.pool.submit(self)

    def next_frame(self):
        return self.box.take_frame()

    def lose_context(self):
        pass

    def decode_order(self, frame):
        return self.how

    def analyse_on_thread(self, frame):
        return frame.time_ns

    def finish_turn(self, turn):
        result = turn.result
        if isinstance(result, Decoded):
            result = replace(result, image=result.image.copy())
        self.results.append(result)


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


async def processes(pool):
    await eventually(lambda: len(children(pool._forker._process.pid)) == pool.count)
    return children(pool._forker._process.pid)


def coded(picture, *options):
    return cv2.imencode(".jpg", picture, options)[1].tobytes()


def turned(jpeg):
    """Add an Exif note to `jpeg` that the camera was turned."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    return jpeg[:2] + b"\xff\xe1" + (2 + len(exif)).to_bytes(2) + exif + jpeg[2:]


COLOURFUL = cv2.GaussianBlur(np.random.default_rng(1).integers(0, 255, (243, 325, 3), np.uint8), (9, 9), 0)
SAMPLING = {"4:4:4": 0x111111, "4:2:2": 0x211111, "4:4:0": 0x121111, "4:1:1": 0x411111}


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "jpeg",
    [
        *(coded(COLOURFUL, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor) for factor in SAMPLING.values()),
        coded(COLOURFUL, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        coded(COLOURFUL, cv2.IMWRITE_JPEG_RST_INTERVAL, 5),
        coded(COLOURFUL[..., 0]),
        coded(COLOURFUL)[:3000] + b"\xff\xd9",
        coded(COLOURFUL) + b"\0\0",
        turned(coded(COLOURFUL)),
    ],
    ids=[*SAMPLING, "progressive", "restart", "grey", "cut short", "padded", "turned"],
)
def test_decoded_pictures_equal_opencvs(jpeg, scale):
    expected = cv2.imdecode(np.frombuffer(jpeg, np.uint8), _REDUCED[scale])
    assert expected is not None
    assert np.array_equal(decode(memoryview(jpeg), scale, (325, 243)), expected)
    for room in (300_000, 100):
        assert np.array_equal(decode(memoryview(jpeg), scale, (325, 243), memoryview(bytearray(room))), expected)


def test_a_picture_without_an_end_is_refused():
    with pytest.raises(UndecodableError):
        decode(coded(COLOURFUL)[:3000], 2, (325, 243))


async def test_a_picture_that_is_not_analysed_reaches_no_decoder(pool):
    camera = Camera(pool, DecodeOrder(8, image=False))
    camera.offer(1, UNDECODABLE)
    await eventually(lambda: camera.results)
    assert camera.results[0].image.size == 0
    assert pool.cpu_seconds == pool.busy_seconds == 0


async def test_a_frame_is_decoded_as_in_this_process(pool):
    camera = Camera(pool)
    camera.offer(1)
    await eventually(lambda: camera.results)
    assert np.array_equal(camera.results[0].image, decode_frame(DecodeOrder(2), JPEG, 320, 240).image)
    assert not camera.results[0].still
    assert pool.cpu_seconds == camera.results[0].cpu_seconds > 0
    assert not pool.is_busy


async def test_memory_of_a_burst_of_large_pictures_is_released(pool):
    def taken():
        return os.fstat(pool._forker._descriptor).st_blocks * 512

    large = JPEG + bytes(2_000_000)
    cameras = [Camera(pool) for _ in range(8)]
    for number, camera in enumerate(cameras):
        camera.offer(number, large)
    pool.release_unused_slots()  # while they are in work
    await eventually(lambda: all(camera.results for camera in cameras))
    assert taken() > 2 * len(large)
    pool.release_unused_slots()
    assert taken() < 100_000
    cameras[0].offer(9)
    await eventually(lambda: len(cameras[0].results) == 2)
    for camera in cameras:
        for decoded in camera.results:
            assert np.array_equal(decoded.image, decode_frame(HALF, JPEG, 320, 240).image)


async def test_a_decoder_whose_end_causes_no_event_is_replaced_without_losing_frames(pool):
    camera = Camera(pool)
    for decoder in pool._decoders:
        pool._loop.remove_reader(decoder.process.link)
    for pid in await processes(pool):
        os.kill(pid, signal.SIGKILL)
    camera.offer(1)
    await asyncio.sleep(0.05)
    assert not camera.results
    await eventually(lambda: pool.poll_replies() or camera.results)
    assert np.array_equal(camera.results[0].image, decode_frame(HALF, JPEG, 320, 240).image)


async def test_a_still_marks_the_requested_boxes(pool):
    camera = Camera(pool, DecodeOrder(2, [(0.25, 0.25, 0.5, 0.5)]))
    camera.offer(1, noisy_jpeg(size=(480, 640)))
    await eventually(lambda: camera.results)
    still = cv2.imdecode(np.frombuffer(camera.results[0].still, np.uint8), cv2.IMREAD_COLOR)
    assert still.shape == (240, 320, 3)
    blue, _, red = still[60, 80:240].astype(int).mean(axis=0)
    assert red > blue + 60


async def test_the_appearance_networks_logits_come_with_the_picture(pool):
    close_ups = [(0.0, 0.0, 1.0, 1.0), (0.25, 0.25, 0.5, 0.5)]
    camera, quiet = Camera(pool, DecodeOrder(2, [(0.1, 0.1, 0.2, 0.2)], close_ups=close_ups)), Camera(pool)
    camera.offer(1)
    quiet.offer(1)
    await eventually(lambda: camera.results and quiet.results)
    order = DecodeOrder(2, close_ups=close_ups)
    here = add_logits(decode_frame(order, JPEG, 320, 240), order, load_network())
    assert len(here.logits) == 3
    assert camera.results[0].logits == pytest.approx(here.logits, abs=1e-4)
    assert camera.results[0].still
    assert quiet.results[0].logits == ()


async def test_the_appearance_network_does_not_judge_masked_parts(pool):
    order = DecodeOrder(2, close_ups=[], masked=[((0.0, 0.0), (0.7, 0.0), (0.7, 1.0), (0.0, 1.0))])
    camera, whole = Camera(pool, order), Camera(pool, DecodeOrder(2, close_ups=[]))
    camera.offer(1)
    whole.offer(1)
    await eventually(lambda: camera.results and whole.results)
    here = add_logits(decode_frame(order, JPEG, 320, 240), order, load_network())
    assert camera.results[0].logits == pytest.approx(here.logits, abs=1e-4)
    assert abs(camera.results[0].logits[0] - whole.results[0].logits[0]) > 0.01


async def test_a_detail_comes_with_the_picture_its_still_and_the_logits(pool):
    jpeg = noisy_jpeg(size=(480, 640))
    order = DecodeOrder(4, [(0.1, 0.1, 0.2, 0.2)], close_ups=[(0.25, 0.25, 0.5, 0.5)], detail=(0.5, 0.25, 0.25, 0.25))
    camera = Camera(pool, order)
    camera.offer(1, jpeg)
    await eventually(lambda: camera.results)
    here = decode_frame(order, jpeg, 640, 480)
    [there] = camera.results
    assert here.detail is not None
    assert here.detail.shape == (120, 160, 3)
    assert there.detail is not None
    assert np.array_equal(there.detail, here.detail)
    assert np.array_equal(there.image, here.image)
    assert there.still == here.still
    assert len(there.logits) == 2


@pytest.mark.parametrize(
    ("size", "scale", "still", "decoded"),
    [
        ((1920, 1080), 8, (240, 135), 1),
        ((3840, 2160), 8, (320, 180), 1),
        ((1080, 1920), 8, (135, 240), 1),
        ((1280, 720), 8, (320, 180), 2),
        ((640, 480), 4, (320, 240), 2),
        ((200, 150), 1, (200, 150), 1),
    ],
)
def test_a_still_needs_no_second_decoding_of_a_large_picture(monkeypatch, size, scale, still, decoded):
    calls = []
    monkeypatch.setattr(image_module, "decode", lambda *given: calls.append(given) or decode(*given))
    jpeg = noisy_jpeg(size=size[::-1])
    room = memoryview(bytearray(300_000))
    result = decode_frame(DecodeOrder(scale, [(0.25, 0.25, 0.5, 0.5)]), jpeg, size[0], size[1], room)
    assert len(calls) == decoded
    picture = cv2.imdecode(np.frombuffer(result.still, np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (*still[::-1], 3)
    # The boxes of the still are not drawn into the analysed image.
    assert np.array_equal(result.image, decode_frame(DecodeOrder(scale), jpeg, *size).image)


async def test_the_latest_frame_of_each_of_many_cameras_is_decoded(pool):
    cameras = [Camera(pool) for _ in range(20)]
    for number in range(1, 4):
        for camera in cameras:
            camera.offer(number)
    await eventually(lambda: not pool.is_busy)
    for camera in cameras:
        assert len(camera.results) + camera.box.ledger.shed["superseded"] == 3


async def test_frames_that_need_no_decoding_are_analysed_on_a_thread(pool, monkeypatch):
    aside, other = Camera(pool, None), Camera(pool)
    gate = threading.Event()
    monkeypatch.setattr(aside, "analyse_on_thread", lambda frame: gate.wait(10))
    aside.offer(1)
    other.offer(2)
    await eventually(lambda: other.results)
    assert not aside.results
    gate.set()
    await eventually(lambda: aside.results == [True])


async def test_an_undecodable_frame_does_not_affect_other_cameras(pool):
    bad, good = Camera(pool), Camera(pool)
    for number in range(1, 4):
        bad.offer(number, UNDECODABLE)
        good.offer(number)
        await eventually(lambda number=number: len(bad.results) == len(good.results) == number)
    assert all(isinstance(result, UndecodableError) for result in bad.results)
    assert all(isinstance(result, Decoded) for result in good.results)
    assert pool.died == 0


async def test_an_exception_in_a_cameras_analysis_is_its_result(pool, monkeypatch):
    def explode(frame):
        raise ZeroDivisionError("boom")

    camera = Camera(pool, None)
    monkeypatch.setattr(camera, "analyse_on_thread", explode)
    camera.offer(1)
    await eventually(lambda: camera.results)
    assert isinstance(camera.results[0], ZeroDivisionError)


async def test_a_camera_that_is_withdrawn_is_not_called_again(pool):
    first, gone = [Camera(pool) for _ in range(10)], Camera(pool)
    for camera in first:
        camera.offer(1)
    gone.offer(2)
    pool.withdraw(gone)
    await eventually(lambda: all(camera.results for camera in first))
    assert not gone.results
    assert not pool.is_busy


async def test_killed_decoders_are_replaced_and_waiting_frames_are_not_lost(pool):
    cameras = [Camera(pool) for _ in range(12)]
    for pid in await processes(pool):
        os.kill(pid, signal.SIGSTOP)
    for camera in cameras:
        camera.offer(1)
    await eventually(lambda: all(decoder.dispatched for decoder in pool._decoders))
    for pid in children(pool._forker._process.pid):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: all(camera.results for camera in cameras))
    assert pool.died == 2
    assert all(isinstance(camera.results[0], Decoded) for camera in cameras)


async def test_a_decoded_frame_is_not_blamed_for_the_next_frames_crash(pool):
    for _ in range(20):
        good, bad, behind = Camera(pool), Camera(pool, DecodeOrder(0)), Camera(pool)  # there is no scale of 0
        await eventually(lambda: all(decoder.process.link for decoder in pool._decoders))
        decoders, pool._decoders = pool._decoders, pool._decoders[:1]
        for camera in (good, bad, behind):
            camera.offer(1)
        pool._cost = 0.001
        pool._dispatch()
        pool._decoders = decoders
        await eventually(lambda: not pool.is_busy)
        assert [type(camera.results[0]) for camera in (good, bad, behind)] == [Decoded, UndecodableError, Decoded]


async def test_decoders_are_replaced_even_if_the_forking_process_is_gone(pool):
    decoders = await processes(pool)
    for pid in (pool._forker._process.pid, *decoders):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: pool.died == 2)
    camera = Camera(pool)
    for number in range(1, 100):
        camera.offer(number)
        await eventually(lambda number=number: len(camera.results) == number)
        if isinstance(camera.results[-1], Decoded):
            break
    assert isinstance(camera.results[-1], Decoded)


async def test_a_shard_that_cannot_decode_does_not_start(monkeypatch):
    monkeypatch.setattr(module, "START_SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    decoders = DecoderPool(1)
    with pytest.raises(RuntimeError, match="no process started within"):
        await decoders.start()


async def test_no_process_remains_after_stop():
    decoders = DecoderPool(2)
    await decoders.start()
    pids = [decoders._forker._process.pid, *await processes(decoders)]
    decoders.stop()
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_decoders_end_with_the_process_they_work_for():
    script = Path(__file__).with_name("keep_decoders.py")
    process = await asyncio.create_subprocess_exec(sys.executable, script, stdout=subprocess.PIPE)
    forking = int(await process.stdout.readline())
    await eventually(lambda: len(children(forking)) == 2)
    pids = [forking, *children(forking)]
    process.kill()
    await process.wait()
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_a_decoder_releases_the_interpreters_free_lists(monkeypatch):
    forget = Forget(1).pack()
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(True))
    for seconds, expected in ((3600.0, []), (-1.0, [True, True])):
        monkeypatch.setattr(process, "COLLECT_SECONDS", seconds)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            serving = threading.Thread(target=process.Decoders(theirs, memoryview(bytearray(MARK + 1))).serve)
            serving.start()
            assert ours.recv(100) == READY
            ours.send(forget)
            ours.send(forget)
        serving.join()
        assert collected == expected


@pytest.mark.parametrize(
    ("case", "code", "printed"),
    [("loops", -signal.SIGPROF, ""), ("waits", -signal.SIGALRM, ""), ("resumes", 0, "answer\n")],
)
def test_a_hanging_decoder_ends_itself_but_not_one_whose_machine_was_suspended(case, code, printed):
    script = Path(__file__).with_name("hang_decoder.py")
    ran = subprocess.run([sys.executable, script, case], check=False, timeout=50, stdout=subprocess.PIPE, text=True)
    assert (ran.returncode, ran.stdout) == (code, printed)
