"""Play a stream for some seconds and measure it: codec, size, rate, key frames, bit rate, and a still."""

import asyncio
import itertools
import statistics
from dataclasses import dataclass, field

from embereye.camera.decode.image import DecodeOrder, PictureDelayedError, UndecodableError
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.source import Source
from embereye.process.tasks import beside
from embereye.wire.jpeg.header import MAX_SIDE, JpegError, read_header
from embereye.wire.video.access_unit import AccessUnit

CODECS = {"H264": "H.264", "H265": "H.265"}
FIRST_SECONDS = 20.0  # until the first picture; go2rtc starts a camera on request
VIDEO_CLOCK = 90_000  # Hz of presentation times


@dataclass
class Measured:
    """A stream as it was received."""

    codec: str = ""  # "JPEG", "H.264" or "H.265"
    size: tuple[int, int] = (0, 0)  # width and height, pixels
    first_seconds: float = 0.0  # from dialling to the first complete picture
    still: bytes = b""  # JPEG; empty: no picture could be decoded
    damaged: int = 0  # pictures that arrived incomplete
    reordered: bool = False  # it has B-frames, which delay pictures
    arrivals: list[float] = field(default_factory=list)  # of pictures, seconds from dialling
    keys: list[float] = field(default_factory=list)  # of key frames
    octets: int = 0  # bytes of all pictures

    @property
    def rate(self) -> float:
        """Pictures per second; 0 if there were too few."""
        span = self.arrivals[-1] - self.arrivals[0] if len(self.arrivals) > 1 else 0.0
        return (len(self.arrivals) - 1) / span if span else 0.0

    @property
    def kilobits(self) -> float:
        """Bit rate, kbit/s; 0 if there were too few pictures."""
        return self.rate * self.octets * 8 / 1000 / len(self.arrivals) if self.arrivals else 0.0

    @property
    def key_seconds(self) -> float:
        """Seconds between key frames; 0 if fewer than two came, or if each picture is one."""
        gaps = [later - sooner for sooner, later in itertools.pairwise(self.keys)]
        return statistics.median(gaps) if gaps and self.codec != "JPEG" else 0.0


async def measure(source: Source, seconds: float) -> Measured:
    """Play `source` for `seconds` after its first picture. Raises SourceError with the reason if there is none."""
    loop = asyncio.get_running_loop()
    began, seen, complete = loop.time(), Measured(), asyncio.Event()
    latest = 0  # presentation time

    def offer(data: bytes | AccessUnit, *_: object) -> None:
        nonlocal latest
        at = loop.time() - began
        if isinstance(data, AccessUnit):
            seen.codec, seen.size = CODECS.get(data.encoding, data.encoding), data.size
            seen.damaged += bool(data.damaged)
            seen.reordered |= 0 < (latest - data.timestamp) % (1 << 32) < VIDEO_CLOCK
            latest = data.timestamp
            if data.key:
                seen.keys.append(at)
                seen.still = seen.still or _still(data)
            seen.octets += len(data.data)
        else:
            try:
                header = read_header(data)
            except JpegError:
                seen.damaged += 1
                return
            seen.codec, seen.size = "JPEG", (header.width, header.height)
            seen.still = seen.still or data
            seen.octets += len(data)
        seen.arrivals.append(at)
        seen.first_seconds = seen.first_seconds or at
        if not complete.is_set():
            complete.set()

    async with beside(source.play(offer, lambda _: None), name="probe") as playing:
        first = asyncio.ensure_future(complete.wait())  # noqa: TID251 -- cancelled below
        try:
            await asyncio.wait({playing, first}, timeout=FIRST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        if complete.is_set():
            await asyncio.wait({playing}, timeout=seconds)
        elif not playing.done():
            raise SourceError(f"it plays, but no complete picture came within {FIRST_SECONDS:g} s")
        if playing.done() and (error := playing.exception()) and not seen.arrivals:
            raise error
    if not seen.arrivals:
        raise SourceError("the stream ended before a picture came")
    return seen


def _still(unit: AccessUnit) -> bytes:
    """Decode a key frame to JPEG; empty if that fails, or if the decoder needs more."""
    try:
        return VideoDecoder(unit.encoding).decode(DecodeOrder(1, picture_side=MAX_SIDE), [(unit.data, 1)]).picture
    except (PictureDelayedError, UndecodableError):
        return b""
