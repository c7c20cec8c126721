"""A gRPC call whose request is bytes that the caller encodes, and whose answer is empty."""

from dataclasses import dataclass
from typing import Any

import grpc


@dataclass(frozen=True)
class ByteCall:
    """A call by which shards send something to the hub."""

    service: str  # full name, such as embereye.v1.Margins
    method: str

    def add(self, servicer: Any, server: Any) -> None:
        """Add `servicer.receive`, which gets the bytes and returns b"", to `server`."""
        handler = grpc.unary_unary_rpc_method_handler(
            servicer.receive, request_deserializer=bytes, response_serializer=bytes
        )
        server.add_registered_method_handlers(self.service, {self.method: handler})

    async def send(self, channel: grpc.aio.Channel, data: bytes, seconds: float) -> None:
        """Send `data`; raises AioRpcError."""
        call: Any = channel.unary_unary(
            f"/{self.service}/{self.method}", request_serializer=bytes, response_deserializer=bytes
        )
        await call(data, timeout=seconds)
