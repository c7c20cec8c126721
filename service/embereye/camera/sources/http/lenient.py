"""Connections to cameras whose HTTP servers write lines among their header fields that are none."""

import asyncio
import functools

import aiohttp
from aiohttp.client_proto import ResponseHandler

from embereye.camera.sources.tls import proven
from embereye.wire.http.head import MAX_HEAD, head_end, repaired_head


class LenientConnector(aiohttp.TCPConnector):
    """Mends the heads of responses before aiohttp parses them, which refuses such lines and has no option for that."""

    def __init__(self) -> None:
        super().__init__(ssl=proven())
        handler: type[ResponseHandler] = _LenientHandler
        self._factory = functools.partial(handler, loop=asyncio.get_running_loop())


class _LenientHandler(ResponseHandler):
    """Hands over the head of each response once all of it is there, and what follows as it comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head: bytearray | None = bytearray()  # of the response that is awaited; None: it was handed over

    def set_response_params(self, **options: object) -> None:
        """Await a response."""
        self._head = bytearray()
        super().set_response_params(**options)  # type: ignore[arg-type]  # whichever aiohttp has

    def data_received(self, data: bytes) -> None:
        """Accept what has come."""
        if self._head is not None and data:
            searched = len(self._head)
            self._head += data
            end = head_end(self._head, searched)
            if end < 0 and len(self._head) < MAX_HEAD:
                return
            head, self._head = bytes(self._head), None
            data = repaired_head(head[:end]) + head[end:] if end > 0 else head
        super().data_received(data)
