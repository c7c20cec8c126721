"""Calls over gRPC whose end is what a test asks for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

T = TypeVar("T")


async def until_told(attempt: Callable[[float], Awaitable[T]]) -> T:
    """Make a call that is written to until it says why it ended: grpc.aio says INTERNAL of a write that meets that.

    `attempt` is given the seconds that it is to wait before each write, more each time: what ends a call of its own
    accord has then ended it.
    """
    for attempts in range(10):
        try:
            return await attempt(0.02 * attempts)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.INTERNAL:
                raise
    raise AssertionError("every call ended while it was written to")


async def given_up(task: "asyncio.Future[Any]") -> None:
    """Cancel `task` and wait until it is over, however it ends; who is cancelled meanwhile is told so."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # it is known: nobody need say that it was never asked for
