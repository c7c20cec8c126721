"""Privacy masks are black in all pictures that a shard makes of a camera: JPEG, H.264 or temperatures."""

import asyncio
import time

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.scheduling.mailbox import Tally
from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device, Mask
from embereye.wire.radiometric import wrap
from embereye.wire.video.access_unit import AccessUnit
from embereye.wire.video.nal import START_CODE

from ..wire.video.coded import coded
from .conftest import assignment, device, status_of

HIDDEN = Mask(x=[0, 0.5, 0.5, 0], y=[0, 0, 1, 1])  # the left half


def marked(number, width=320, height=240, _=0):
    """A picture with a white marker on the left and noise on the right."""
    picture = np.random.default_rng(number).integers(60, 140, (height, width, 3)).astype(np.uint8)
    picture[height // 4 : height // 2, width // 8 : width // 3] = 255
    return picture


def brightest(jpeg):
    """The brightest values of the hidden and of the seen half, 0 to 255."""
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    middle = picture.shape[1] // 2
    return int(picture[:, : middle - 4].max()), int(picture[:, middle + 4 :].max())


def offer_all(kind, camera):
    """Yield functions that offer the next frame of `kind` to `camera`."""
    units = coded("H264", 24, 320, 240, 8, draw=marked) if kind == "H264" else ()
    for number in range(1000):
        if kind == "H264":
            data = b"".join(START_CODE + nal for nal in units[number % 24][1])
            unit = AccessUnit(data, number * 6000, (320, 240), number % 8 == 0, encoding="H264")
            yield lambda unit=unit: camera.offer_frame(unit, time.time_ns())
        elif kind == "heat":
            words = np.random.default_rng(number).integers(29_400, 29_500, (120, 160)).astype(np.uint16)
            words[30:60, 20:50] = words[30:60, 100:110] = 31_000
            yield lambda words=words: camera.push_frame(wrap(160, 120, words.tobytes()), time.time_ns(), Tally())
        else:
            jpeg = cv2.imencode(".jpg", marked(number))[1].tobytes()
            yield lambda jpeg=jpeg: camera.push_frame(jpeg, time.time_ns(), Tally())


def shown(camera, live):
    """All pictures of `camera` that people could get now."""
    queued = []
    while waiting := live._batch():
        queued += [status.picture for status in waiting if not status.reason]
    stored = [frame.jpeg for frame in camera.ring.frames()]
    latest = [camera.latest.jpeg] if camera.latest else []
    return stored, queued, [camera.status.still] if camera.status.still else [], latest


@pytest.mark.parametrize("kind", ["JPEG", "H264", "heat"])
async def test_no_picture_of_a_camera_shows_what_is_hidden(running, kind):
    shard = running.shard
    shard.apply(assignment(1, device("gate", privacy_masks=[HIDDEN], fps_target=15, fps_min=5)))
    camera, live = shard._cameras["gate"], shard._links.live
    frames, pictures, ends = offer_all(kind, camera), ([], [], [], []), time.monotonic() + 60
    while time.monotonic() < ends and not all(len(way) >= 2 for way in pictures[:3]):
        live._look_at(FleetRoster(devices=[Device(id="gate", source="H264,H265")]))  # there is no hub that says so
        next(frames)()
        await asyncio.sleep(1 / 15)
        for way, latest in zip(pictures, shown(camera, live), strict=True):
            way += [picture for picture in latest if picture not in way]
    assert all(pictures[:3]), [len(way) for way in pictures]
    for jpeg in (jpeg for way in pictures for jpeg in way):
        hidden, seen = brightest(jpeg)
        assert hidden < 40
        assert seen > 60
    assert camera.video is None


async def test_pictures_from_before_a_privacy_mask_are_dropped_at_once(running):
    shard, gate = running.shard, device("gate", fps_target=15, fps_min=5)
    shard.apply(assignment(1, gate))
    camera = shard._cameras["gate"]
    frames = offer_all("JPEG", camera)
    for _ in range(3):
        next(frames)()
        await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    await eventually(lambda: camera.latest)
    assert brightest(camera.latest.jpeg)[0] > 200
    next(frames)()
    gate.privacy_masks.append(HIDDEN)
    shard.apply(assignment(2, gate))
    assert shown(camera, shard._links.live) == ([], [], [], [])
    await eventually(lambda: not camera.arrivals.mailbox.ledger.waiting)
    assert shown(camera, shard._links.live) == ([], [], [], [])
    assert status_of(shard, "gate", time.time_ns() + SECOND).picture == b""
