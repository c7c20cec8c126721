"""gRPC calls with bytes that the process itself encodes or decodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc


@dataclass(frozen=True)
class ByteCall:
    """A call by which shards send something to the hub: bytes that they encode. Its answer is empty."""

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


def adding(add: Callable[[Any, Any], None], **changes: Mapping[str, Any]) -> Callable[[Any, Any], None]:
    """Return the generated function `add`, with other fields for the handlers of some methods, such as serialisers."""
    return lambda servicer, server: add(servicer, _Changing(server, changes))


@dataclass(frozen=True)
class _Changing:
    """Takes the place of a `Registrar` while generated code adds a servicer to it."""

    server: Any
    changes: Mapping[str, Mapping[str, Any]]

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Do nothing: see `Registrar`."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Pass the handlers on, with the changed fields."""
        changed = {method: handlers[method]._replace(**fields) for method, fields in self.changes.items()}
        self.server.add_registered_method_handlers(service, {**handlers, **changed})
