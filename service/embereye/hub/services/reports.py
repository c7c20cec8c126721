"""Shards' streams of reports, whoever takes them: who speaks, what is acknowledged, how a stream ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from embereye.hub.coverage.skew import Skew
from embereye.process.identity.guard import caller
from embereye.process.identity.names import Identity
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem, MarkedPlaces, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceServicer

ACKNOWLEDGED_AT_ONCE = 500  # ids in one response
MOST_CHARACTERS = 600  # of names that are one key, of four bytes each: a row of PostgreSQL's indexes has 2,704
END_SECONDS = 1.0  # for the responses on their way when the hub ends a stream

Context = grpc.aio.ServicerContext[ReportRequest, ReportResponse]
Ended = tuple[grpc.StatusCode, str]


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
        self._failing = ""  # why nothing can be stored
        self._failing_told = ""
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

    def tell_failing(self, why: str) -> None:
        """Have the shard know `why` its reports are not acknowledged; with '' that they are again."""
        if why != self._failing:
            self._failing = why
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
            if self._failing_told != self._failing:
                self._failing_told = self._failing
                yield ReportResponse(failing=self._failing)


class ReportServicer(EvidenceServicer):
    """Serves any number of shards. What becomes of what they say is for subclasses."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._closing = asyncio.Event()

    async def admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        """Have `item` acknowledged on `stream` once it is durable; `sent_ns` is when it was sent, by its shard."""
        raise NotImplementedError

    def note_coverage(self, stream: Stream, coverage: Coverage) -> None:
        """Learn what a shard's devices do."""

    def begun(self, stream: Stream) -> None:
        """A shard has dialled."""

    async def ended(self, stream: Stream) -> None:
        """A shard's stream is over."""

    @property
    def failing(self) -> str:
        """Why reports cannot be stored, and are not acknowledged; '' where they can."""
        raise NotImplementedError

    @property
    def again(self) -> str:
        """What is said to a shard that has to dial again and send what was not acknowledged, as `failing` is over."""
        raise NotImplementedError

    @property
    def streams(self) -> int:
        """How many shards are connected."""
        return len(self._streams)

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
        self.begun(stream)
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
                await self.ended(stream)

    @staticmethod
    async def _acknowledge(stream: Stream, context: Context) -> None:
        with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            async for response in stream.responses():
                await context.write(response)

    async def _read(self, stream: Stream, requests: AsyncIterator[ReportRequest]) -> Ended | None:
        """Read until the shard ends the stream; returns why the hub ends it instead."""
        async for request in requests:
            if problem := stream.foreign(request):
                return grpc.StatusCode.PERMISSION_DENIED, problem
            body = request.WhichOneof("body")
            if body == "evidence":
                request.evidence.fleet = request.evidence.fleet or stream.hello.fleet
            if _overlong(request):
                return grpc.StatusCode.INVALID_ARGUMENT, f"names of more than {MOST_CHARACTERS} characters are not kept"
            match body:
                case "evidence":
                    await self.admit_report(stream, request.evidence, request.sent_ns)
                case "coverage":
                    self.note_coverage(stream, request.coverage)
                    stream.tell_failing(self.failing)
                case "hello":
                    stream.hello = request.hello
            if stream.owed and not self.failing:
                return grpc.StatusCode.UNAVAILABLE, self.again
        return None


def _overlong(request: ReportRequest) -> bool:
    """Whether it has names that no shard gives, and that cannot be keys in every database."""
    if request.WhichOneof("body") == "evidence":
        item = request.evidence
        keys = (len(item.id), len(item.episode), len(item.device), len(item.fleet) + len(item.zone))
        return max(keys) > MOST_CHARACTERS
    coverage = request.coverage
    devices = max((len(status.id) + len(status.zone) for status in coverage.devices), default=0)
    closed = max((len(one.device) for one in coverage.closed), default=0)
    return len(coverage.fleet) + len(coverage.shard) + max(devices, closed) > MOST_CHARACTERS
