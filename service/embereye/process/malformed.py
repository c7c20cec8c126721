"""Refuse calls with messages that are not valid protobuf, instead of logging a traceback for each of them.

If a deserializer raises, gRPC logs the error or passes it on to the servicer. So `Registrar` wraps every handler here.
The wrapped deserializer of a single request returns a marker instead of raising; that of a stream notes the call in a
context variable. The wrapped servicer then ends the call with INVALID_ARGUMENT and counts it. Only the first such call
of a peer in each minute is logged.
"""

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from embereye.process.grpc_front import peer_of
from embereye.process.throttle import PerPeer

logger = logging.getLogger(__name__)
WHY = "a message is not valid protobuf for this call"

_malformed = object()  # takes the place of an only request
_seen: ContextVar[list[str]] = ContextVar("seen")  # gets an entry when a message of the present call is malformed


class MalformedCalls:
    """Counts the refused calls of this process, and logs one line per peer and minute."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = PerPeer()

    async def refuse(self, context: Any, call: str) -> NoReturn:
        """End the call with INVALID_ARGUMENT."""
        self.count += 1
        peer = peer_of(context).host
        if self._logged.is_due(peer):
            logger.warning("%s: %s from %s: refused. Further ones are only counted for a minute", call, WHY, peer)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, WHY)
        raise AssertionError  # abort raises


refused = MalformedCalls()


def refusing_malformed(call: str, handler: Any) -> Any:
    """Wrap the `handler` of `call` ("package.Service/Method")."""
    parse = handler.request_deserializer

    def deserialize(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            if not handler.request_streaming:  # raised here, it would be logged with its traceback
                return _malformed
            _seen.get([]).append(call)
            raise

    return wrapped(handler._replace(request_deserializer=deserialize), partial(_refusing, call))


@contextlib.asynccontextmanager
async def _refusing(call: str, request: Any, context: Any) -> AsyncIterator[None]:
    """Refuse `call` if its `request`, or a message of its stream, was malformed."""
    if request is _malformed:
        await refused.refuse(context, call)
    seen: list[str] = []
    _seen.set(seen)
    try:
        yield
    except Exception as error:
        if not seen or isinstance(error, grpc.aio.AbortError):
            raise
    if seen:
        await refused.refuse(context, call)


def kind_of(handler: Any) -> str:
    """The name of the field of `handler` that has its servicer's method, such as unary_stream."""
    sides = handler.request_streaming, handler.response_streaming
    return "_".join("stream" if streaming else "unary" for streaming in sides)


def wrapped(handler: Any, around: Callable[[Any, Any], AbstractAsyncContextManager[None]]) -> Any:
    """Return `handler` with its servicer inside `around`, which gets the request and the context of each call."""
    kind = kind_of(handler)
    behavior = getattr(handler, kind)

    async def stream(request: Any, context: Any) -> Any:
        async with around(request, context):
            async for response in behavior(request, context):
                yield response

    async def answer(request: Any, context: Any) -> Any:
        async with around(request, context):
            return await behavior(request, context)

    return handler._replace(**{kind: stream if inspect.isasyncgenfunction(behavior) else answer})
