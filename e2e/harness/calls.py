"""gRPC calls that a test expects to end with an error of the server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

T = TypeVar("T")


async def await_refusal(attempt: Callable[[float], Awaitable[T]]) -> T:
    """Repeat a call until it ends with the server's own status.

    A write to a call that the server is ending fails with INTERNAL in grpc.aio, which hides that status. `attempt`
    takes the seconds to wait before each write; they grow, so that the server has ended the call before the write.
    """
    for attempts in range(10):
        try:
            return await attempt(0.02 * attempts)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.INTERNAL:
                raise

    raise AssertionError("every call ended with INTERNAL during a write")


async def cancel_and_wait(task: "asyncio.Future[Any]") -> None:
    """Cancel `task` and wait until it ends, for any reason. A cancellation of the caller is raised."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not warn about it
