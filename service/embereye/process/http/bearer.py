"""Send a bearer token with each gRPC call."""

from collections.abc import Callable
from typing import Any

import grpc

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """The metadata with `token`; empty without a token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


class _ShowToken:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def _with_token(self, details: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *self._metadata)
        return details._replace(metadata=metadata)


class _UnaryUnary(_ShowToken, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._with_token(details), request)


class _UnaryStream(_ShowToken, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._with_token(details), request)


class _StreamStream(_ShowToken, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return await continuation(self._with_token(details), requests)


def interceptors(token: str) -> "list[grpc.aio.ClientInterceptor]":
    """Interceptors that add `token` to every call of a channel; none without a token."""
    metadata = bearer(token)
    return [_UnaryUnary(metadata), _UnaryStream(metadata), _StreamStream(metadata)] if metadata else []
