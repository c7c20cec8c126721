"""Plays a clip for browsers: its frames at their pace, part after part (multipart/x-mixed-replace).

The clip is read into memory in a thread and split into its JPEG frames. Each is written as a part, followed by a pause
until the next one is due; the replay repeats ROUNDS times. Since each clip is in memory, `Replays` limits them by
number, by address and by bytes. A client that reads nothing is disconnected.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from aiohttp import web

from embereye.hub.http.middleware import SECURITY
from embereye.hub.http.refused import Refused
from embereye.process.addresses import place_of
from embereye.wire.jpeg.header import SOI
from embereye.wire.matroska import MatroskaError, Still, frames

BOUNDARY = "frame"
PAUSE_SECONDS = 1.0  # after the last frame, before the first one again
MAX_FRAME_SECONDS = 2.0  # longest display of one frame
ROUNDS = 20  # then the replay ends: the page may be forgotten
MAX_REPLAYS = 8  # at the same time
REPLAYS_PER_ADDRESS = MAX_REPLAYS // 2  # all clients behind a proxy share one address
ROOM = 128 * 1024 * 1024  # bytes of all clips being replayed: each is in memory
STALL_SECONDS = 20.0  # longest time to send one frame
GONE = "the clip's file is gone from the hub's disk"


class Replays:
    """The clips that are being replayed, by address."""

    def __init__(self) -> None:
        self._places: Counter[str] = Counter()
        self._bytes = 0

    @contextlib.contextmanager
    def enter(self, address: str, size: int) -> Iterator[None]:
        """Count one clip of `size` bytes while it is replayed to `address`; Refused if there is no room for it."""
        place = place_of(address)
        if size > ROOM:
            raise Refused(413, f"the clip has {size} bytes, which is too many for a replay. Download it.")
        if self._places[place] >= REPLAYS_PER_ADDRESS:
            raise Refused(503, f"{place} is replaying {REPLAYS_PER_ADDRESS} clips already. Close one, or download it.")
        if self._places.total() >= MAX_REPLAYS or self._bytes + size > ROOM:
            raise Refused(503, f"{self._places.total()} clips are being replayed. Try again later, or download it.")
        self._places[place] += 1
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]


async def replay(request: web.Request, path: Path) -> web.StreamResponse:
    """Send the clip at `path` until the client leaves, ROUNDS times at most; Refused if it cannot be replayed."""
    stills = await asyncio.to_thread(_stills, path)
    response = web.StreamResponse(headers={**SECURITY, "Cache-Control": "no-store"})
    response.headers["Content-Type"] = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(ROUNDS):
            for still, seconds in zip(stills, _pauses(stills), strict=True):
                try:
                    async with asyncio.timeout(STALL_SECONDS):
                        await response.write(_part(still.jpeg))
                except TimeoutError:
                    # The client reads nothing: do not wait for its buffered data either.
                    if request.transport is not None:
                        request.transport.abort()
                    return response
                await asyncio.sleep(seconds)
    return response


async def frame_at(path: Path, at_ns: int) -> bytes:
    """Return the JPEG in the clip at `path` taken last at or before `at_ns`, else its first one; Refused."""
    stills = await asyncio.to_thread(_stills, path)
    return next((still for still in reversed(stills) if still.time_ns <= at_ns), stills[0]).jpeg


def _stills(path: Path) -> list[Still]:
    """Read the frames of a clip, at least one. A clip stored by another program may have none that browsers show."""
    try:
        stills = [still for still in frames(path.read_bytes()) if still.jpeg.startswith(SOI)]
    except FileNotFoundError:
        raise Refused(404, GONE) from None
    except MatroskaError:
        stills = []
    if not stills:
        raise Refused(404, "the clip has no frame that browsers can show. Download it.")
    return stills


def _pauses(stills: list[Still]) -> list[float]:
    steps = [(after.time_ns - before.time_ns) / 1e9 for before, after in pairwise(stills)]
    return [*(min(step, MAX_FRAME_SECONDS) for step in steps), PAUSE_SECONDS]


def _part(jpeg: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
    # The boundary behind a part makes browsers show it at once.
    return head.encode() + jpeg + f"\r\n--{BOUNDARY}\r\n".encode()
