"""gRPC Ingest: batches in, cumulative acknowledgements out, senders sent on to the shard that owns their device."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import grpc

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
from embereye.v1.shard_pb2 import Peer
from embereye.wire.batches import Request, count_fields

logger = logging.getLogger(__name__)
SERVICE = "embereye.v1.Ingest"
# Seconds. In a flood, what arrives within this time is analysed and acknowledged together: run over many batches at
# once, the same code costs a third, and writing a message costs as much as reading one.
WINDOW = 0.002
WINDOW_BYTES = 512 * 1024  # that are analysed without waiting any longer
MOST_DEVICES = 10_000  # in one request: parsed, each of them takes 300 bytes, and it may have no more than two
MOST_UNKNOWN = 1_000  # devices that nobody declared, on one stream
MAX_NAME = 253  # characters of a device's id on the wire; declared ones have 63 at most
DEVICE_TAGS = (b"\x0a", b"\x8a")  # how the tag of a device begins in a request, however long it is written
CALIBRATION_RETRY_NS = 5 * SECOND  # between two requests for a device's calibration
MOST_RESPONSES = 16  # waiting on a stream, beyond which its sender is not read any further


class Receiver(Owner, Protocol):
    """A shard that batches are sent to."""

    fleet: str
    epoch: int  # of the assignment in force

    def since(self, device: str) -> int:
        """The epoch from which on this shard owns it."""
        ...

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        """Analyse batches; the device then tells up to where everything is accounted for."""
        ...

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
        ...

    def is_elsewhere(self, device: str) -> bool:
        """Whether the fleet has it on another shard, known as a peer or not."""
        ...


class _Stream:
    """One open stream: who speaks on it, and its only writer at a time."""

    def __init__(self, context: Any, grant: Grant = EVERYTHING) -> None:
        self.grant = grant
        self.devices: set[str] = set()
        self.unknown: set[str] = set()  # devices that nobody declared
        self.refused: set[str] = set()  # devices whose batches are on their way although they were named in a refusal
        self.overlong = False  # whether a device's name was longer than MAX_NAME
        self.drained = False
        self._asked_ns: dict[str, int] = {}  # device → when its calibration was last asked for
        self._context = context
        self._writing = asyncio.Lock()
        self._responses: deque[IngestResponse] = deque()

    @property
    def behind(self) -> bool:
        """Whether its sender reads so little that it has to wait before it is read any further."""
        return len(self._responses) > MOST_RESPONSES

    def add(self, responses: Iterable[IngestResponse]) -> None:
        """Have `responses` sent with the next `flush`."""
        self._responses.extend(responses)

    def refuse(self, device: str, *, unknown: bool) -> bool:
        """Note that batches of `device` are refused; False where its name is longer than any, and is not even kept."""
        if len(device) > MAX_NAME:
            self.overlong = True
            return False
        self.refused.add(device)
        if unknown:
            self.unknown.add(device)
        return True

    def acknowledge(self, devices: Collection[SensorDevice], now_ns: int) -> None:
        """Say up to where all that `devices` sent is accounted for, and whose calibration is missing."""
        self.add([IngestResponse(ack=Ack(watermarks=[one.watermark() for one in devices]))])
        if wanted := [one.spec.id for one in devices if self.asks_calibration(one, now_ns)]:
            self.add([IngestResponse(calibrate=Calibrate(devices=wanted))])

    def asks_calibration(self, device: SensorDevice, now_ns: int) -> bool:
        """Whether the calibration of `device`, which has sent something, is to be asked for now."""
        if not device.frames.wants_calibration:
            return False
        if now_ns - self._asked_ns.get(device.spec.id, 0) <= CALIBRATION_RETRY_NS:
            return False
        self._asked_ns[device.spec.id] = now_ns
        return True

    async def abort(self, why: str) -> None:
        """End the stream; raises what ends its handler."""
        await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    async def flush(self) -> None:
        """Send what was added; the sender may have gone meanwhile."""
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
        self._successor = ""  # where senders go on while draining
        self._patience = 0.0  # seconds to wait for another shard's answer while draining
        self._over = False  # drained: what still arrives is not analysed
        self._tasks = Tasks()  # that send
        self._waiting: list[tuple[_Stream, Any]] = []  # requests that are not analysed yet
        self._waiting_bytes = 0
        self._analysed_at = 0.0  # event loop time
        self._timer: asyncio.TimerHandle | None = None
        self._left: dict[str, Watermark] = {}  # device that is another shard's now → how far it was analysed here
        self._handoffs = Handoffs(self._request, self._send_on, self._dial)

    def __len__(self) -> int:
        return len(self._streams)

    def _dial(self, peer: PeerAddress) -> grpc.aio.Channel:
        return self._owner.links.peer(peer)

    def service(self) -> Service:
        """How a server takes it."""
        return Service(_add_to_server, self, SERVICE)

    async def Stream(self, requests: object, context: Any) -> None:
        """Answer every request; when the shard drains, say so and acknowledge what still arrives."""
        if not self._owner.fleet:
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
                    await self._send_away(stream, request)
                if self._over:
                    break  # its sender goes elsewhere with what is not acknowledged
                if grant.device and (
                    other := next((b.device for b in request.devices if b.device != grant.device), "")
                ):
                    reason = f'what was shown speaks for "{grant.device}", not for "{other[:80]}"'
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
                if len(handoffs):
                    await handoffs.wait_until_answered([batch.device for batch in request.devices])
                self._waiting.append((stream, request))
                self._waiting_bytes += size
                self._analyse_soon()
                if stream.behind:
                    await stream.flush()
            self._analyse()
            await stream.flush()
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._idle.set()

    async def TakeOver(self, request: TakeOverRequest, context: Any) -> TakeOverResponse:
        """Go on where another shard of the same fleet stopped."""
        if request.fleet != self._owner.fleet:
            reason = f'a shard of "{request.fleet}" hands devices over to one of "{self._owner.fleet}"'
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        taken = []
        for mark in request.watermarks:
            device = self._owner.owned(mark.device)
            if device is not None and request.epoch >= self._owner.since(mark.device):
                device.arrivals.resume(mark.epoch, mark.sequence)
                taken.append(mark.device)
        return TakeOverResponse(devices=taken)

    async def drain(self, timeout: float, successor: str = "") -> None:
        """Tell every sender to go elsewhere, and wait until they went, at most `timeout` seconds.

        A sender of devices whose new owner does not know yet where to go on is told once it does, or half of the time
        is over, and is served until then; it holds up no other. Those of devices that no other shard owns go on at
        `successor`, host:port; '': at the fleet's service.
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
        self._over = True
        await self._handoffs.stop()

    async def close(self) -> None:
        """Hand nothing over any more, and send nothing that still waits."""
        await self._handoffs.stop()
        await self._tasks.stop()

    def judge_anew(self) -> None:
        """Let go of what waits: who sent it may not speak here any more. Who may sends it again."""
        self._waiting, self._waiting_bytes = [], 0

    def moved(self, leaving: Collection[str], left: Mapping[str, Watermark]) -> None:
        """The assignment changed: let go of what belongs to another shard.

        `leaving` are devices that are ours until that one covers them; `left` is up to where the readings of those
        that are not ours any more were taken.
        """
        self._analyse()
        self._left = {
            name: mark
            for name, mark in {**self._left, **left}.items()
            if self._owner.owned(name) is None and self._owner.is_elsewhere(name)
        }
        targets = {
            name: PeerAddress(peer.shard, peer.control)
            for name in {*leaving, *self._left}
            if self._mark(name) and (peer := self._owner.peer_of(name)) and peer.control
        }
        self._handoffs.update(targets, leaving)
        unowned = {name for stream in self._streams for name in stream.devices if self._owner.owned(name) is None}
        self._send_on(unowned - targets.keys())

    async def _send_away(self, stream: _Stream, request: Any) -> None:
        """End the stream of a sender that names more devices than anybody has, or one that nobody can have."""
        await stream.flush()
        if request is None:
            await stream.abort(f"a request names more than {MOST_DEVICES} devices: send several")
        if stream.overlong:
            await stream.abort(f"a device's name has more than {MAX_NAME} characters")
        await stream.abort(f"more than {MOST_UNKNOWN} devices that nobody declared: add them to spec.sensors")

    def _request(self, devices: Collection[str]) -> TakeOverRequest:
        self._analyse()  # nothing may be on its way to them while another shard is told how far they are
        marks = [mark for name in devices if (mark := self._mark(name))]
        return TakeOverRequest(watermarks=marks, fleet=self._owner.fleet, epoch=self._owner.epoch)

    def _mark(self, name: str) -> Watermark | None:
        device = self._owner.owned(name)
        if device is None:
            return self._left.get(name)
        return device.watermark() if device.arrivals.epoch else None

    def _send_on(self, devices: Collection[str]) -> None:
        """Tell the senders of `devices`, which have gone, where to go."""
        for stream in self._streams:
            if drains := self._drains_for(stream, stream.devices.intersection(devices), "owned by another shard"):
                stream.add(drains)
                self._send(stream)

    def _send(self, stream: _Stream) -> None:
        self._tasks.start(stream.flush(), name="ingest-send")

    async def _send_drain(self, stream: _Stream) -> None:
        if stream.drained:
            return
        stream.drained = True
        await self._handoffs.wait_until_gone(stream.devices, self._patience)
        reason = "this shard is going away"
        self._handoffs.let_go({name for name in stream.devices if self._owner.peer_of(name)})
        drains = self._drains_for(stream, stream.devices, reason)
        peers = [peer.grpc for peer in self._owner.peers() if peer.grpc]
        stream.add([*drains, IngestResponse(drain=Drain(target=self._successor, reason=reason, peers=peers))])
        await stream.flush()

    def _drains_for(self, stream: _Stream, devices: Collection[str], reason: str) -> list[IngestResponse]:
        """Name the owners of `devices` to a sender, one message for each owner, and refuse them from now on."""
        targets: dict[str, list[str]] = {}
        for device in sorted(devices):
            if peer := self._owner.peer_of(device):
                targets.setdefault(peer.grpc, []).append(device)
                stream.devices.discard(device)
                stream.refused.add(device)
        return [
            IngestResponse(drain=Drain(target=target, devices=names, reason=reason))
            for target, names in targets.items()
        ]

    def _analyse_soon(self) -> None:
        """Analyse now, or together with what arrives until the window is over."""
        loop = asyncio.get_running_loop()
        if self._waiting_bytes >= WINDOW_BYTES or loop.time() - self._analysed_at >= WINDOW:
            self._analyse()
        elif self._timer is None:
            self._timer = loop.call_later(WINDOW, self._analyse)

    def _analyse(self) -> None:
        """Analyse what is waiting, device by device, and answer."""
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
            own = senders.setdefault(stream, set())
            for batch in request.devices:
                name = batch.device
                if name in stream.refused:
                    if not batch.restart:
                        continue
                    stream.refused.discard(name)
                device = self._owner.owned(name)
                if device is not None and not self._handoffs.gone(name):
                    stream.devices.add(name)
                    batches.setdefault(device, []).append(batch)
                    own.add(device)
                elif stream.refuse(name, unknown=device is None and self._owner.peer_of(name) is None):
                    unowned.setdefault(stream, []).append(name)
        now = now_ns()
        accounted = self._analyse_devices(batches, now)
        for stream, own in senders.items():
            if acknowledged := own & accounted:
                stream.acknowledge(acknowledged, now)
            if names := unowned.get(stream):
                stream.add(self._answer_unowned(names))
            self._send(stream)
        self._analysed_at = asyncio.get_running_loop().time()

    def _analyse_devices(self, batches: Mapping[SensorDevice, Sequence[Any]], now: int) -> set[SensorDevice]:
        """The devices of which everything is accounted for."""
        accounted = set()
        for device, own in batches.items():
            try:
                self._owner.analyse_batches(device, own, now)
                accounted.add(device)
            except Exception:
                logger.exception("device %s: what it sent could not be analysed", device.spec.id)
        return accounted

    def _answer_unowned(self, names: Iterable[str]) -> list[IngestResponse]:
        """The answers to batches of devices that are not analysed here: where to go, or that nobody declared them."""
        elsewhere: dict[str, list[str]] = {}
        unknown: list[str] = []
        for name in names:
            if peer := self._owner.peer_of(name):
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
    """A request and how many bytes it has; None for one that names too many devices, which is not even parsed."""
    # A device takes two bytes at least, and to count bytes takes a twentieth of what a request costs. Most requests are
    # too short to name too many, and nearly all others have fewer bytes that might begin a device.
    size = len(text)
    many = size > 2 * MOST_DEVICES and any(text.count(tag) > MOST_DEVICES for tag in DEVICE_TAGS)
    if many and count_fields(text, MOST_DEVICES) > MOST_DEVICES:
        return None, size
    return Request.FromString(text), size


def _add_to_server(servicer: Ingest, server: Any) -> None:
    # As the generated function, but for requests whose readings stay bytes.
    handlers: dict[str, Any] = {
        "Stream": grpc.stream_stream_rpc_method_handler(
            servicer.Stream,
            request_deserializer=_parse_sized,
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
