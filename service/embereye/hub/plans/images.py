"""Uploaded pictures of floor plans: checks them by their first bytes and re-encodes them in a separate process.

The hub stores a picture made from the file's pixels, never the file itself. This removes hidden contents, such as
comments and the location of a photograph. A separate process decodes the file because it may be malicious.
"""

import asyncio
import json
import struct
import sys
from dataclasses import dataclass

from embereye.hub.refusals import InvalidError

MAX_BYTES = 16 * 2**20  # of a file
MAX_PIXELS = 40_000_000  # decoded, they take 120 MB for a moment
SECONDS = 60.0  # for re-encoding one picture
PNG, JPEG, WEBP = "image/png", "image/jpeg", "image/webp"
MEDIA = (PNG, JPEG, WEBP)
REWRITE = "embereye.camera.rewrite"  # a process, not an import: OpenCV takes 50 MB, which a hub does not need


@dataclass(frozen=True)
class PlanImage:
    """A re-encoded picture."""

    media: str
    data: bytes
    width: int  # pixels
    height: int


async def make_plan_image(data: bytes) -> PlanImage:
    """Re-encode the file `data` (PNG, JPEG or WebP), which takes up to seconds. InvalidError says why it is none."""
    width, height, media = _size(data)
    if not width or not height:
        raise InvalidError(f"the {media} file has no size: it is damaged")
    if width * height > MAX_PIXELS:
        raise InvalidError(f"it has {width} by {height} pixels: at most {MAX_PIXELS:,} in all are accepted")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", REWRITE, media, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate(data)
    except TimeoutError:
        raise InvalidError(f"the {media} file took longer than {SECONDS:.0f} s to decode") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    line, _, picture = output.partition(b"\n")
    if process.returncode or not line:
        raise InvalidError(f"the {media} file cannot be decoded: it is damaged or incomplete")
    about = json.loads(line)
    if "refused" in about:
        raise InvalidError(about["refused"])
    return PlanImage(data=picture, **about)


def _size(data: bytes) -> tuple[int, int, str]:
    """Read width, height and media type from the file's first bytes, without decoding it."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return width, height, PNG
    if data.startswith(b"\xff\xd8"):
        return (*_jpeg_size(data), JPEG)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return (*_webp_size(data), WEBP)
    start = data[:1000].lstrip().lower()
    if start.startswith((b"<?xml", b"<svg", b"<!doctype svg")) or b"<svg" in start:
        raise InvalidError("it is an SVG, which may contain programs. Export it as PNG and upload that.")
    if start.startswith(b"%pdf"):
        raise InvalidError("it is a PDF. Export the page as PNG and upload that.")
    raise InvalidError("it is not a PNG, JPEG or WebP file")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0
