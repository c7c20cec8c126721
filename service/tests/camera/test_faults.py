"""One camera's errors affect only that camera."""

import asyncio
import itertools
import random
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
import pytest
from harness.eventually import eventually

from embereye.camera.decode.image import DecodeOrder
from embereye.camera.scheduling.admission import CameraAdmission, Demand
from embereye.camera.scheduling.mailbox import Tally
from embereye.process.addresses import free_port
from embereye.wire.radiometric import wrap

from .conftest import assignment, device, noisy_jpeg, status_of

CALM = [f"calm-{number}" for number in range(4)]
STEPS = 12


def coded(size, *options):
    picture = np.random.default_rng(1).integers(0, 255, (*size, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", picture, list(options))[1].tobytes()


def resized(jpeg, width, height):
    """Change the size that a JPEG claims to have."""
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + height.to_bytes(2) + width.to_bytes(2) + jpeg[at + 4 :]


def scrambled(jpeg):
    scan = jpeg.index(b"\xff\xda") + 14
    return jpeg[:scan] + np.random.default_rng(2).integers(0, 255, 4000, dtype=np.uint8).tobytes() + b"\xff\xd9"


def scans(jpeg, scan, count):
    """Replace the scans of `jpeg` by `count` scans of its first component."""
    return jpeg[: jpeg.index(b"\xff\xda")] + scan * count + b"\xff\xd9"


def strip_tiff(count, size):
    """Build a TIFF of one pixel whose strips all use the same bytes: `count` times `size` of them."""
    whole = wrap(1, 1, bytes(size))
    for tag, value in ((273, 0), (279, size)):
        place = whole.index(struct.pack("<HHI", tag, 4, 1))
        whole = whole[:place] + struct.pack("<HHII", tag, 4, count, len(whole)) + whole[place + 12 :]
        whole += struct.pack("<I", value) * count
    return whole


SPECTRAL = b"\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00\x00"
SEQUENTIAL = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x00"
BOMBS = {
    "65,500 pixels a side": resized(noisy_jpeg(), 65_500, 65_500),
    "the largest that is decoded, with nothing in it": resized(noisy_jpeg(), 6_300, 6_300),
    "progressive": coded((480, 640), cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "one pixel": coded((1, 1)),
    "noise for a scan": scrambled(noisy_jpeg()),
    "nothing": b"",
    "progressive, of endless scans": scans(coded((480, 640), cv2.IMWRITE_JPEG_PROGRESSIVE, 1), SPECTRAL, 5_000),
    "sequential, of endless scans": scans(resized(noisy_jpeg(), 6_300, 6_300), SEQUENTIAL, 5_000),
    "8 MB of junk": np.random.default_rng(3).bytes(8 * 1024 * 1024),
    "8 MB and a byte": noisy_jpeg() + bytes(8 * 1024 * 1024),
    "a gigabyte of strips": strip_tiff(8_000, 125_000),
}
REFUSED = {
    "65,500 pixels a side": "too large",
    "nothing": "not a JPEG",
    "progressive, of endless scans": "too large",
    "sequential, of endless scans": "too large",
    "8 MB of junk": "not a JPEG",
    "8 MB and a byte": "too large",
    "a gigabyte of strips": "too large",
}


def push(shard, camera, image):
    return shard.admit_pushed_frame(camera, image, 0, Tally())


async def step(shard, number, abuse):
    """Analyse one frame of every calm camera between two abusive frames."""
    abuse()
    for camera in CALM:
        push(shard, camera, noisy_jpeg(number))
    abuse()
    boxes = [shard._cameras[camera].arrivals.mailbox for camera in CALM]
    await eventually(lambda: all(box.ledger.analysed == number + 1 for box in boxes))


async def watched(shard, abuse, source=""):
    shard.apply(assignment(1, device("bad", source), *map(device, CALM)))
    for number in range(STEPS):
        await step(shard, number, abuse)
    for camera in CALM:
        assert status_of(shard, camera).covered
        assert status_of(shard, camera).ledger.analysed == STEPS


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_camera_that_sends_malicious_pictures_disturbs_no_other(running, bomb):
    await watched(running.shard, lambda: push(running.shard, "bad", BOMBS[bomb]))
    bad = running.shard._cameras["bad"].arrivals.mailbox.ledger
    await eventually(lambda: not bad.waiting)
    assert bad.offered == bad.analysed + bad.shed.total() + bad.rejected.total() == 2 * STEPS
    if bomb in REFUSED:
        assert bad.rejected == {REFUSED[bomb]: 2 * STEPS}
    else:
        assert bad.analysed + bad.rejected["undecodable"]


def packet(number, ssrc=7, payload=b"x", kind=1):
    """Build an RTP packet that claims to be a whole picture of 2,040 pixels square."""
    head = struct.pack(">BBHII", 0x80, 0x80 | 26, number & 0xFFFF, number * 90 & 0xFFFF_FFFF, ssrc)
    return head + struct.pack(">I", 0) + bytes((kind, 50, 255, 255)) + payload


CHANCE = random.Random(4)
PACKETS = {
    "one byte for 2,040 pixels a side": packet,
    "markers for 16,384 intervals": lambda number: packet(
        number, payload=struct.pack(">HH", 1, 0xFFFF) + b"\xff\xd0\xff\xd1" * 290, kind=65
    ),
    "sequence numbers at random": lambda _: packet(CHANCE.randrange(1 << 16)),
    "another sender each": lambda number: packet(number, ssrc=CHANCE.randrange(1 << 32)),
    "noise": lambda _: CHANCE.randbytes(300),
}


@pytest.mark.parametrize("kind", PACKETS)
async def test_a_camera_that_sends_useless_packets_disturbs_no_other(running, kind):
    port, shard, sent = free_port(socket.SOCK_DGRAM), running.shard, itertools.count()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:

        def abuse():
            for _ in range(200):
                sender.sendto(PACKETS[kind](next(sent)), ("127.0.0.1", port))

        before = resident_kb()
        await watched(shard, abuse, f"rtp://127.0.0.1:{port}")
        bad = shard._cameras["bad"]
        await eventually(lambda: bad.status.source_state.startswith(("no picture", "streaming")))
    assert bad.arrivals.mailbox.ledger.analysed == 0
    assert bad.arrivals.mailbox.ledger.offered == bad.arrivals.mailbox.ledger.rejected["truncated"]
    assert not status_of(shard, "bad").covered
    assert resident_kb() - before < 64 * 1024


async def test_a_flooding_camera_disturbs_no_other(running):
    frame = noisy_jpeg()

    def flood():
        for _ in range(300):
            push(running.shard, "bad", frame)

    await watched(running.shard, flood)
    bad = running.shard._cameras["bad"].arrivals.mailbox.ledger
    assert bad.shed["superseded"] > 0.9 * bad.offered


async def test_frames_on_which_decoders_crash_disturb_no_other_camera(running, monkeypatch):
    shard = running.shard
    bad = [f"bad-{number}" for number in range(3)]  # more than there are decoders
    shard.apply(assignment(1, *map(device, bad), *map(device, CALM)))
    for camera in bad:
        monkeypatch.setattr(
            shard._cameras[camera], "decode_order", lambda frame: DecodeOrder(scale=0)
        )  # crashes the decoder

    def attack():
        for camera in bad:
            push(shard, camera, noisy_jpeg())

    for number in range(STEPS):
        await step(shard, number, attack)
    for camera in CALM:
        assert status_of(shard, camera).covered
        assert status_of(shard, camera).ledger.analysed == STEPS
    for camera in bad:
        ledger = shard._cameras[camera].arrivals.mailbox.ledger
        await eventually(lambda ledger=ledger: not ledger.waiting)
        assert ledger.offered == ledger.shed.total() + ledger.rejected["undecodable"] == 2 * STEPS


class RefusingBad(CameraAdmission):
    """Refuses the camera "bad", and no other."""

    def decide(self, demands: Iterable[Demand], decoders: int, now_ns: int) -> None:
        self.refused = {"bad": "refused: it needs more than there is"}


async def test_a_refused_camera_is_dark_with_a_reason_and_others_continue(running):
    shard = running.shard
    await watched(shard, lambda: push(shard, "bad", noisy_jpeg()))
    shard._rates.admission = RefusingBad()
    shard._rates.admit(shard._cameras, 0)
    analysed = shard._cameras["bad"].arrivals.mailbox.ledger.analysed
    for number in range(STEPS, STEPS + 3):
        await step(shard, number, lambda: push(shard, "bad", noisy_jpeg()))
    status = status_of(shard, "bad")
    assert not status.covered
    assert status.reason == "refused: it needs more than there is"
    assert status.ledger.shed["refused"]
    assert status.ledger.analysed <= analysed + 1


def resident_kb():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


@pytest.mark.slow
async def test_memory_stays_constant_over_a_long_run(running):
    cameras = [f"camera-{number}" for number in range(30)]
    running.shard.apply(assignment(1, *map(device, cameras)))
    frames = [noisy_jpeg(number, (240, 320)) for number in range(20)]
    boxes = [running.shard._cameras[camera].arrivals.mailbox for camera in cameras]
    sizes, deadline, number = [], time.monotonic() + 40, 0
    while time.monotonic() < deadline:
        for camera in cameras:
            push(running.shard, camera, frames[number % len(frames)])
        await eventually(lambda: not any(box.ledger.waiting for box in boxes))
        await asyncio.sleep(0.01)
        number += 1
        sizes.append(resident_kb())
    steady_kb = sizes[len(sizes) // 3]
    assert sizes[-1] - steady_kb < 8 * 1024
