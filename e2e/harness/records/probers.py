"""Clients that record what they sent and what was acknowledged, using only the wire protocols.

Each runs as a task for a whole run, through all faults. `EvidenceProber` reports signs to the hub as a shard does;
`IngestProber` sends a sensor's readings to shards and follows redirections. Both retain what is unacknowledged, send it
again after each reconnection, and note the time of every acknowledgement. Afterwards, tests compare these books with
the witness's: an acknowledged sign without an alarm was lost.
"""

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import grpc

from embereye.process.grpc_server import control_channel
from embereye.process.http.bearer import bearer
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import SERVER_NAMES, Identity, Role
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.v1.types_pb2 import Kind, Level, Sense, Term
from harness.calls import cancel_and_wait
from harness.eventually import eventually
from harness.records.diary import Diary
from harness.records.witness import ENDLESS, OPTIONS, Lit
from harness.servers.identity import shard

RETRY_SECONDS = 0.1
PERIOD = 0.1  # seconds between two readings
STALLED = 1.5  # seconds without an acknowledgement before a stream is closed
ADMITTED_SECONDS = 1.0  # a stream that stays open this long was admitted
MOVES = 2  # moves without a pause, as our clients do: back home, and on to the shard that is named there
GRACE = 0.2  # seconds for acknowledgements in flight after a DRAIN that names no device


def smoke(name: str, fleet: str, zone: str, since_ns: int, episode: str = "", device: str = "") -> EvidenceItem:
    """Build a report of smoke that raises an alarm without further signs."""
    return EvidenceItem(
        id=name, episode=episode or name, fleet=fleet, device=device or zone, zone=zone, kind=Kind.KIND_SMOKE,
        sense=Sense.SENSE_SENSOR, level=Level.LEVEL_ALARM, score=0.9, since_ns=since_ns, until_ns=since_ns,
        why=[Term(name="smoke", value=80, threshold=60, unit="%")],
    )  # fmt: skip


class EvidenceProber:
    """A client that reports to the hub as a shard does: one sign per zone, resent until it is acknowledged."""

    def __init__(
        self,
        address: str | Callable[[], str],
        namespace: str,
        diary: Diary,
        credentials: Credentials,
        *,
        rate: float = 20.0,
        zones: int = 0,
    ) -> None:
        """`address` is the hub's control port, or a function returning it; `credentials` are of `identity(namespace)`.

        `zones`: number of zones to use in turn, each of which is reset before its next sign; 0: a new zone per sign.
        """
        self.sent: dict[str, str] = {}  # id → zone
        self.acknowledged: dict[str, int] = {}  # id → when, nanoseconds since the Unix epoch
        self.resent = 0
        self.connections = 0
        self._address = address
        self._credentials = credentials
        self._fleet = self.identity(namespace).fleet
        self._diary = diary
        self._rate = rate
        self._zones = zones
        self._items: dict[str, EvidenceItem] = {}
        self._stopping = False

    @staticmethod
    def identity(namespace: str) -> Identity:
        """The identity in its certificate."""
        return shard(f"{namespace}/sensors/prober", "prober")

    async def run(self) -> None:
        """Report until `finish`, then until everything is acknowledged."""
        while not self._stopping or len(self.acknowledged) < len(self.sent):
            address = self._address if isinstance(self._address, str) else self._address()
            link = control_channel(address, SERVER_NAMES[Role.HUB], self._credentials, OPTIONS)
            call = EvidenceStub(link).Report()
            sending = asyncio.ensure_future(self._send(call))
            try:
                await call.wait_for_connection()
                self.connections += 1
                async for response in call:
                    now = time.time_ns()
                    for name in response.acknowledged:
                        self.acknowledged.setdefault(name, now)
            except grpc.aio.AioRpcError as error:
                self._diary.note_change("evidence prober", f"cut off: {error.code().name}: {error.details()}")
            finally:
                await cancel_and_wait(sending)
                call.cancel()
                await link.close()
            await asyncio.sleep(RETRY_SECONDS)

    def finish(self) -> None:
        """Report nothing new."""
        self._stopping = True

    async def _send(self, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]") -> None:
        hello = ShardHello(fleet=self._fleet, shard="prober", epoch=1)
        await call.write(ReportRequest(hello=hello))
        # The latest acknowledged reports are resent as well: a hub must not count them twice.
        repeat = [*list(self.acknowledged)[-10:], *(name for name in self.sent if name not in self.acknowledged)]
        self.resent += len(repeat)
        for name in repeat:
            await call.write(ReportRequest(evidence=self._items[name]))
        while not self._stopping:
            await call.write(ReportRequest(evidence=self._next()))
            await asyncio.sleep(1 / self._rate)
        while len(self.acknowledged) < len(self.sent):
            await asyncio.sleep(0.05)
        await call.done_writing()

    def _next(self) -> EvidenceItem:
        number = len(self.sent) + 1
        place = number % self._zones if self._zones else number
        item = smoke(f"prober-{number}", self._fleet, f"evidence-{place:05}", time.time_ns(), device=f"d-{place}")
        self.sent[item.id] = item.zone
        self._items[item.id] = item
        return item

    def lit(self, names: Iterable[str]) -> list[Lit]:
        """The fires of these reports. Each lasts until the next report in its zone."""
        sent: dict[str, list[int]] = defaultdict(list)
        for item in self._items.values():
            sent[item.zone].append(item.since_ns)
        return [
            Lit(item.zone, item.since_ns, min((at for at in sent[item.zone] if at > item.since_ns), default=ENDLESS))
            for item in map(self._items.__getitem__, names)
        ]


