"""The WebSocket of a camera's live pictures, for browsers."""

import asyncio
import contextlib
import struct

from aiohttp import WSCloseCode, web

from embereye.hub.access.keeper import RevokedError
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.access.origin import check_origin
from embereye.hub.http.devices import DEVICE, KIND, find_device
from embereye.hub.http.openapi.parts import answer
from embereye.hub.http.refused import Refused
from embereye.hub.http.route import Route
from embereye.hub.hub import Hub
from embereye.hub.live.viewers import TooManyViewersError, Viewer, Viewers
from embereye.hub.roles import Role
from embereye.process.tasks import beside

HEARTBEAT_SECONDS = 10.0
WRITE_SECONDS = 20.0  # longest time for one picture; a window that reads nothing is disconnected
CLOSE_SECONDS = 1.0
MAX_MESSAGE = 1_024  # bytes of a client's message, which is ignored


class LiveRoutes:
    """Serves live pictures."""

    def __init__(self, hub: Hub, viewers: Viewers) -> None:
        self._hub = hub
        self._viewers = viewers

    @Route(
        "GET", f"{DEVICE}/live", Role.VIEWER,
        "A WebSocket of a camera's pictures as they arrive, one per binary message: the time at which it was taken, "
        "eight bytes, nanoseconds since the Unix epoch, the highest byte first; then the JPEG",
        {101: answer("it is open")},
        takes=[KIND],
        fails=(403, 404, 426),
        head=False,
        scoped=True,
    )  # fmt: skip
    async def _live(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        fleet, watched, declared = find_device(self._hub, request)
        camera = fleet.name, watched.device.id
        if not declared:
            raise Refused(404, f"{camera[0]} declares no device {camera[1]}")
        # With a limit of 0, a write waits while the client has unread data, and newer pictures replace older ones.
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS, compress=False, max_msg_size=MAX_MESSAGE, timeout=0.5, writer_limit=0
        )
        if not socket.can_prepare(request):
            raise Refused(426, "this is a WebSocket. Request the upgrade.", {"Upgrade": "websocket"})
        try:
            with self._viewers.view(camera, request.remote or "") as viewer:
                await socket.prepare(request)
                async with (
                    self._hub.access.until_revoked(request[PRINCIPAL]),
                    beside(_send(request, socket, viewer), name="live-send") as sending,
                    beside(_read(socket), name="live-read") as reading,
                ):
                    await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
        except TooManyViewersError as error:
            await socket.prepare(request)  # browsers show no reason of a refused handshake
            await _close(socket, WSCloseCode.TRY_AGAIN_LATER, error)
        except RevokedError as error:
            await _close(socket, WSCloseCode.POLICY_VIOLATION, error)
        return socket


async def _close(socket: web.WebSocketResponse, code: WSCloseCode, why: Exception) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await socket.close(code=code, message=str(why).encode())


async def _read(socket: web.WebSocketResponse) -> None:
    async for _ in socket:  # this also answers pings, and notices the end
        pass


async def _send(request: web.Request, socket: web.WebSocketResponse, viewer: Viewer) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            jpeg, taken_ns = await viewer.next()
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await socket.send_bytes(struct.pack(">q", taken_ns) + jpeg)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                return
