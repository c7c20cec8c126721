"""Video decoding by the machine's hardware through libavcodec; in software if that is impossible.

A decoder process calls `open_context` for each video; it falls back to software without an error. Therefore the shard
asks `unusable_reason` once at its start. That runs `python -m embereye.camera.decode.hardware KIND`, which tries to
decode one picture and prints why that fails. It is a separate process, so a driver that crashes cannot stop a shard.
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
KINDS = {"vaapi": "vaapi", "nvdec": "cuda"}  # our names, and libavcodec's names for the device types
PROBE_SECONDS = 20.0  # for loading the drivers and decoding one picture
_SIZE = 320, 240  # pixels; hardware decoders have a minimum size


def wanted() -> str:
    """The kind of hardware that decodes; empty: none."""
    return os.environ.get(VARIABLE, "")


@cache
def _accelerator(kind: str) -> HWAccel | None:
    """Return a hardware accelerator of `kind` that falls back to software per stream; None if there is none."""
    if KINDS.get(kind) not in hwdevices_available():
        return None
    return HWAccel(device_type=KINDS[kind], allow_software_fallback=True)


@cache
def _is_usable(kind: str) -> bool:
    """True if this process can create contexts of `kind`. Cached, because a missing driver stays missing."""
    try:
        CodecContext.create("h264", "r", hwaccel=_accelerator(kind))
    except (av.FFmpegError, OSError, RuntimeError, ValueError):
        return False
    return True


def open_context(decoder: str, kind: str) -> VideoCodecContext:
    """Create a context of libavcodec's `decoder`, by hardware of `kind` if possible, else in software."""
    accelerator = _accelerator(kind) if kind and _is_usable(kind) else None
    context = CodecContext.create(decoder, "r", hwaccel=accelerator)
    assert isinstance(context, VideoCodecContext)
    return context


def _probe(kind: str) -> str:
    """Return why `kind` cannot decode a picture; empty if it can."""
    device = KINDS.get(kind)
    available = hwdevices_available()
    if device not in available:
        return f"libavcodec here lacks {device or kind}; it supports {', '.join(available) or 'no hardware'}"
    encoder = CodecContext.create("libx264", "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = *_SIZE, "yuv420p"
    encoder.time_base, encoder.options = Fraction(1, 15), {"preset": "ultrafast", "tune": "zerolatency"}
    frame = VideoFrame.from_ndarray(np.zeros((_SIZE[1], _SIZE[0], 3), np.uint8), format="bgr24")
    try:
        accelerator = HWAccel(device_type=device, allow_software_fallback=False)
        context = CodecContext.create("h264", "r", hwaccel=accelerator)
        assert isinstance(context, VideoCodecContext)
        packets = [*encoder.encode(frame), *encoder.encode(None)]
        decoded = [picture for packet in [*packets, None] for picture in context.decode(packet)]
    except (av.FFmpegError, OSError, RuntimeError, ValueError) as error:
        return f"the device cannot be opened or does not decode ({getattr(error, 'strerror', '') or error})"
    return "" if decoded else "the device decodes no picture"


async def unusable_reason(kind: str) -> str:
    """Return why this machine cannot decode by `kind`; empty if it can. The test runs in a separate process."""
    command = [sys.executable, "-P", "-m", "embereye.camera.decode.hardware", kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the driver decoded no picture within {PROBE_SECONDS:g} s"
    if done.returncode:
        return f"the driver crashed its test process (exit code {done.returncode})"
    return done.stdout.strip()


if __name__ == "__main__":
    print(_probe(sys.argv[1]))
