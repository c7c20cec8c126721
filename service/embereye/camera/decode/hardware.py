"""Decoding by the machine's hardware, through libavcodec; by software where that cannot be had, with the reason.

`python -m embereye.camera.decode.hardware KIND` decodes one picture by it and prints why it cannot: a driver that
crashes takes no shard with it.
"""

import asyncio
import os
import subprocess
import sys
from fractions import Fraction
from functools import cache

import av
import numpy as np
from av.codec.context import CodecContext
from av.codec.hwaccel import HWAccel, hwdevices_available
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

VARIABLE = "EMBEREYE_HARDWARE_DECODING"  # "vaapi" or "nvdec"; empty: software
KINDS = {"vaapi": "vaapi", "nvdec": "cuda"}  # and what libavcodec calls their devices
PROBE_SECONDS = 20.0  # for the drivers to be loaded and one picture to be decoded
_SIZE = 320, 240  # pixels; decoders in hardware have a least size


def wanted() -> str:
    """The kind of hardware that is to decode; empty: none."""
    return os.environ.get(VARIABLE, "")


@cache
def _accelerator(kind: str) -> HWAccel | None:
    """What decodes by `kind` in this process, and by software what that cannot; None where there is none."""
    if KINDS.get(kind) not in hwdevices_available():
        return None
    return HWAccel(device_type=KINDS[kind], allow_software_fallback=True)


@cache
def _works(kind: str) -> bool:
    """Whether contexts of `kind` can be made in this process: asked once, as a driver that is missing stays so."""
    try:
        CodecContext.create("h264", "r", hwaccel=_accelerator(kind))
    except (av.FFmpegError, OSError, RuntimeError, ValueError):
        return False
    return True


def open_context(decoder: str, kind: str) -> VideoCodecContext:
    """A context of libavcodec's `decoder`, by `kind` where that can be had, else by software."""
    by = _accelerator(kind) if kind and _works(kind) else None
    context = CodecContext.create(decoder, "r", hwaccel=by)
    assert isinstance(context, VideoCodecContext)
    return context


def _probe(kind: str) -> str:
    """Why a picture cannot be decoded by `kind`; empty: it can."""
    device = KINDS.get(kind)
    known = hwdevices_available()
    if device not in known:
        return f"libavcodec was built without {device or kind} here, with {', '.join(known) or 'no hardware'} alone"
    encoder = CodecContext.create("libx264", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = *_SIZE, "yuv420p"
    encoder.time_base, encoder.options = Fraction(1, 15), {"preset": "ultrafast", "tune": "zerolatency"}
    frame = VideoFrame.from_ndarray(np.zeros((_SIZE[1], _SIZE[0], 3), np.uint8), format="bgr24")
    try:
        by = HWAccel(device_type=device, allow_software_fallback=False)
        context = CodecContext.create("h264", "r", hwaccel=by)
        assert isinstance(context, VideoCodecContext)
        packets = [*encoder.encode(frame), *encoder.encode(None)]
        decoded = [picture for packet in [*packets, None] for picture in context.decode(packet)]
    except (av.FFmpegError, OSError, RuntimeError, ValueError) as error:
        return f"the device cannot be opened, or does not decode: {getattr(error, 'strerror', '') or error}"
    return "" if decoded else "it decodes no picture"


async def missing(kind: str) -> str:
    """Why nothing can be decoded by `kind` on this machine; empty: it can. Asked in a process of its own."""
    command = [sys.executable, "-P", "-m", "embereye.camera.decode.hardware", kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the driver gave no picture within {PROBE_SECONDS:g} s"
    if done.returncode:
        return f"the driver ended the process that tried it, with code {done.returncode}"
    return done.stdout.strip()


if __name__ == "__main__":
    print(_probe(sys.argv[1]))
