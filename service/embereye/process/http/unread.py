"""Bodies that no handler reads: of refused requests, and beyond a route's limit.

Anyone can send such a body without authentication, in any size and encoding. Therefore the server decompresses nothing,
and an answer that precedes the end of its request's body closes the connection. Until then, the connection discards
what still arrives, up to a limit: a client that is sending a small body can finish, and reads the answer.
"""

import asyncio
from typing import cast

from aiohttp import web

LINGER_SECONDS = 1.0  # from such an answer until the connection closes
MAX_DISCARDED = 64 * 1024  # bytes discarded in that time; the rest stays in the kernel's buffer
SWITCHING_PROTOCOLS = 101


async def discard_rest(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after `response` if the body has not arrived whole; a signal for `on_response_prepare`."""
    transport = request.transport
    if request.content.is_eof() or response.status == SWITCHING_PROTOCOLS or transport is None:
        return
    response.force_close()
    response.headers["Connection"] = "close"
    transport.set_protocol(_Discard(transport))


class _Discard(asyncio.Protocol):
    """Takes the place of a connection's protocol, and passes everything on to it except data."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._protocol = cast("asyncio.Protocol", transport.get_protocol())
        self._discarded = 0

    def data_received(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED:
            self._transport.pause_reading()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
