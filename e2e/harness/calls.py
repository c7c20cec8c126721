"""Calls over gRPC whose end is what a test asks for."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

T = TypeVar("T")


async def until_told(attempt: Callable[[], Awaitable[T]]) -> T:
    """Make a call that is written to until it says why it ended: grpc.aio says INTERNAL of a write that meets that."""
    for _ in range(10):
        try:
            return await attempt()
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.INTERNAL:
                raise
    raise AssertionError("every call ended while it was written to")
