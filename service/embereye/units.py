"""Shared units: times and spans in nanoseconds, sizes in bytes, boxes in pictures, HOST:PORT, counts in words."""

import itertools
import math
from collections.abc import Container, Sequence
from datetime import UTC, datetime

MILLISECOND = 1_000_000  # nanoseconds, like the following; points in time are whole nanoseconds since the Unix epoch
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MIB = 1 << 20  # bytes

Box = tuple[float, float, float, float]  # x, y, width, height, each 0..1 of the picture
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
PixelBox = tuple[int, int, int, int]  # x, y, width, height in pixels
Polygon = Sequence[tuple[float, float]]  # its corners, x and y, each 0..1 of the picture

LAST_PORT = 65_535


def utc(time_ns: int) -> str:
    """A time in UTC, to the second: 2026-11-28T23:00:00Z."""
    return datetime.fromtimestamp(time_ns // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(number: float, singular: str, plural: str = "") -> str:
    """`number` with its noun: "1 shard", "2 shards"; `plural` if it is not `singular` with an s."""
    digits = f"{number:g}" if isinstance(number, float) else f"{number}"
    return f"{digits} {singular if number == 1 else plural or f'{singular}s'}"


def listed(names: Sequence[str], limit: int = 5, total: int = 0) -> str:
    """The first `limit` of `names`, and how many more there are: "a, b and 3 more".

    `total` is their number if `names` has only some of them.
    """
    more = (total or len(names)) - min(limit, len(names))
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def bracketed(host: str) -> str:
    """`host` as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def split_address(text: str, *, any_port: bool = False) -> tuple[str, int]:
    """Host and port of "HOST:PORT"; an IPv6 host is written in brackets, as in "[::1]:9001".

    With `any_port`, port 0 is allowed: the system chooses a port. ValueError says what is wrong.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        remedy = "write an IPv6 address in brackets, as in [::1]:9001"
        raise ValueError(f"{text} is not HOST:PORT, such as 127.0.0.1:9001; {remedy}")
    valid = port.isascii() and port.isdecimal() and (0 if any_port else 1) <= int(port) <= LAST_PORT
    if not host or not valid:
        raise ValueError(f"{text} is not HOST:PORT, such as 127.0.0.1:9001")
    return host, int(port)


def pixels_of(box: Box, rows: int, columns: int) -> tuple[slice, slice]:
    """The rows and columns that `box` touches in a picture of that size."""
    x, y, width, height = box
    return (
        slice(int(y * rows), math.ceil((y + height) * rows)),
        slice(int(x * columns), math.ceil((x + width) * columns)),
    )


def numbered(text: str, taken: Container[str]) -> str:
    """`text`, or if it is `taken`, the first of text-2, text-3, … that is not."""
    names = (f"{text}-{number}" for number in itertools.count(2))
    return next(name for name in names if name not in taken) if text in taken else text
