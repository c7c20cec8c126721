"""Code streams of H.264 and H.265 for tests with libx264 and libx265."""

from fractions import Fraction
from functools import cache

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext

from embereye.wire.video.nal import nal_units

ENCODERS = {"H264": "libx264", "H265": "libx265"}
DECODERS = {"H264": "h264", "H265": "hevc"}
RATE = 15


def drawn(number, width, height, noise=0):
    y, x = np.mgrid[:height, :width]
    picture = np.stack([x * 2 + 3 * number, y * 3, (x + y + 5 * number) % 200], -1) % 256
    picture[height // 4 : height // 2, 4 * number % width :][:, :8] = (30, 110, 240)
    if noise:
        picture = picture // 2 + 64 + np.random.default_rng(number).integers(-noise, noise, (height, width, 1))
    return picture.astype(np.uint8)


@cache
def coded(encoding="H264", count=24, width=96, height=64, gop=8, **options):
    """(timestamp at 90 kHz, NAL units) of every access unit, in decoding order."""
    noise, draw, packets = options.pop("noise", 0), options.pop("draw", drawn), []
    quiet = {"x265-params": "log-level=none:" + options.pop("x265", "bframes=0")} if encoding == "H265" else {}
    context = av.CodecContext.create(ENCODERS[encoding], "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height, context.pix_fmt = width, height, options.pop("pixels", "yuv420p")
    context.framerate, context.time_base, context.gop_size = Fraction(RATE), Fraction(1, RATE), gop
    if options.pop("interlaced", False):
        context.flags |= av.codec.context.Flags.interlaced_dct
    defaults = {"preset": "veryfast", "threads": "1"}
    if encoding == "H264" and "x264" not in options:
        defaults["tune"] = "zerolatency"
    context.options = {**defaults, **quiet, **{{"x264": "x264-params"}.get(k, k): v for k, v in options.items()}}
    for number in range(count):
        frame = av.VideoFrame.from_ndarray(draw(number, width, height, noise), "bgr24")
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    return [((packet.pts or 0) * 90_000 // RATE, tuple(nal_units(bytes(packet)))) for packet in packets]


def decoded(encoding, units):
    """(timestamp, picture) of every picture that libavcodec decodes from `units`."""
    context = av.CodecContext.create(DECODERS[encoding], "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1
    pictures = []
    for unit in units:
        packet = av.Packet(unit.data)
        packet.pts = unit.timestamp
        pictures += context.decode(packet)
    pictures += context.decode(None)
    return [(frame.pts, frame.to_ndarray(format="gray")) for frame in pictures]
