"""A token that a process shows with each call it makes."""

from collections.abc import Callable
from typing import Any

import grpc

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """The metadata that shows `token`; none where it is empty."""
    return (("authorization", f"Bearer {token}"),) if token else ()


class _ShowToken:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def _shown(self, details: Any) -> Any:
        given = grpc.aio.Metadata(*(details.metadata or ()), *self._metadata)
        return details._replace(metadata=given)


class _UnaryUnary(_ShowToken, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._shown(details), request)


class _UnaryStream(_ShowToken, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._shown(details), request)


class _StreamStream(_ShowToken, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return await continuation(self._shown(details), requests)


def interceptors(token: str) -> "list[grpc.aio.ClientInterceptor]":
    """What has every call of a channel show `token`; nothing where it is empty."""
    metadata = bearer(token)
    return [_UnaryUnary(metadata), _UnaryStream(metadata), _StreamStream(metadata)] if metadata else []