async def is_admitted(home: str, token: str) -> bool:
    """True if the shard that answers at `home` admits a sender with `token`."""
    async with grpc.aio.insecure_channel(home, options=OPTIONS) as link:
        call = IngestStub(link).Stream(metadata=bearer(token))
        try:
            async with asyncio.timeout(ADMITTED_SECONDS):
                return await call.code() == grpc.StatusCode.OK
        except TimeoutError:
            return True
        finally:
            call.cancel()


@dataclass
class IngestProber:
    """A declared device that sends a reading every 100 ms and retains unacknowledged ones."""

    device: str
    home: str  # host:port of the fleet's Service
    diary: Diary
    acks: list[float] = field(default_factory=list)  # monotonic seconds at which the watermark rose
    watermark: int = 0
    taken_back: list[str] = field(default_factory=list)  # acknowledged readings that a shard requested again
    drains: int = 0
    targets: list[str] = field(default_factory=list)  # addresses to which shards redirected it
    rejections: list[str] = field(default_factory=list)
    token: str = ""  # the token it authenticates with; a change redials; empty: none
    _made: int = 0
    _waiting: deque[Reading] = field(default_factory=deque)
    _epoch: int = field(default_factory=time.time_ns)
    _sent: int = 0
    _moves: list[str] = field(default_factory=list)  # redirects on this stream
    _handed_over: str | None = None  # redirect that named this device: that shard has the readings in flight
    moves: list[tuple[float, float]] = field(
        default_factory=list
    )  # (time, gap) of each first acknowledgement after a move
    _stream: int = 0  # streams so far
    _drained: tuple[int, float] | None = None  # (stream, time) of a DRAIN, until another stream acknowledges
    _news: asyncio.Event = field(default_factory=asyncio.Event)  # set when there is something to do

    async def run(self) -> None:
        """Send until cancelled."""
        making = asyncio.ensure_future(self._make())
        target, moves = self.home, 0
        try:
            while True:
                before = self.watermark
                sent_to = await self._talk(target)
                moves = 1 if self.watermark > before else moves + 1
                if sent_to is None or moves > MOVES:
                    await asyncio.sleep(RETRY_SECONDS)
                target = sent_to or self.home
        finally:
            making.cancel()

    async def _make(self) -> None:
        while True:
            self._made += 1
            self._waiting.append(Reading(sequence=self._made, time_ns=time.time_ns(), smoke_adc=280, gas_adc=400))
            self._news.set()
            await asyncio.sleep(PERIOD)

    async def _talk(self, target: str) -> str | None:
        """Run one stream. Returns its redirect, empty for home, or None if the stream failed."""
        self._sent = self.watermark
        self._stream += 1
        self._moves.clear()
        self._handed_over = None
        link = grpc.aio.insecure_channel(target, options=OPTIONS)
        token = self.token
        call = IngestStub(link).Stream(metadata=bearer(token))
        reading = asyncio.ensure_future(self._read(call))
        reading.add_done_callback(lambda _: self._news.set())
        try:
            started = time.monotonic()
            drained = 0.0
            while not reading.done():
                self._news.clear()
                if self.token != token:
                    self.diary.note_change(self.device, "the token changed: redialling")
                    return ""
                now = time.monotonic()
                if not self._moves:
                    await self._write(call)
                else:
                    drained = drained or now
                    if self._handed_over is not None or self.watermark >= self._sent or now - drained > GRACE:
                        return self._target()
                latest = max(started, self.acks[-1] if self.acks else started)
                if now - latest > STALLED:
                    self.diary.note_change(self.device, f"{target} acknowledges nothing: redialling")
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD):
                        await self._news.wait()
            if not reading.cancelled():
                await reading
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
            reason = getattr(error, "details", lambda: "")() or type(error).__name__
            self.diary.note_change(self.device, f"{target}: {reason}")
        finally:
            await cancel_and_wait(reading)
            call.cancel()
            await link.close()
        return self._target() if self._moves else None

    def _target(self) -> str:
        """The next address. A redirect of this device counts more than one of the whole stream."""
        return self._moves[-1] if self._handed_over is None else self._handed_over

    async def _write(self, call: "grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]") -> None:
        fresh = [reading for reading in self._waiting if reading.sequence > self._sent]
        if fresh:
            batch = DeviceBatch(device=self.device, epoch=self._epoch, readings=fresh)
            self._sent = fresh[-1].sequence
            async with asyncio.timeout(STALLED):
                await call.write(IngestRequest(devices=[batch]))

    async def _read(self, call: "grpc.aio.StreamStreamCall[IngestRequest, IngestResponse]") -> None:
        async for response in call:
            match response.WhichOneof("body"):
                case "ack":
                    for mark in response.ack.watermarks:
                        self._acknowledge(mark.epoch, mark.sequence)
                case "drain":
                    self.drains += 1
                    if response.drain.target:
                        self.targets.append(response.drain.target)
                    self.diary.note_change(
                        self.device, f"DRAIN to {response.drain.target or 'home'}: {response.drain.reason}"
                    )
                    self._moves.append(response.drain.target)
                    if self.device in response.drain.devices:
                        self._handed_over = response.drain.target
                    self._drained = self._drained or (self._stream, time.monotonic())
                    self._news.set()
                case "rejected":
                    self.rejections.append(response.rejected.reason)
                    self.diary.note(self.device, f"rejected: {response.rejected.reason}", "bad")

    def _acknowledge(self, epoch: int, sequence: int) -> None:
        if epoch != self._epoch:
            return
        if sequence < self.watermark:
            self.taken_back.append(f"{self.device}: {self.watermark} was acknowledged, then only {sequence}")
            return
        if sequence > self.watermark:
            now = time.monotonic()
            before = self.acks[-1] if self.acks else now
            if self._drained and self._drained[0] != self._stream:
                since = f"{now - self._drained[1]:.3f} s after DRAIN, {now - before:.3f} s after the last one"
                self.diary.note(self.device, f"acknowledged up to {sequence}: {since}")
                self.moves.append((now, now - before))
                self._drained = None
            elif not self.acks or now - before > 2 * PERIOD:
                self.diary.note(self.device, f"acknowledged up to {sequence}: {now - before:.3f} s after the last one")
            self.watermark = sequence
            self.acks.append(now)
            self._news.set()
        while self._waiting and self._waiting[0].sequence <= sequence:
            self._waiting.popleft()

    def gap(self, since: float, until: float) -> float:
        """The longest time without an acknowledgement that overlaps the span. All values are in monotonic seconds."""
        before = [moment for moment in self.acks if moment <= since]
        within = [moment for moment in self.acks if since < moment <= until]
        moments = [before[-1] if before else since, *within, until]
        return max(later - earlier for earlier, later in pairwise(moments))

    def moved(self, since: float, until: float) -> float:
        """The longest time between the acknowledgements of two shards in that span, in seconds; 0 without a move."""
        return max((late for moment, late in self.moves if since < moment <= until), default=0.0)

    async def well(self, limit: float) -> None:
        """Wait until all but the newest readings are acknowledged. AssertionError after `limit` seconds."""
        since = time.monotonic()
        await eventually(
            lambda: self.acks and self.acks[-1] > since and len(self._waiting) <= 5,
            limit,
            lambda: f"{self.device}: {len(self._waiting)} readings are unacknowledged",
        )
