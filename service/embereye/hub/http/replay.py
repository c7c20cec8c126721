"""A clip for browsers: its frames as they were taken, part after part (multipart/x-mixed-replace)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from aiohttp import web

from embereye.hub.http.refused import Refused
from embereye.process.addresses import place_of
from embereye.wire.jpeg.header import SOI
from embereye.wire.matroska import MatroskaError, Still, frames

BOUNDARY = "frame"
PAUSE_SECONDS = 1.0  # between the last frame and the first one again
LONGEST_SECONDS = 2.0  # that one frame is shown
ROUNDS = 20  # then it ends: nobody watches a forgotten page
MOST = 8  # at the same time
OF_ONE_ADDRESS = MOST // 2  # a proxy is one address for all behind it
ROOM = 128 * 1024 * 1024  # bytes of the clips that are being shown: each is held in memory
STALL_SECONDS = 20.0  # that one frame may take to be handed over
GONE = "the clip's file is gone from the hub's disk"


class Replays:
    """How many clips are being shown, and to whom."""

    def __init__(self) -> None:
        self._places: Counter[str] = Counter()
        self._bytes = 0

    @contextlib.contextmanager
    def enter(self, address: str, size: int) -> Iterator[None]:
        """Count one clip of `size` bytes in while it is shown to `address`; Refused where there is no room for it."""
        place = place_of(address)
        if size > ROOM:
            raise Refused(413, f"the clip has {size} bytes, more than is shown here: download it")
        if self._places[place] >= OF_ONE_ADDRESS:
            raise Refused(503, f"{OF_ONE_ADDRESS} clips are being shown at {place} already: close one, or download it")
        if self._places.total() >= MOST or self._bytes + size > ROOM:
            raise Refused(503, f"{self._places.total()} clips are being shown already: try again later, or download it")
        self._places[place] += 1
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]


async def replay(request: web.Request, path: Path, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send the clip at `path` until the client has had enough, or ROUNDS times; Refused where it cannot be shown."""
    stills = await asyncio.to_thread(_stills, path)
    response = web.StreamResponse(headers={**headers, "Cache-Control": "no-store"})
    response.headers["Content-Type"] = f"multipart/x-mixed-replace; boundary={BOUNDARY}"
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(ROUNDS):
            for still, seconds in zip(stills, _pauses(stills), strict=True):
                try:
                    async with asyncio.timeout(STALL_SECONDS):
                        await response.write(_part(still.jpeg))
                except TimeoutError:
                    # Nobody looks: what is buffered must not be waited for either.
                    if request.transport is not None:
                        request.transport.abort()
                    return response
                await asyncio.sleep(seconds)
    return response


async def frame_at(path: Path, at_ns: int) -> bytes:
    """The JPEG in the clip at `path` that was taken last at or before `at_ns`, else its first one; Refused."""
    stills = await asyncio.to_thread(_stills, path)
    return next((still for still in reversed(stills) if still.time_ns <= at_ns), stills[0]).jpeg


def _stills(path: Path) -> list[Still]:
    """The frames of the clip at `path`, one at least; what another program stored may have none that browsers show."""
    try:
        found = [still for still in frames(path.read_bytes()) if still.jpeg.startswith(SOI)]
    except FileNotFoundError:
        raise Refused(404, GONE) from None
    except MatroskaError:
        found = []
    if not found:
        raise Refused(404, "the clip holds no frame that is shown here: download it")
    return found


def _pauses(stills: list[Still]) -> list[float]:
    steps = [(after.time_ns - before.time_ns) / 1e9 for before, after in pairwise(stills)]
    return [*(min(step, LONGEST_SECONDS) for step in steps), PAUSE_SECONDS]


def _part(jpeg: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
    # The boundary behind a part makes browsers show it at once.
    return head.encode() + jpeg + f"\r\n--{BOUNDARY}\r\n".encode()
