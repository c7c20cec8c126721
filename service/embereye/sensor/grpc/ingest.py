"""gRPC Ingest: batches in, cumulative acknowledgements out.

Requests of all streams wait for at most WINDOW and are then analysed together, device by device. The sender gets the
watermark of each device: the sequence up to which everything is analysed or counted. If another shard owns a device,
its sender gets a Drain message with that shard's address instead, and its batches are ignored until it restarts the
device's sequence (`restart`). Undeclared devices are rejected.

When devices change owner, `Handoffs` sends their watermarks to the new owner first, and their senders move after that.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import grpc

from embereye.process.byte_call import adding
from embereye.process.grpc_server import Service
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.grpc.owner import Owner
from embereye.sensor.handoff import Handoffs
from embereye.shard.access import EVERYTHING, Grant
from embereye.shard.links import PeerAddress
from embereye.units import SECOND
from embereye.v1.ingest_pb2 import (
    Ack,
    Calibrate,
    Drain,
    IngestResponse,
    Rejected,
    TakeOverRequest,
    TakeOverResponse,
    Watermark,
)
from embereye.v1.ingest_pb2_grpc import add_IngestServicer_to_server
from embereye.wire.batches import Request, count_fields

logger = logging.getLogger(__name__)
SERVICE = "embereye.v1.Ingest"
# Seconds in which requests are collected under load. Many batches together cost a third, and one acknowledgement is
# cheaper than many: writing a message costs as much as reading one.
WINDOW = 0.002
WINDOW_BYTES = 512 * 1024  # waiting bytes that are analysed at once
MOST_DEVICES = 10_000  # in one request; a device needs only 2 bytes in it, but 300 bytes once it is parsed
MOST_UNKNOWN = 1_000  # undeclared devices on one stream
MAX_NAME = 253  # characters of a device's id on the wire; declared ones have 63 at most
DEVICE_TAGS = (b"\x0a", b"\x8a")  # first bytes that a device's tag can have in a request
CALIBRATION_RETRY_NS = 5 * SECOND  # between two requests for a device's calibration
MOST_RESPONSES = 16  # waiting on a stream; beyond it the stream is not read


class Receiver(Owner, Protocol):
    """The part of a shard that Ingest uses."""

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        """Analyse batches and advance the device's watermark."""


class _Stream:
    """An open stream: its devices, and the responses that wait to be written."""

    def __init__(self, context: Any, grant: Grant = EVERYTHING) -> None:
        self.grant = grant
        self.devices: set[str] = set()
        self.unknown: set[str] = set()  # undeclared devices
        self.refused: set[str] = set()  # devices that were refused; batches under way are ignored
        self.overlong = False  # a device's name was longer than MAX_NAME
        self.drained = False
        self._asked_ns: dict[str, int] = {}  # device → when its calibration was last requested
        self._context = context
        self._writing = asyncio.Lock()
        self._responses: deque[IngestResponse] = deque()

    @property
    def is_behind(self) -> bool:
        """True if the sender reads its responses too slowly: its stream is not read until it catches up."""
        return len(self._responses) > MOST_RESPONSES

    def add(self, responses: Iterable[IngestResponse]) -> None:
        """Queue `responses` for the next `flush`."""
        self._responses.extend(responses)

    def refuse(self, device: str, *, unknown: bool) -> bool:
        """Note that batches of `device` are refused; False if its name is too long, which ends the stream."""
        if len(device) > MAX_NAME:
            self.overlong = True
            return False
        self.refused.add(device)
        if unknown:
            self.unknown.add(device)
        return True

    def acknowledge(self, devices: Collection[SensorDevice], now_ns: int) -> None:
        """Queue the watermarks of `devices`, and a request for missing calibrations."""
        self.add([IngestResponse(ack=Ack(watermarks=[device.watermark() for device in devices]))])
        if missing := [device.spec.id for device in devices if self.is_calibration_due(device, now_ns)]:
            self.add([IngestResponse(calibrate=Calibrate(devices=missing))])

    def is_calibration_due(self, device: SensorDevice, now_ns: int) -> bool:
        """Return True, and note it, if the calibration of `device` is to be requested now."""
        if not device.frames.wants_calibration:
            return False
        if now_ns - self._asked_ns.get(device.spec.id, 0) <= CALIBRATION_RETRY_NS:
            return False
        self._asked_ns[device.spec.id] = now_ns
        return True

    async def abort(self, why: str) -> None:
        """End the stream by an exception in its handler."""
        await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    async def flush(self) -> None:
        """Send the queued responses, unless the sender is gone."""
        with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            async with self._writing:
                while self._responses:
                    await self._context.write(self._responses.popleft())


