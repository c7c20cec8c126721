"""gRPC Ingest: batches in, cumulative acknowledgements out, senders sent on to the shard that owns their device."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc

from embereye.process.grpc_server import Service
from embereye.sensor.device import SensorDevice
from embereye.v1.ingest_pb2 import Ack, Drain, IngestResponse, Rejected, Watermark
from embereye.v1.shard_pb2 import Peer
from embereye.wire.batches import Request

logger = logging.getLogger(__name__)
SERVICE = "embereye.v1.Ingest"
# Between two acknowledgements on a stream, in seconds: in a flood each message that is written costs as much as one
# that is read, and a sender's window is many times what arrives in this time.
ACK_SECONDS = 0.005


class Owner(Protocol):
    """What the servicer needs of the shard."""

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...

    def take_batch(self, device: SensorDevice, batch: Any, now_ns: int) -> None:
        """Analyse a batch; the device then tells up to where everything is accounted for."""
        ...


class _Stream:
    """One open stream: who speaks on it, and its only writer at a time."""

    def __init__(self, context: Any) -> None:
        self.devices: set[str] = set()
        self.drained = False
        self._context = context
        self._writing = asyncio.Lock()
        self._taken: set[SensorDevice] = set()  # what was analysed of them is not acknowledged yet
        self._acknowledged_at = 0.0  # event loop time
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.Task[None] | None = None  # sends an acknowledgement that had to wait

    async def send(self, responses: Iterable[IngestResponse]) -> None:
        async with self._writing:
            for response in responses:
                await self._context.write(response)

    async def acknowledge(self, taken: Iterable[SensorDevice]) -> None:
        """Acknowledge now, or soon and together with what arrives until then."""
        self._taken.update(taken)
        if not self._taken:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._acknowledged_at >= ACK_SECONDS:
            await self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(ACK_SECONDS, self._flush_late)

    async def flush(self) -> None:
        """Acknowledge all that was analysed."""
        if not self._taken:
            return
        self._acknowledged_at = asyncio.get_running_loop().time()
        taken, self._taken = self._taken, set()
        marks = [Watermark(device=one.spec.id, epoch=one.epoch, sequence=one.sequence) for one in taken]
        await self.send([IngestResponse(ack=Ack(watermarks=marks))])

    def _flush_late(self) -> None:
        self._timer = None
        self._late = asyncio.get_running_loop().create_task(_until_gone(self.flush), name="ingest-acknowledge")

    def close(self) -> None:
        """The stream is over: nobody reads what would be sent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._late is not None:
            self._late.cancel()


class Ingest:
    """Serves `Ingest.Stream` for one shard."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._streams: set[_Stream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._moving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._streams)

    def service(self) -> Service:
        """How a server takes it."""
        return Service(_add_to_server, self, SERVICE)

    async def Stream(self, requests: object, context: Any) -> None:
        """Answer every request; when the shard drains, say so and acknowledge what still arrives."""
        stream = _Stream(context)
        self._streams.add(stream)
        self._idle.clear()
        try:
            if self._draining:
                await self._tell(stream)
            while (request := await context.read()) is not grpc.aio.EOF:
                taken, responses = self._take(request, stream)
                await stream.acknowledge(taken)
                if responses:
                    await stream.send(responses)
            await stream.flush()
        finally:
            stream.close()
            self._streams.discard(stream)
            if not self._streams:
                self._idle.set()

    async def drain(self, timeout: float) -> None:
        """Tell every sender to go elsewhere, and wait until they went, at most `timeout` seconds."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self._tell(stream) for stream in list(self._streams)), return_exceptions=True)
                await self._idle.wait()

    def moved(self) -> None:
        """Tell the senders of devices that belong to another shard now where to go."""
        for stream in self._streams:
            if drains := self._elsewhere(stream, "owned by another shard"):
                task = asyncio.get_running_loop().create_task(_until_gone(stream.send, drains), name="ingest-moved")
                self._moving.add(task)
                task.add_done_callback(self._moving.discard)

    async def _tell(self, stream: _Stream) -> None:
        if not stream.drained:
            stream.drained = True
            drains = self._elsewhere(stream, "this shard is going away")
            drains.append(IngestResponse(drain=Drain(reason="this shard is going away")))
            await _until_gone(stream.send, drains)

    def _elsewhere(self, stream: _Stream, reason: str) -> list[IngestResponse]:
        targets: dict[str, list[str]] = {}
        for device in sorted(stream.devices):
            if peer := self._owner.peer_of(device):
                targets.setdefault(peer.grpc, []).append(device)
                stream.devices.discard(device)
        return [
            IngestResponse(drain=Drain(target=target, devices=devices, reason=reason))
            for target, devices in targets.items()
        ]

    def _take(self, request: Any, stream: _Stream) -> tuple[list[SensorDevice], list[IngestResponse]]:
        """The devices of which something was analysed, and what is to be said of the others."""
        now = time.time_ns()
        taken: list[SensorDevice] = []
        elsewhere: dict[str, list[str]] = {}
        unknown: list[str] = []
        for batch in request.devices:
            name = batch.device
            device = self._owner.owned(name)
            if device is not None:
                stream.devices.add(name)
                self._owner.take_batch(device, batch, now)
                taken.append(device)
            elif peer := self._owner.peer_of(name):
                elsewhere.setdefault(peer.grpc, []).append(name)
            else:
                unknown.append(name)
        responses = [
            IngestResponse(drain=Drain(target=target, devices=devices, reason="owned by another shard"))
            for target, devices in elsewhere.items()
        ]
        if unknown:
            reason = "not declared in this fleet: add the device to spec.sensors"
            responses.append(IngestResponse(rejected=Rejected(devices=unknown, reason=reason)))
        return taken, responses


async def _until_gone(send: Callable[..., Awaitable[None]], *responses: list[IngestResponse]) -> None:
    """Send to one who may have gone meanwhile."""
    with contextlib.suppress(grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
        await send(*responses)


def _add_to_server(servicer: Ingest, server: Any) -> None:
    # As the generated function, but for requests whose readings stay bytes.
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.Stream,
        request_deserializer=Request.FromString,
        response_serializer=IngestResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Stream": handler}),))
    server.add_registered_method_handlers(SERVICE, {"Stream": handler})
