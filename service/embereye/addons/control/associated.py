"""Serves a gRPC stream to an association: requests in, responses out, both in order.

The association calls `receive` with the messages that arrived. They are parsed and queued, and a task passes them to
the stream's function and sends its responses. If more than AHEAD bytes wait, the connection is not read until the queue
is empty.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from embereye.addons.control.associations import Association, Call
from embereye.hub.roles import CALLER, Role
from embereye.wire.delimited import Buffers

logger = logging.getLogger(__name__)
R = TypeVar("R")
AHEAD = 8 * 1024 * 1024  # bytes of waiting requests from which on the connection is not read
REQUEST_BYTES = 1024  # memory of the shortest request


def associated(
    serve: Callable[[AsyncIterator[R]], AsyncIterator[Message]],
    parse: Callable[[Any], R],
    response: type[Message],
    role: Role,
    max_message: int,
    buffers: Buffers | None = None,
) -> Call:
    """Make the call of a stream: `parse` makes requests of messages, `serve` answers them as the proved principal.

    With `buffers`, some messages are memoryviews of those, which `serve` has to give back.
    """
    return Call(lambda association: _Served(association, serve, parse), response, role, max_message, buffers)


class _Served:
    def __init__(
        self,
        association: Association,
        serve: Callable[[AsyncIterator[Any]], AsyncIterator[Message]],
        parse: Callable[[Any], Any],
    ) -> None:
        self._association = association
        self._serve = serve
        self._parse = parse
        self._waiting: list[Any] = []
        self._sizes = 0
        self._more = asyncio.Event()
        self._paused = False
        self._task = association.start(self._run())

    def receive(self, messages: Sequence[bytes | memoryview]) -> None:
        """Queue requests, in order."""
        self._waiting += map(self._parse, messages)
        self._sizes += sum(map(len, messages)) + REQUEST_BYTES * len(messages)
        self._more.set()
        if self._sizes > AHEAD and not self._paused:
            self._paused = True
            self._association.pause_reading()

    def close(self) -> None:
        """End the stream: its connection is closed."""
        self._task.cancel()

    async def _requests(self) -> AsyncIterator[Any]:
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            waiting, self._waiting, self._sizes = self._waiting, [], 0
            for message in waiting:
                yield message
            if self._paused:
                self._paused = False
                self._association.resume_reading()

    async def _run(self) -> None:
        assert self._association.who is not None
        CALLER.set(self._association.who)
        try:
            async for response in self._serve(self._requests()):
                self._association.send(response)
        except Exception:
            logger.exception("a stream of %s failed", self._association.who.name)
            self._association.release("the hub failed on this stream. The hub's log has the reason.")
