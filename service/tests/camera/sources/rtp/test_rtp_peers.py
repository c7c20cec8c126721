"""FFmpeg and GStreamer as senders of RTP/JPEG: arriving pictures are compared with the sent ones."""

import asyncio
import random
import socket
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import FFMPEG, GSTREAMER

from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.source import RtpSource
from embereye.process.addresses import free_port
from embereye.wire.jpeg.header import JpegError, read_header

SAMPLING = {"4:2:2": 0x211111, "4:2:0": 0x221111}
FRAMES = 12


@dataclass(frozen=True)
class Form:
    width: int = 320
    height: int = 240
    quality: int = 75
    sampling: str = "4:2:0"
    interval: int = 0

    @property
    def query(self):
        return f"?width={self.width}&height={self.height}"


def drawn(form, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: form.height, : form.width]
    picture = np.stack([x * 255 / form.width, y * 255 / form.height, (x + y + 20 * seed) % 256], -1)
    picture += rng.normal(0, 10, picture.shape)
    options = [cv2.IMWRITE_JPEG_QUALITY, form.quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLING[form.sampling]]
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, form.interval] if form.interval else []
    return cv2.imencode(".jpg", np.clip(picture, 0, 255).astype(np.uint8), options)[1].tobytes()


def decoded(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def usable(jpeg):
    """True if a mailbox accepts `jpeg`; a picture with too many losses is offered to be counted as truncated."""
    try:
        return read_header(jpeg).complete
    except JpegError as error:
        return error.reason != "truncated"


def ffmpeg(folder, port):
    return [
        "ffmpeg", "-v", "error", "-nostdin", "-re", "-r", "40", "-f", "mjpeg", "-i", f"{folder}/all.mjpeg",
        "-c", "copy", "-f", "rtp", f"rtp://127.0.0.1:{port}",
    ]  # fmt: skip


def gstreamer(folder, port, source=("imagesequencesrc", "framerate=40/1")):
    return [
        "gst-launch-1.0", "-q", *source, f"location={folder}/%03d.jpg", "start-index=0", f"stop-index={FRAMES - 1}",
        "!", "jpegparse", "!", "rtpjpegpay", "!", "udpsink", "host=127.0.0.1", f"port={port}",
    ]  # fmt: skip


def gstreamer_without_clock(folder, port):
    """Send all pictures at once with the same timestamp."""
    return gstreamer(folder, port, ("multifilesrc", "caps=image/jpeg,framerate=40/1"))


class Relay(asyncio.DatagramProtocol):
    """Forwards packets, loses some and reorders others."""

    def __init__(self, target, loss, delay):
        self.target, self.loss, self.delay = target, loss, delay
        self.chance = random.Random(5)
        self.lost = self.joined = 0

    def datagram_received(self, data, address):
        if self.chance.random() < self.loss:
            self.lost += 1
            return
        self.joined += 1
        late = self.delay * self.chance.random()
        asyncio.get_running_loop().call_later(late, self.forward, data)

    def connection_made(self, transport):
        self.transport = transport

    def forward(self, data):
        self.transport.sendto(data, ("127.0.0.1", self.target))


async def received(command, query, *, expect, loss=0.0, delay=0.0):
    """Yield (JPEG, lost regions) received from `command(port)` through a relay."""
    port, frames = free_port(socket.SOCK_DGRAM), []
    source = RtpSource(parse_source(f"rtp://127.0.0.1:{port}{query}"), SocketPoller())
    player = asyncio.ensure_future(source.play(lambda data, _=0, lost=(): frames.append((data, lost)), lambda _: None))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    transport, relay = await loop.create_datagram_endpoint(
        lambda: Relay(port, loss, delay), local_addr=("127.0.0.1", 0), family=socket.AF_INET
    )
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sender = await asyncio.create_subprocess_exec(
        *command(transport.get_extra_info("sockname")[1]), stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await asyncio.wait_for(sender.wait(), 30)
        await eventually(lambda: len(frames) >= expect, 30)
    finally:
        player.cancel()
        transport.close()
        await asyncio.gather(player, return_exceptions=True)
    return frames, relay


FORMS = [
    Form(),
    Form(sampling="4:2:2", quality=30),
    Form(interval=20, quality=90),
    Form(640, 480, 99, "4:2:2", 40),
    Form(100, 76, 100),
    Form(2560, 1440, 50, "4:2:0", 160),
]
SENDERS = [
    pytest.param(ffmpeg, marks=pytest.mark.needs(FFMPEG)),
    pytest.param(gstreamer, marks=pytest.mark.needs(GSTREAMER)),
]


@pytest.fixture
def given(tmp_path):
    """Write the pictures for a sender."""

    def write(form):
        jpegs = [drawn(form, seed) for seed in range(FRAMES)]
        (tmp_path / "all.mjpeg").write_bytes(b"".join(jpegs))
        for number, jpeg in enumerate(jpegs):
            (tmp_path / f"{number:03d}.jpg").write_bytes(jpeg)
        return tmp_path, jpegs

    return write


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("form", FORMS, ids=str)
async def test_every_picture_of_a_peer_arrives_with_exactly_its_pixels(sender, form, given):
    folder, jpegs = given(form)
    frames, _ = await received(lambda port: sender(folder, port), form.query, expect=FRAMES)
    assert len(frames) == FRAMES
    for (data, lost), jpeg in zip(frames, jpegs, strict=True):
        assert not lost
        assert (decoded(data) == decoded(jpeg)).all()


LOSSY = [  # with the minimum share of pixels that arrive; without restart markers a loss costs a picture
    (Form(640, 480, 90, "4:2:0", 40), 0.75),
    (Form(640, 480, 30, "4:2:2", 40), 0.75),
    (Form(320, 240, 99, "4:2:0", 20), 0.75),
    (Form(1280, 720, 50, "4:2:2", 80), 0.75),
    (Form(328, 248, 60, "4:2:0", 21), 0.6),
    (Form(320, 240, 85, "4:2:2"), 0.3),
    (Form(640, 480, 10, "4:2:0"), 0.3),
]


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize(("form", "least"), LOSSY, ids=str)
async def test_over_a_lossy_network_every_pixel_not_reported_lost_is_exact(sender, form, least, given):
    folder, jpegs = given(form)
    originals = [decoded(jpeg) for jpeg in jpegs]
    frames, relay = await received(
        lambda port: sender(folder, port), form.query, expect=FRAMES - 2, loss=0.02, delay=0.004
    )
    assert relay.lost
    share = []
    for data, lost in frames:
        if not usable(data):
            share.append(0.0)
            continue
        arrived = np.ones((form.height, form.width), bool)
        for x, y, w, h in lost:
            rows = slice(round(y * form.height), round((y + h) * form.height))
            arrived[rows, round(x * form.width) : round((x + w) * form.width)] = False
        picture = decoded(data)
        assert any((picture == original)[arrived].all() for original in originals)
        share.append(arrived.mean())
    # Losses show as parts of a frame, or as a missing frame.
    assert form.interval == 0 or any(lost for _, lost in frames) or len(frames) < FRAMES
    assert np.mean(share) > least


@pytest.mark.needs(GSTREAMER)
async def test_pictures_with_the_same_timestamp_are_separated(given):
    folder, jpegs = given(Form())
    frames, _ = await received(lambda port: gstreamer_without_clock(folder, port), "", expect=FRAMES)
    assert [decoded(data).tobytes() for data, _ in frames] == [decoded(jpeg).tobytes() for jpeg in jpegs]


@pytest.mark.needs(FFMPEG)
@pytest.mark.parametrize("quality", [2, 10])
async def test_pictures_encoded_by_ffmpeg_arrive_unchanged(quality, tmp_path):
    def command(port):
        return [
            "ffmpeg", "-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=40",
            "-frames:v", str(FRAMES), "-c:v", "mjpeg", "-huffman", "default", "-pix_fmt", "yuvj420p",
            "-q:v", str(quality), "-map", "0:v", "-f", "tee",
            f"[f=image2]{tmp_path}/%03d.jpg|[f=rtp]rtp://127.0.0.1:{port}",
        ]  # fmt: skip

    frames, _ = await received(command, "", expect=FRAMES)
    for number, (data, _) in enumerate(frames, 1):
        assert (decoded(data) == decoded((tmp_path / f"{number:03d}.jpg").read_bytes())).all()


@pytest.mark.needs(GSTREAMER)
@pytest.mark.parametrize("quality", [20, 85])
async def test_pictures_encoded_by_gstreamer_arrive_unchanged(quality, tmp_path):
    def command(port):
        return [
            "gst-launch-1.0", "-q", "videotestsrc", f"num-buffers={FRAMES}", "is-live=true", "!",
            "video/x-raw,format=I420,width=320,height=240,framerate=40/1", "!", "jpegenc", f"quality={quality}", "!",
            "tee", "name=t", "t.", "!", "queue", "!", "multifilesink", f"location={tmp_path}/%03d.jpg",
            "t.", "!", "queue", "!", "rtpjpegpay", "!", "udpsink", "host=127.0.0.1", f"port={port}",
        ]  # fmt: skip

    frames, _ = await received(command, "", expect=FRAMES)
    for number, (data, _) in enumerate(frames):
        assert (decoded(data) == decoded((tmp_path / f"{number:03d}.jpg").read_bytes())).all()
