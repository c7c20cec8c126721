"""The gRPC codes of the errors that the hub's parts raise.

A servicer with `@end_with_status` need not handle them: its call ends with the code and the text of the error.
"""

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from embereye.hub.access.keeper import NameTakenError, SlowDownError
from embereye.hub.clips.store import ClipRefusedError, ClipsUnreadError, NoRoomError
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.feeds.feed import ClosedError, FutureCursorError, TooManyError, TooSlowError
from embereye.hub.refusals import ConflictError, ForbiddenError, InvalidError, UnknownNameError
from embereye.zone.state import NotAllowedError

AnyContext = grpc.aio.ServicerContext[Any, Any]
S = TypeVar("S")
CODES: dict[type[Exception], grpc.StatusCode] = {  # the first that matches
    FutureCursorError: grpc.StatusCode.OUT_OF_RANGE,
    InvalidError: grpc.StatusCode.INVALID_ARGUMENT,
    ClipRefusedError: grpc.StatusCode.INVALID_ARGUMENT,
    ForbiddenError: grpc.StatusCode.PERMISSION_DENIED,
    UnknownNameError: grpc.StatusCode.NOT_FOUND,
    NameTakenError: grpc.StatusCode.ALREADY_EXISTS,
    ConflictError: grpc.StatusCode.FAILED_PRECONDITION,
    NotAllowedError: grpc.StatusCode.FAILED_PRECONDITION,
    SlowDownError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NoRoomError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooSlowError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooManyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StoreError: grpc.StatusCode.UNAVAILABLE,
    StoreFailingError: grpc.StatusCode.UNAVAILABLE,
    ClipsUnreadError: grpc.StatusCode.UNAVAILABLE,
    ClosedError: grpc.StatusCode.UNAVAILABLE,
}


def end_with_status(servicer: type[S]) -> type[S]:
    """Let every call of `servicer`, except generators, end with the code of an error of CODES."""
    for name, call in list(vars(servicer).items()):
        if name[0].isupper() and inspect.iscoroutinefunction(call):
            setattr(servicer, name, _ending(call))
    return servicer


def _ending(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(call)
    async def ending(servicer: object, request: Any, context: AnyContext) -> Any:
        async with abort_on_error(context):
            return await call(servicer, request, context)

    return ending


@contextlib.asynccontextmanager
async def abort_on_error(context: AnyContext) -> AsyncIterator[None]:
    """End the call with the code and the text of an error in the block, if it is one of CODES."""
    try:
        yield
    except tuple(CODES) as error:
        code = next(code for kind, code in CODES.items() if isinstance(error, kind))
        await context.abort(code, str(error))
