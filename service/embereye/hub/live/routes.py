"""The WebSocket of a device's live pictures, for browsers."""

import asyncio
import contextlib
import socket
import struct

from aiohttp import WSCloseCode, web

from embereye.hub.access.keeper import RevokedError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.access.origin import check_origin
from embereye.hub.http.devices import DEVICE, KIND, find_device
from embereye.hub.http.feeds.websocket import MAX_REASON, web_socket
from embereye.hub.http.openapi.parts import WORD, answer, query
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.live.viewers import TooManyViewersError, Viewer, Viewers
from embereye.hub.roles import Role
from embereye.process.tasks import beside

WRITE_SECONDS = 20.0  # longest time for one picture; a window that reads nothing is disconnected
CLOSE_SECONDS = 1.0
UNSENT_BYTES = 64 * 1024
ENCODINGS = frozenset({"H264", "H265"})
MAX_MESSAGE = 1_024  # bytes of a client's message, which is ignored


class LiveRoutes:
    """Serves live pictures."""

    def __init__(self, hub: Hub, viewers: Viewers) -> None:
        self._hub = hub
        self._viewers = viewers

    @Route(
        "GET", f"{DEVICE}/live", Role.VIEWER,
        "A WebSocket of a device's pictures as they arrive, one per binary message: the time at which it was taken, "
        "eight bytes, nanoseconds since the Unix epoch, the highest byte first; then the JPEG or, of a thermal sensor, "
        "T, a byte (0: °C, 1: raw counts) and 768 integers of 16 bits, the highest byte first: tenths of a degree or "
        "counts, -32768 for pixels that were not measured. If the caller plays the "
        "camera's encoding: its video in fragments of MP4, with the head of a file before each key frame. A text "
        "message, JSON, names the encoding of a video that the caller does not play, before pictures of it; PRIVATE if "
        "privacy masks hide parts of the pictures",
        {101: answer("it is open")},
        takes=[KIND, query("plays", WORD, "encodings that the caller plays, of H264 and H265, with commas between")],
        fails=(400, 403, 404, 426),
        head=False,
        scoped=True,
    )  # fmt: skip
    async def _live(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        fleet, watched, declared = find_device(self._hub, request)
        camera = fleet.name, watched.device.id
        if not declared:
            raise Refused(404, f"{camera[0]} declares no device {camera[1]}")
        plays = set(filter(None, request.query.get("plays", "").split(",")))
        if unknown := plays - ENCODINGS:
            raise Refused(400, f"plays: {min(unknown)}: unknown encoding. Use H264 or H265.")
        window = web_socket(request, MAX_MESSAGE)  # while a write waits, newer pictures replace older ones
        try:
            with self._viewers.view(camera, request.remote or "", plays) as viewer:
                await window.prepare(request)
                _limit_unsent(request.transport)
                async with (
                    self._hub.access.until_revoked(request[PRINCIPAL]),
                    beside(self._send(request, window, viewer), name="live-send") as sending,
                    beside(_read(window), name="live-read") as reading,
                ):
                    await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
                    if sending.done():
                        sending.result()
        except TooManyViewersError as error:
            await window.prepare(request)  # browsers show no reason of a refused handshake
            await _close(window, WSCloseCode.TRY_AGAIN_LATER, error)
        except RevokedError as error:
            await _close(window, WSCloseCode.POLICY_VIOLATION, error)
        return window

    async def _send(self, request: web.Request, window: web.WebSocketResponse, viewer: Viewer) -> None:
        named = ""
        with contextlib.suppress(ConnectionError):
            while True:
                picture = await viewer.next()
                try:
                    async with asyncio.timeout(WRITE_SECONDS):
                        if picture.encoding != named and picture.encoding not in viewer.plays:
                            await window.send_json({"encoding": picture.encoding})
                        named = picture.encoding
                        await window.send_bytes(struct.pack(">q", picture.taken_ns) + picture.data)
                except TimeoutError:
                    if request.transport is not None:
                        request.transport.abort()
                    return
                self._viewers.sent_bytes += len(picture.data)


async def _close(window: web.WebSocketResponse, code: WSCloseCode, why: Exception) -> None:
    reason = str(why).encode()[:MAX_REASON].decode(errors="ignore")  # browsers refuse a longer one
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await window.close(code=code, message=reason.encode())


async def _read(window: web.WebSocketResponse) -> None:
    async for _ in window:  # this also answers pings, and notices the end
        pass


def _limit_unsent(transport: asyncio.Transport | None) -> None:
    """Let the system hold little that was not sent yet: what waits there gets old, and cannot be left out."""
    connection = transport.get_extra_info("socket") if transport else None
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
