"""gRPC Ingest: batches in, cumulative acknowledgements out, senders sent on to the shard that owns their device."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import grpc

from embereye.process.grpc_server import Service
from embereye.sensor.departures import Departures
from embereye.sensor.device import SensorDevice
from embereye.v1.ingest_pb2 import (
    Ack,
    Drain,
    IngestResponse,
    Rejected,
    TakeOverRequest,
    TakeOverResponse,
    Watermark,
)
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

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
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
        self._over = False
        self._moving: set[asyncio.Task[None]] = set()
        self._left: dict[str, Watermark] = {}  # of devices that are another shard's now
        self._departures = Departures(self._mark, self._tell_moved)

    def __len__(self) -> int:
        return len(self._streams)

    def service(self) -> Service:
        """How a server takes it."""
        return Service(_add_to_server, self, SERVICE)

    async def Stream(self, requests: object, context: Any) -> None:
        """Answer every request; when the shard drains, say so and acknowledge what still arrives."""
        departures = self._departures
        stream = _Stream(context)
        self._streams.add(stream)
        self._idle.clear()
        try:
            if self._draining:
                await self._tell(stream)
            while (request := await context.read()) is not grpc.aio.EOF:
                if self._over:
                    break  # its sender goes elsewhere with what is not acknowledged
                if len(departures):
                    await departures.settle([batch.device for batch in request.devices])
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

    async def TakeOver(self, request: TakeOverRequest, context: object) -> TakeOverResponse:
        """Go on where another shard stopped."""
        taken = []
        for mark in request.watermarks:
            if (device := self._owner.owned(mark.device)) is not None:
                device.resume(mark.epoch, mark.sequence)
                taken.append(mark.device)
        return TakeOverResponse(devices=taken)

    async def drain(self, timeout: float) -> None:
        """Tell every sender to go elsewhere, and wait until they went, at most `timeout` seconds."""
        self._draining = True
        await self._departures.settle_all(timeout / 2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self._tell(stream) for stream in list(self._streams)), return_exceptions=True)
                await self._idle.wait()
        self._over = True
        await self.close()

    async def close(self) -> None:
        """Tell no other shard anything any more."""
        await self._departures.stop()

    def moved(self, leaving: Collection[str], left: Mapping[str, Watermark]) -> None:
        """The assignment changed: let go of what belongs to another shard.

        `leaving` are devices that are ours until that one covers them; `left` is up to where the readings of those
        that are not ours any more were taken.
        """
        self._left = {name: mark for name, mark in {**self._left, **left}.items() if self._owner.owned(name) is None}
        targets = {
            name: peer.grpc
            for name in {*leaving, *self._left}
            if self._mark(name) and (peer := self._owner.peer_of(name)) and peer.grpc
        }
        self._departures.update(targets, leaving)
        strangers = {name for stream in self._streams for name in stream.devices if self._owner.owned(name) is None}
        self._tell_moved(strangers - targets.keys())

    def _mark(self, name: str) -> Watermark | None:
        device = self._owner.owned(name)
        if device is None:
            return self._left.get(name)
        return Watermark(device=name, epoch=device.epoch, sequence=device.sequence) if device.epoch else None

    def _tell_moved(self, devices: Collection[str]) -> None:
        """Tell the senders of `devices`, which have gone, where to go."""
        for stream in self._streams:
            if drains := self._elsewhere(stream, stream.devices.intersection(devices), "owned by another shard"):
                task = asyncio.get_running_loop().create_task(_until_gone(stream.send, drains), name="ingest-moved")
                self._moving.add(task)
                task.add_done_callback(self._moving.discard)

    async def _tell(self, stream: _Stream) -> None:
        if not stream.drained:
            stream.drained = True
            reason = "this shard is going away"
            self._departures.leave({name for name in stream.devices if self._owner.peer_of(name)})
            drains = self._elsewhere(stream, stream.devices, reason)
            peers = [peer.grpc for peer in self._owner.peers() if peer.grpc]
            await _until_gone(stream.send, [*drains, IngestResponse(drain=Drain(reason=reason, peers=peers))])

    def _elsewhere(self, stream: _Stream, devices: Collection[str], reason: str) -> list[IngestResponse]:
        targets: dict[str, list[str]] = {}
        for device in sorted(devices):
            if peer := self._owner.peer_of(device):
                targets.setdefault(peer.grpc, []).append(device)
                stream.devices.discard(device)
        return [
            IngestResponse(drain=Drain(target=target, devices=names, reason=reason))
            for target, names in targets.items()
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
            if device is not None and not self._departures.gone(name):
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
    handlers = {
        "Stream": grpc.stream_stream_rpc_method_handler(
            servicer.Stream,
            request_deserializer=Request.FromString,
            response_serializer=IngestResponse.SerializeToString,
        ),
        "TakeOver": grpc.unary_unary_rpc_method_handler(
            servicer.TakeOver,
            request_deserializer=TakeOverRequest.FromString,
            response_serializer=TakeOverResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_registered_method_handlers(SERVICE, handlers)
