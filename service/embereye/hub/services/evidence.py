"""The Evidence service: shards report, the hub acknowledges what is durable."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator

import grpc

from embereye.hub.hub import Hub
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceServicer

logger = logging.getLogger(__name__)
ACKNOWLEDGED_AT_ONCE = 500  # ids in one response
FLUSH_SECONDS = 0.3  # to store what was taken when the hub ends
SKEW_NS = 2_000_000_000  # less is delay or does no harm
SKEW_SAMPLES = 10  # coverage reports, the quickest of which tells the difference between two clocks

Context = grpc.aio.ServicerContext[ReportRequest, ReportResponse]


class Clocks:
    """How far each shard's clock is behind the hub's: evidence is put on the hub's time before zones compare it."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[int]] = {}
        self._wrong: set[tuple[str, str]] = set()

    def observe(self, coverage: Coverage, now_ns: int) -> None:
        """Learn from a report that was made just now."""
        key = coverage.fleet, coverage.shard
        self._samples.setdefault(key, deque(maxlen=SKEW_SAMPLES)).append(now_ns - coverage.time_ns)
        wrong = bool(self.behind_ns(*key))
        if wrong and key not in self._wrong:
            seconds = self.behind_ns(*key) / 1e9
            logger.warning(
                "the clock of shard %s is %.1f s %s the hub's: its evidence is corrected; keep clocks synchronised",
                coverage.shard, abs(seconds), "behind" if seconds > 0 else "ahead of",
            )  # fmt: skip
        (self._wrong.add if wrong else self._wrong.discard)(key)

    def behind_ns(self, fleet: str, shard: str) -> int:
        """What to add to the shard's times; 0 where the clocks agree."""
        # Delay only ever adds: the smallest difference is the nearest to the truth.
        behind = self.difference_ns(fleet, shard)
        return behind if abs(behind) > SKEW_NS else 0

    def difference_ns(self, fleet: str, shard: str) -> int:
        """By how much the shard's clock differs from the hub's, and the least delay of its reports with it."""
        return min(self._samples.get((fleet, shard), (0,)))

    def wrong(self) -> int:
        """How many shards' clocks are wrong."""
        return len(self._wrong)


class Stream:
    """One shard's stream: what it sent, what is to be acknowledged."""

    def __init__(self, hello: ShardHello) -> None:
        self.hello = hello
        self.owed = False  # reports were turned away while the store failed: the shard must send them again
        self._durable: list[str] = []
        self._ledgers_ns = 0
        self._wake = asyncio.Event()

    def acknowledge(self, name: str) -> None:
        """Note that the report `name` is durable."""
        self._durable.append(name)
        self._wake.set()

    def ledgers_durable(self, time_ns: int) -> None:
        """Note that the ledgers that coverage up to `time_ns` closed are durable."""
        self._ledgers_ns = max(self._ledgers_ns, time_ns)
        self._wake.set()

    async def responses(self) -> AsyncIterator[ReportResponse]:
        """The acknowledgements to send, for ever."""
        yield ReportResponse(canaries=True)  # at once: it tells the shard that the hub is there
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._durable:
                part, self._durable = self._durable[:ACKNOWLEDGED_AT_ONCE], self._durable[ACKNOWLEDGED_AT_ONCE:]
                yield ReportResponse(acknowledged=part)
            if self._ledgers_ns:
                yield ReportResponse(ledgers_ns=self._ledgers_ns)
                self._ledgers_ns = 0


class EvidenceService(EvidenceServicer):
    """Serves any number of shards."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.clocks = Clocks()
        self.streams = 0
        self._closing = asyncio.Event()

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
        stream = Stream(first.hello)
        self.streams += 1
        async with beside(self._acknowledge(stream, context), name="evidence-acknowledge") as writing:
            try:
                async with (
                    beside(self._read(stream, request_iterator), name="evidence-read") as reading,
                    beside(self._closing.wait(), name="evidence-closing") as closing,
                ):
                    await asyncio.wait({reading, writing, closing}, return_when=asyncio.FIRST_COMPLETED)
                    # A stream that broke off is ended in the same way as one that its shard ended.
                    over = reading.done() and not reading.cancelled() and reading.exception() is None
                    why = reading.result() if over else ""
                if why:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, why)
            finally:
                self.streams -= 1
                self._hub.coverage.keep_ledgers()
                if self._closing.is_set() and await self._hub.committer.flush(FLUSH_SECONDS):
                    # What was taken is stored by now; a shard that is told so need not send it again.
                    await asyncio.sleep(0.02)

    @staticmethod
    async def _acknowledge(stream: Stream, context: Context) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            async for response in stream.responses():
                await context.write(response)

    async def _read(self, stream: Stream, requests: AsyncIterator[ReportRequest]) -> str:
        """Read until the shard ends the stream; returns why the hub ends it instead."""
        async for request in requests:
            match request.WhichOneof("body"):
                case "evidence":
                    await self._admit_report(stream, request.evidence)
                case "coverage":
                    self.clocks.observe(request.coverage, time.time_ns())
                    self._hub.coverage.report(request.coverage, stream.ledgers_durable)
                    self._hub.canaries.expect(request.coverage)
                case "hello":
                    stream.hello = request.hello
            if stream.owed and not self._hub.committer.failing:
                return "the hub's database can be written again: dial again, and send what was not acknowledged"
        return ""

    async def _admit_report(self, stream: Stream, item: EvidenceItem) -> None:
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
        behind = self.clocks.behind_ns(item.fleet, stream.hello.shard)
        item.since_ns += behind
        item.until_ns += behind
        if item.HasField("canary"):
            item.canary.lit_ns += self.clocks.difference_ns(item.fleet, stream.hello.shard)
        self._hub.inbox.admit(item, stream.acknowledge)