class Ingest:
    """Serves `Ingest.Stream` for one shard."""

    def __init__(self, owner: Receiver) -> None:
        self._owner = owner
        self._streams: set[_Stream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._successor = ""  # host:port where senders continue while draining
        self._patience = 0.0  # seconds to wait for another shard's answer while draining
        self._drained = False  # later requests are not analysed
        self._tasks = Tasks()  # tasks that send
        self._waiting: list[tuple[_Stream, Any]] = []  # requests that are not analysed yet
        self._waiting_bytes = 0
        self._analysed_at = 0.0  # event loop time
        self._timer: asyncio.TimerHandle | None = None
        self._left: dict[str, Watermark] = {}  # final watermarks of devices that other shards own now
        self._handoffs = Handoffs(self._request, self._redirect, self._dial)

    def __len__(self) -> int:
        return len(self._streams)

    def _dial(self, peer: PeerAddress) -> grpc.aio.Channel:
        return self._owner.links.peer(peer)

    def service(self) -> Service:
        """The service for a gRPC server."""
        add = adding(add_IngestServicer_to_server, Stream={"request_deserializer": _parse_sized})
        return Service(add, self, SERVICE)

    async def Stream(self, requests: object, context: Any) -> None:
        """Answer every request; when the shard drains, send a Drain message and acknowledge what still arrives."""
        if not self._owner.fleet.name:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this shard has no assignment yet")
        async with self._owner.access.admitted(context) as grant:
            await self._serve(_Stream(context, grant), context)

    async def _serve(self, stream: _Stream, context: Any) -> None:
        handoffs, grant = self._handoffs, stream.grant
        self._streams.add(stream)
        self._idle.clear()
        try:
            if self._draining:
                await self._send_drain(stream)
            while (read := await context.read()) is not grpc.aio.EOF:
                request, size = read
                if request is None or stream.overlong or len(stream.unknown) > MOST_UNKNOWN:
                    await self._end_excessive(stream, request)
                if self._drained:
                    break  # the sender resends unacknowledged batches to another shard
                if grant.device and (
                    foreign := next((b.device for b in request.devices if b.device != grant.device), "")
                ):
                    reason = f'the credentials are for device "{grant.device}", not for "{foreign[:80]}"'
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
                if len(handoffs):
                    await handoffs.wait_until_answered([batch.device for batch in request.devices])
                self._waiting.append((stream, request))
                self._waiting_bytes += size
                self._analyse_soon()
                if stream.is_behind:
                    await stream.flush()
            self._analyse()
            await stream.flush()
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._idle.set()

    async def TakeOver(self, request: TakeOverRequest, context: Any) -> TakeOverResponse:
        """Take devices over from another shard of the same fleet, with their watermarks."""
        if request.fleet != self._owner.fleet.name:
            reason = f'this shard belongs to fleet "{self._owner.fleet.name}", the devices to "{request.fleet}"'
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        taken = []
        for mark in request.watermarks:
            device = self._owner.fleet.owned(mark.device)
            if device is not None and request.epoch >= self._owner.fleet.since(mark.device):
                device.arrivals.resume(mark.epoch, mark.sequence)
                taken.append(mark.device)
        return TakeOverResponse(devices=taken)

    async def drain(self, timeout: float, successor: str = "") -> None:
        """Redirect every sender, and wait at most `timeout` seconds until all streams have ended.

        A sender is served until the new owners of its devices have their watermarks, or half of the time has passed;
        then it is redirected. Senders of devices that no other shard owns continue at `successor` (host:port), or at
        the fleet's service if that is empty.
        """
        self._draining = True
        self._successor = successor
        self._patience = timeout / 2
        self._analyse()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(
                    *(self._send_drain(stream) for stream in list(self._streams)), return_exceptions=True
                )
                await self._idle.wait()
        self._analyse()
        self._drained = True
        await self._handoffs.stop()

    async def close(self) -> None:
        """Stop all hand-overs and responses."""
        await self._handoffs.stop()
        await self._tasks.stop()

    def discard_pending(self) -> None:
        """Drop queued requests, because access rules changed. Senders that are still allowed send them again."""
        self._waiting, self._waiting_bytes = [], 0

    def on_reassigned(self, handing_over: Collection[str], released: Mapping[str, Watermark]) -> None:
        """Hand devices over to the shards that own them by the new assignment.

        `handing_over` are devices that this shard owns until another one covers them; `released` are the final
        watermarks of devices that it no longer owns.
        """
        self._analyse()
        self._left = {
            name: mark
            for name, mark in {**self._left, **released}.items()
            if self._owner.fleet.owned(name) is None and self._owner.fleet.is_elsewhere(name)
        }
        targets = {
            name: PeerAddress(peer.shard, peer.control)
            for name in {*handing_over, *self._left}
            if self._mark(name) and (peer := self._owner.fleet.peer_of(name)) and peer.control
        }
        self._handoffs.update(targets, handing_over)
        unowned = {name for stream in self._streams for name in stream.devices if self._owner.fleet.owned(name) is None}
        self._redirect(unowned - targets.keys())

    async def _end_excessive(self, stream: _Stream, request: Any) -> None:
        """End a stream that names too many devices, or one with an impossible name."""
        await stream.flush()
        if request is None:
            await stream.abort(f"the request names more than {MOST_DEVICES} devices: split it")
        if stream.overlong:
            await stream.abort(f"the name of a device has more than {MAX_NAME} characters")
        await stream.abort(f"more than {MOST_UNKNOWN} devices are not declared: add them to spec.sensors")

    def _request(self, devices: Collection[str]) -> TakeOverRequest:
        self._analyse()  # the watermarks have to include everything that has arrived
        marks = [mark for name in devices if (mark := self._mark(name))]
        return TakeOverRequest(watermarks=marks, fleet=self._owner.fleet.name, epoch=self._owner.fleet.epoch)

    def _mark(self, name: str) -> Watermark | None:
        device = self._owner.fleet.owned(name)
        if device is None:
            return self._left.get(name)
        return device.watermark() if device.arrivals.epoch else None

    def _redirect(self, devices: Collection[str]) -> None:
        """Send the senders of `devices`, which are gone, the addresses of the new owners."""
        for stream in self._streams:
            if drains := self._drain_messages(stream, stream.devices.intersection(devices), "owned by another shard"):
                stream.add(drains)
                self._send(stream)

    def _send(self, stream: _Stream) -> None:
        self._tasks.start(stream.flush(), name="ingest-send")

    async def _send_drain(self, stream: _Stream) -> None:
        if stream.drained:
            return
        stream.drained = True
        await self._handoffs.wait_until_gone(stream.devices, self._patience)
        reason = "this shard is shutting down"
        self._handoffs.give_up({name for name in stream.devices if self._owner.fleet.peer_of(name)})
        drains = self._drain_messages(stream, stream.devices, reason)
        peers = [peer.grpc for peer in self._owner.fleet.peers() if peer.grpc]
        stream.add([*drains, IngestResponse(drain=Drain(target=self._successor, reason=reason, peers=peers))])
        await stream.flush()

    def _drain_messages(self, stream: _Stream, devices: Collection[str], reason: str) -> list[IngestResponse]:
        """Make a Drain message for each owner of `devices`, and refuse the devices from now on."""
        targets: dict[str, list[str]] = {}
        for device in sorted(devices):
            if peer := self._owner.fleet.peer_of(device):
                targets.setdefault(peer.grpc, []).append(device)
                stream.devices.discard(device)
                stream.refused.add(device)
        return [
            IngestResponse(drain=Drain(target=target, devices=names, reason=reason))
            for target, names in targets.items()
        ]

    def _analyse_soon(self) -> None:
        """Analyse now, or under load at the end of the window."""
        loop = asyncio.get_running_loop()
        if self._waiting_bytes >= WINDOW_BYTES or loop.time() - self._analysed_at >= WINDOW:
            self._analyse()
        elif self._timer is None:
            self._timer = loop.call_later(WINDOW, self._analyse)

    def _analyse(self) -> None:
        """Analyse the waiting requests, device by device, and answer them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        batches: dict[SensorDevice, list[Any]] = {}
        senders: dict[_Stream, set[SensorDevice]] = {}
        unowned: dict[_Stream, list[str]] = {}
        for stream, request in waiting:
            devices = senders.setdefault(stream, set())
            for batch in request.devices:
                name = batch.device
                if name in stream.refused:
                    if not batch.restart:
                        continue
                    stream.refused.discard(name)
                device = self._owner.fleet.owned(name)
                if device is not None and not self._handoffs.is_gone(name):
                    stream.devices.add(name)
                    batches.setdefault(device, []).append(batch)
                    devices.add(device)
                elif stream.refuse(name, unknown=device is None and self._owner.fleet.peer_of(name) is None):
                    unowned.setdefault(stream, []).append(name)
        now = now_ns()
        accounted = self._analyse_devices(batches, now)
        for stream, devices in senders.items():
            if acknowledged := devices & accounted:
                stream.acknowledge(acknowledged, now)
            if names := unowned.get(stream):
                stream.add(self._answer_unowned(names))
            self._send(stream)
        self._analysed_at = asyncio.get_running_loop().time()

    def _analyse_devices(self, batches: Mapping[SensorDevice, Sequence[Any]], now: int) -> set[SensorDevice]:
        """Analyse the batches of each device; return the devices without a failure."""
        accounted = set()
        for device, device_batches in batches.items():
            try:
                self._owner.analyse_batches(device, device_batches, now)
                accounted.add(device)
            except Exception:
                logger.exception("device %s: batches could not be analysed", device.spec.id)
        return accounted

    def _answer_unowned(self, names: Iterable[str]) -> list[IngestResponse]:
        """Make the answers for devices that are not analysed here: their owners' addresses, or a rejection."""
        elsewhere: dict[str, list[str]] = {}
        unknown: list[str] = []
        for name in names:
            if peer := self._owner.fleet.peer_of(name):
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
        return responses


def _parse_sized(text: bytes) -> tuple[Any, int]:
    """The request, or None if it names too many devices and is not parsed; and its size in bytes."""
    # A cheap bound first: a device takes at least two bytes, and counting first bytes of tags costs a twentieth of
    # parsing. Nearly all requests pass it, so their fields need not be counted.
    size = len(text)
    many = size > 2 * MOST_DEVICES and any(text.count(tag) > MOST_DEVICES for tag in DEVICE_TAGS)
    if many and count_fields(text, MOST_DEVICES) > MOST_DEVICES:
        return None, size
    return Request.FromString(text), size
