"""The Evidence service: shards report, the hub acknowledges what is durable."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator

import grpc

from embereye.hub.hub import Hub
from embereye.process.identity.guard import caller
from embereye.process.identity.names import Identity
from embereye.process.tasks import beside
from embereye.units import DAY, SECOND
from embereye.v1.evidence_pb2 import (
    Coverage,
    EvidenceItem,
    MarkedPlaces,
    ReportRequest,
    ReportResponse,
    ShardHello,
)
from embereye.v1.evidence_pb2_grpc import EvidenceServicer

logger = logging.getLogger(__name__)
ACKNOWLEDGED_AT_ONCE = 500  # ids in one response
END_SECONDS = 1.0  # for the responses on their way when the hub ends a stream
FLUSH_SECONDS = 0.3  # to store what was taken when the hub ends
RECOVERED = "the hub's database can be written again: dial again, and send what was not acknowledged"
SKEW_NS = 2_000_000_000  # less is delay or does no harm
OLDEST_NS = 7 * DAY  # that a report may have waited for the hub
SKEW_SAMPLES = 10  # coverage reports, the quickest of which tells the difference between two clocks

Context = grpc.aio.ServicerContext[ReportRequest, ReportResponse]


class Skew:
    """How far a shard's wall clock is from the hub's. It is only told: what is compared is the age of what was seen."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=SKEW_SAMPLES)
        self.wrong = False

    def observe(self, coverage: Coverage, now_ns: int) -> None:
        """Learn from a report that was made just now, at `now_ns` of the hub's wall clock."""
        if not coverage.clock_ns:
            return
        # Delay only ever adds: the smallest difference is the nearest to the truth.
        self._samples.append(now_ns - coverage.clock_ns)
        behind = min(self._samples)
        wrong = abs(behind) > SKEW_NS
        if wrong and not self.wrong:
            logger.warning(
                "the clock of shard %s is %.1f s %s the hub's: alarms are not affected; keep clocks synchronised",
                coverage.shard, abs(behind) / 1e9, "behind" if behind > 0 else "ahead of",
            )  # fmt: skip
        self.wrong = wrong


class Stream:
    """One shard's stream: what it sent, what is to be acknowledged."""

    def __init__(self, hello: ShardHello, caller: Identity | None = None) -> None:
        """`caller` proved to be at the other end; None: it need not."""
        self.hello = hello
        self.fleet = hello.fleet  # that it works for now
        self.caller = caller
        self.skew = Skew()
        self.owed = False  # reports were turned away while the store failed: the shard must send them again
        self._durable: list[str] = []
        self._ledgers_ns = 0
        self._marked: MarkedPlaces | None = None  # to be told; None: nothing new
        self._over = False
        self._wake = asyncio.Event()

    def foreign(self, request: ReportRequest) -> str:
        """Why the one who calls may not say this: a shard speaks for itself alone. '' where it may."""
        if self.caller is None:
            return ""
        body = getattr(request, request.WhichOneof("body") or "hello")
        # A shard without an assignment knows no fleet yet.
        if body.fleet not in {"", self.caller.fleet}:
            return f"{self.caller} of {self.caller.fleet} reports for {body.fleet[:300]}: a shard reports for itself"
        if (shard := getattr(body, "shard", self.caller.name)) != self.caller.name:
            return f"{self.caller} of {self.caller.fleet} reports as {shard[:300]}: a shard reports for itself"
        return ""

    def acknowledge(self, name: str) -> None:
        """Note that the report `name` is durable."""
        self._durable.append(name)
        self._wake.set()

    def ledgers_durable(self, time_ns: int) -> None:
        """Note that the ledgers that coverage up to `time_ns` closed are durable."""
        self._ledgers_ns = max(self._ledgers_ns, time_ns)
        self._wake.set()

    def tell_marked(self, places: MarkedPlaces) -> None:
        """Have the shard know all places where its cameras saw what was marked as a false alarm."""
        self._marked = places
        self._wake.set()

    def end(self) -> None:
        """Let `responses` end once it has nothing more to say."""
        self._over = True
        self._wake.set()

    async def responses(self) -> AsyncIterator[ReportResponse]:
        """The acknowledgements to send, until `end`."""
        yield ReportResponse(canaries=True)  # at once: it tells the shard that the hub is there
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            while self._durable:
                part, self._durable = self._durable[:ACKNOWLEDGED_AT_ONCE], self._durable[ACKNOWLEDGED_AT_ONCE:]
                yield ReportResponse(acknowledged=part)
            if self._ledgers_ns:
                yield ReportResponse(ledgers_ns=self._ledgers_ns)
                self._ledgers_ns = 0
            if self._marked is not None:
                marked, self._marked = self._marked, None
                yield ReportResponse(marked=marked)


