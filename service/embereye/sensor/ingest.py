"""gRPC Ingest: batches in, cumulative acknowledgements out, senders sent on to the shard that owns their device."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Protocol

from embereye.process.grpc_server import Service
from embereye.sensor.device import SensorDevice
from embereye.v1.ingest_pb2 import (
    Ack,
    DeviceBatch,
    Drain,
    IngestRequest,
    IngestResponse,
    Rejected,
    Watermark,
)
from embereye.v1.ingest_pb2_grpc import IngestServicer, add_IngestServicer_to_server
from embereye.v1.shard_pb2 import Peer

BAD_CALIBRATION = "calibration refused"


class Owner(Protocol):
    """What the servicer needs of the shard."""

    draining: asyncio.Event

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...

    def take_batch(self, device: SensorDevice, batch: DeviceBatch, now_ns: int) -> Watermark:
        """Analyse a batch; the watermark tells up to where everything is accounted for."""
        ...


class Ingest(IngestServicer):
    """Serves `Ingest.Stream` for one shard."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def service(self) -> Service:
        """How a server takes it."""
        return Service(add_IngestServicer_to_server, self, "embereye.v1.Ingest")

    async def Stream(self, requests: AsyncIterator[IngestRequest], context: object) -> AsyncIterator[IngestResponse]:
        """Answer every request; when the shard drains, say so and acknowledge what still arrives."""
        told_to_drain = False
        reader = requests.__aiter__()
        draining = asyncio.ensure_future(self._owner.draining.wait())
        pending: asyncio.Future[IngestRequest] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(reader))
                waits: set[asyncio.Future[object]] = {pending}  # type: ignore[arg-type]
                if not told_to_drain:
                    waits.add(draining)  # type: ignore[arg-type]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if draining.done() and not told_to_drain:
                    told_to_drain = True
                    yield IngestResponse(drain=Drain(reason="this shard is going away"))
                if not pending.done():
                    continue
                try:
                    request = pending.result()
                except StopAsyncIteration:
                    return
                finally:
                    pending = None
                for response in self._answer(request):
                    yield response
        finally:
            draining.cancel()
            if pending is not None:
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await pending

    def _answer(self, request: IngestRequest) -> list[IngestResponse]:
        now = time.time_ns()
        watermarks: list[Watermark] = []
        elsewhere: dict[str, list[str]] = {}
        unknown: list[str] = []
        for batch in request.devices:
            device = self._owner.owned(batch.device)
            if device is not None:
                watermarks.append(self._owner.take_batch(device, batch, now))
            elif peer := self._owner.peer_of(batch.device):
                elsewhere.setdefault(peer.grpc, []).append(batch.device)
            else:
                unknown.append(batch.device)
        responses = [IngestResponse(ack=Ack(watermarks=watermarks))] if watermarks else []
        responses += [
            IngestResponse(drain=Drain(target=target, devices=devices, reason="owned by another shard"))
            for target, devices in elsewhere.items()
        ]
        if unknown:
            reason = "not declared in this fleet: add the device to spec.sensors"
            responses.append(IngestResponse(rejected=Rejected(devices=unknown, reason=reason)))
        return responses
