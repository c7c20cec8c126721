"""Connections to cameras whose HTTP servers write invalid lines among their header fields."""

import asyncio
import functools

import aiohttp
from aiohttp.client_proto import ResponseHandler

from embereye.camera.sources.tls import verified
from embereye.process.http.resolver import RememberingResolver
from embereye.wire.http.head import MAX_HEAD, head_end, repaired_head


class LenientConnector(aiohttp.TCPConnector):
    """Repairs the heads of responses before aiohttp parses them, because aiohttp refuses invalid lines."""

    def __init__(self) -> None:
        super().__init__(ssl=verified(), resolver=RememberingResolver())
        handler: type[ResponseHandler] = _LenientHandler
        self._factory = functools.partial(handler, loop=asyncio.get_running_loop())


class _LenientHandler(ResponseHandler):
    """Passes on the head of each response once it is complete, and all later data at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head: bytearray | None = bytearray()  # of the expected response; None: it was passed on

    def set_response_params(self, **options: object) -> None:
        """Expect a new response."""
        self._head = bytearray()
        super().set_response_params(**options)  # type: ignore[arg-type]  # depends on aiohttp's version

    def data_received(self, data: bytes) -> None:
        """Collect the head, or pass `data` on."""
        if self._head is not None and data:
            searched = len(self._head)
            self._head += data
            end = head_end(self._head, searched)
            if end < 0 and len(self._head) < MAX_HEAD:
                return
            head, self._head = bytes(self._head), None
            data = repaired_head(head[:end]) + head[end:] if end > 0 else head
        super().data_received(data)
