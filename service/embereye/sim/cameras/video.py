"""Encode simulated cameras' films as H.264 or H.265; each loop is encoded once and shared by all cameras.

A loop is encoded in a thread when it is first shown; until then the film stays where it is. Showing it again costs only
the packets. If the film jumps, for example to a fire, it continues with a key frame of the other loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import cv2
import numpy as np
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from embereye.sim.scenes.films import Cameras
from embereye.wire.rtp.nal_payload import H264Format, H265Format, NalFormat
from embereye.wire.video.nal import nal_units

GROUP_SECONDS = 1.0  # between two key frames
BIT_RATE = 1.2  # bits per pixel and second at 15 frames/s, as in usual cameras: 0.3 Mbit/s for 640x360
_ENCODERS = {"H264": "libx264", "H265": "libx265"}
_OPTIONS = {
    "H264": {"preset": "veryfast", "tune": "zerolatency", "x264-params": "scenecut=0"},
    "H265": {"preset": "ultrafast", "tune": "zerolatency", "x265-params": "log-level=none:scenecut=0:bframes=0"},
}
_FORMATS: dict[str, NalFormat] = {"H264": H264Format(), "H265": H265Format()}


@dataclass(frozen=True)
class CodedPicture:
    """One picture of a loop, as the payloads of its packets."""

    payloads: Sequence[bytes]
    key: bool


def encode_loop(frames: Sequence[bytes], encoding: str, rate: float) -> list[CodedPicture]:
    """Encode JPEG `frames` as `encoding`, with a key frame every GROUP_SECONDS."""
    group = max(1, round(rate * GROUP_SECONDS))
    context: VideoCodecContext | None = None
    packets: list[tuple[bytes, bool]] = []
    for number, frame in enumerate(frames):
        picture = cv2.imdecode(np.frombuffer(frame, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None, "the simulation drew it"
        height, width = (side & ~1 for side in picture.shape[:2])
        context = context or _encoder(encoding, width, height, rate, group)
        even = np.ascontiguousarray(picture[:height, :width], np.uint8)
        coded = VideoFrame.from_ndarray(even, format="bgr24")
        coded.pts = number
        packets += [(bytes(packet), packet.is_keyframe) for packet in context.encode(coded)]
    if context:
        packets += [(bytes(packet), packet.is_keyframe) for packet in context.encode(None)]
    return [CodedPicture(list(_FORMATS[encoding].payloads(list(nal_units(data)))), key) for data, key in packets]


def _encoder(encoding: str, width: int, height: int, rate: float, group: int) -> VideoCodecContext:
    context = CodecContext.create(_ENCODERS[encoding], "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height, context.pix_fmt = width, height, "yuv420p"
    context.framerate = Fraction(rate).limit_denominator(1000)
    context.time_base = 1 / context.framerate
    context.gop_size = group
    context.thread_count = 1
    context.bit_rate = int(BIT_RATE * width * height)
    context.options = _OPTIONS[encoding]
    return context


@dataclass
class CodedFilms:
    """The encoded loops of a set of cameras; each is encoded when it is first shown."""

    cameras: Cameras
    _loops: dict[tuple[int, str], "asyncio.Future[list[CodedPicture]]"] = field(default_factory=dict)

    def _loop(self, frames: Sequence[bytes], encoding: str, rate: float) -> "asyncio.Future[list[CodedPicture]]":
        key = id(frames), encoding
        if key not in self._loops:
            work = partial(encode_loop, frames, encoding, rate)
            self._loops[key] = asyncio.get_running_loop().run_in_executor(None, work)
        return self._loops[key]

    async def pictures(self, camera: str, encoding: str, key_wanted: asyncio.Event) -> AsyncGenerator[CodedPicture]:
        """Yield the pictures of `camera` when due, starting at a key frame, and again once `key_wanted` is set.

        If the film jumps, the nearest key frame before that place is shown first. The film stays where it is until that
        loop is encoded.
        """
        film = self.cameras.films[camera]
        loop: list[CodedPicture] = []  # shown now
        following = 0  # the number of its next picture
        async for seconds in self.cameras.moments(camera):
            frames, index = film.place(seconds)
            coding = self._loop(frames, encoding, film.rate)
            wanted = await asyncio.shield(coding) if coding.done() or not loop else loop
            if wanted is not loop or key_wanted.is_set():
                key_wanted.clear()
                index = index if coding.done() and index < len(wanted) else 0
                while not wanted[index].key:
                    index -= 1
                loop = wanted
            else:
                index = following
            following = (index + 1) % len(loop)
            yield loop[index]
