"""Read ONVIF's addition to RTP/JPEG: the JPEG's segments in a header extension (Streaming Specification, 5.1.3)."""

from dataclasses import dataclass

EXTENSION = 0xFFD8  # the extension's identifier: a start of image
MAX_STEPS = 64  # segments and bytes of padding to read; cameras send ten
MAX_TABLES = 1024  # bytes of DQT segments; four tables of 16 bits per value have 532


@dataclass(frozen=True, slots=True)
class JpegDescription:
    """A size, possibly beyond 2,040 pixels, and quantization tables, from the segments."""

    width: int = 0  # pixels
    height: int = 0  # pixels
    tables: bytes = b""  # DQT segments


def describe(segments: bytes) -> JpegDescription | None:
    """Read the segments of an extension; None if they have no frame header. Raises no exceptions."""
    width = height = start = 0
    tables = b""
    for _ in range(MAX_STEPS):
        if start + 4 > len(segments) or segments[start] != 0xFF:
            break
        marker = segments[start + 1]
        if marker == 0xFF:  # padding
            start += 1
            continue
        length = int.from_bytes(segments[start + 2 : start + 4])
        end = start + 2 + length
        if length < 2 or end > len(segments):
            break
        if marker == 0xDB and len(tables) + end - start <= MAX_TABLES:
            tables += segments[start:end]
        elif marker in {0xC0, 0xC1} and length >= 8:
            height = int.from_bytes(segments[start + 5 : start + 7])
            width = int.from_bytes(segments[start + 7 : start + 9])
        start = end
    return JpegDescription(width, height, tables) if width and height else None
