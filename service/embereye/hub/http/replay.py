"""A clip for browsers: its frames as they were taken, part after part (multipart/x-mixed-replace)."""

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from aiohttp import web

from embereye.wire.matroska import Still, frames

BOUNDARY = "frame"
PAUSE_SECONDS = 1.0  # between the last frame and the first one again
LONGEST_SECONDS = 2.0  # that one frame is shown
ROUNDS = 20  # then it ends: nobody watches a forgotten page


async def replay(request: web.Request, path: Path, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send the clip at `path` until the client has had enough, or ROUNDS times."""
    stills = await asyncio.to_thread(lambda: list(frames(path.read_bytes())))
    response = web.StreamResponse(headers={**headers, "Cache-Control": "no-store"})
    response.headers["Content-Type"] = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(ROUNDS):
            for still, seconds in zip(stills, _pauses(stills), strict=True):
                await response.write(_part(still.jpeg))
                await asyncio.sleep(seconds)
    return response


def _pauses(stills: list[Still]) -> list[float]:
    steps = [(after.time_ns - before.time_ns) / 1e9 for before, after in pairwise(stills)]
    return [*(min(step, LONGEST_SECONDS) for step in steps), PAUSE_SECONDS]


def _part(jpeg: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
    # The boundary behind a part makes browsers show it at once.
    return head.encode() + jpeg + f"\r\n--{BOUNDARY}\r\n".encode()