class EvidenceService(EvidenceServicer):
    """Serves any number of shards."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._streams: set[Stream] = set()
        self._closing = asyncio.Event()
        hub.false_alarms.subscribe(self._tell_marked)

    @property
    def streams(self) -> int:
        """How many shards are connected."""
        return len(self._streams)

    @property
    def clocks_wrong(self) -> int:
        """How many of their wall clocks differ from the hub's."""
        return sum(stream.skew.wrong for stream in self._streams)

    def close(self) -> None:
        """End every stream soon: the shards dial again."""
        self._closing.set()

    # The stubs ask for a generator; acknowledgements do not wait for requests, so this writes by itself.
    async def Report(  # type: ignore[override]
        self, request_iterator: AsyncIterator[ReportRequest], context: Context
    ) -> None:
        """Take evidence and coverage; acknowledge evidence when it is durable."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return
        if first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message on a stream must be hello")
        stream = Stream(first.hello, caller(context))
        if problem := stream.foreign(first):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        self._streams.add(stream)
        self._tell_marked_to(stream)
        async with beside(self._acknowledge(stream, context), name="evidence-acknowledge") as writing:
            try:
                async with (
                    beside(self._read(stream, request_iterator), name="evidence-read") as reading,
                    beside(self._closing.wait(), name="evidence-closing") as closing,
                ):
                    await asyncio.wait({reading, writing, closing}, return_when=asyncio.FIRST_COMPLETED)
                    # A stream that broke off is ended in the same way as one that its shard ended.
                    over = reading.done() and not reading.cancelled() and reading.exception() is None
                    why = reading.result() if over else None
                if why:
                    # A status that overtakes a response on its way is never sent, and the shard would wait for ever.
                    stream.end()
                    await asyncio.wait({writing}, timeout=END_SECONDS)
                    await context.abort(*why)
            finally:
                self._streams.discard(stream)
                self._hub.coverage.keep_ledgers()
                if self._closing.is_set() and await self._hub.committer.flush(FLUSH_SECONDS):
                    # What was taken is stored by now; a shard that is told so need not send it again.
                    await asyncio.sleep(0.02)

    def _tell_marked(self) -> None:
        for stream in self._streams:
            self._tell_marked_to(stream)

    def _tell_marked_to(self, stream: Stream) -> None:
        stream.tell_marked(self._hub.false_alarms.places(stream.fleet))

    @staticmethod
    async def _acknowledge(stream: Stream, context: Context) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            async for response in stream.responses():
                await context.write(response)

    async def _read(self, stream: Stream, requests: AsyncIterator[ReportRequest]) -> tuple[grpc.StatusCode, str] | None:
        """Read until the shard ends the stream; returns why the hub ends it instead."""
        async for request in requests:
            if problem := stream.foreign(request):
                return grpc.StatusCode.PERMISSION_DENIED, problem
            match request.WhichOneof("body"):
                case "evidence":
                    await self._admit_report(stream, request.evidence, request.sent_ns)
                case "coverage":
                    stream.skew.observe(request.coverage, time.time_ns())
                    if stream.fleet != request.coverage.fleet:  # it had no assignment when it said hello
                        stream.fleet = request.coverage.fleet
                        self._tell_marked_to(stream)
                    put_statuses_on_timeline(request.coverage, self._hub.timeline.now_ns())
                    self._hub.coverage.report(request.coverage, stream.ledgers_durable)
                    self._hub.canaries.expect(request.coverage)
                case "hello":
                    stream.hello = request.hello
            if stream.owed and not self._hub.committer.failing:
                return grpc.StatusCode.UNAVAILABLE, RECOVERED
        return None

    async def _admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        if not item.id:
            self._hub.inbox.counters.unusable += 1
            logger.warning("shard %s sent evidence without an id: ignored", stream.hello.shard)
            return
        while not self._hub.inbox.has_room():
            if self._hub.committer.failing:
                self._hub.inbox.counters.refused += 1
                stream.owed = True
                return
            await self._hub.inbox.wait_for_room()
        item.fleet = item.fleet or stream.hello.fleet
        put_on_timeline(item, sent_ns, self._hub.timeline.now_ns())
        self._hub.inbox.admit(item, stream.acknowledge)


def put_on_timeline(item: EvidenceItem, sent_ns: int, now_ns: int) -> None:
    """Put the times of a report that came at `now_ns` on the hub's timeline, by how old they were when it was sent.

    `sent_ns` is when that was on the clock of the report, 0: unknown. Nothing was seen later than now, and what claims
    to be older than OLDEST_NS, or to be from before it, is by a clock that cannot be believed: it counts as seen now.
    """
    ahead = now_ns - sent_ns if sent_ns else 0
    item.until_ns = _believable(item.until_ns + ahead, now_ns)
    item.since_ns = min(_believable(item.since_ns + ahead, now_ns), item.until_ns)
    if item.HasField("canary"):
        item.canary.lit_ns += ahead


def put_statuses_on_timeline(coverage: Coverage, now_ns: int) -> None:
    """Put when devices were heard and analysed on the hub's timeline, where the shard's is another one."""
    ahead = now_ns - coverage.time_ns
    if abs(ahead) < SECOND:
        return
    for status in coverage.devices:
        if status.heard_ns:
            status.heard_ns = _believable(status.heard_ns + ahead, now_ns)
        if status.analysed_ns:
            status.analysed_ns = _believable(status.analysed_ns + ahead, now_ns)


def _believable(time_ns: int, now_ns: int) -> int:
    return time_ns if now_ns - OLDEST_NS <= time_ns <= now_ns else now_ns
