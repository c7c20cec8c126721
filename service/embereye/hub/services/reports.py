"""Shards' streams of reports: their identity, their acknowledgements, and their end.

A shard opens one call and begins with a hello. One task reads its requests in order. Another sends responses, which the
`Stream` collects, so that acknowledgements wait for no request. If identities are proved, a shard can report only for
itself.

Subclasses make reports durable and only then acknowledge them. If they had to drop one (`resend_due`), the stream ends
once reports can be stored again; the shard then dials again and repeats its unacknowledged reports.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from embereye.hub.coverage.skew import Skew
from embereye.process.identity.guard import caller
from embereye.process.identity.names import Identity
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2 import (
    Coverage,
    EvidenceItem,
    MarkedPlaces,
    ReportRequest,
    ReportResponse,
    SelfTests,
    ShardHello,
)
from embereye.v1.evidence_pb2_grpc import EvidenceServicer

ACKNOWLEDGED_AT_ONCE = 500  # ids in one response
MAX_CHARACTERS = 600  # of names that form one key, at four bytes each: a PostgreSQL index row has 2,704 bytes
END_SECONDS = 1.0  # for responses on their way when the hub ends a stream

Context = grpc.aio.ServicerContext[ReportRequest, ReportResponse]
Ended = tuple[grpc.StatusCode, str]


class Stream:
    """One shard's stream: its identity, and the responses to send."""

    def __init__(self, hello: ShardHello, caller: Identity | None = None) -> None:
        """`caller` is the proved identity of the shard; None: none is needed."""
        self.hello = hello
        self.fleet = hello.fleet  # the fleet that it works for now
        self.caller = caller
        self.skew = Skew()
        self.resend_due = False  # reports were rejected while the store failed: the shard must send them again
        self._durable: list[str] = []
        self._news: dict[str, Any] = {}  # values to be sent, by the field of their response
        self._failing = ""  # why nothing can be stored
        self._over = False
        self._wake = asyncio.Event()

    def identity_problem(self, request: ReportRequest) -> str:
        """The reason why the caller is not allowed to send this; '' if it is: a shard reports for itself only."""
        if self.caller is None:
            return ""
        body = getattr(request, request.WhichOneof("body") or "hello")
        # A shard without an assignment knows no fleet yet.
        if body.fleet not in {"", self.caller.fleet}:
            return f"{self.caller} of {self.caller.fleet} reports for {body.fleet[:300]}: a shard reports for itself"
        if (shard := getattr(body, "shard", self.caller.name)) != self.caller.name:
            return f"{self.caller} of {self.caller.fleet} reports as {shard[:300]}: a shard reports for itself"
        return ""

    @property
    def shard(self) -> str:
        """The name of the shard; the proved one, if one is needed."""
        return self.caller.name if self.caller else self.hello.shard

    def sign(self, item: EvidenceItem) -> None:
        """Replace the sender that `item` names by the proved one; without one, only add a missing fleet."""
        item.fleet = self.caller.fleet if self.caller else item.fleet or self.hello.fleet
        if self.caller and item.HasField("canary"):
            item.canary.shard = self.caller.name

    def acknowledge(self, name: str) -> None:
        """Note that the report `name` is durable."""
        self._durable.append(name)
        self._wake.set()

    def ledgers_durable(self, time_ns: int) -> None:
        """Note that ledgers are durable: those closed by coverage up to `time_ns`."""
        self.send("ledgers_ns", max(self._news.get("ledgers_ns", 0), time_ns))

    def send(self, field: str, value: MarkedPlaces | SelfTests | int | str) -> None:
        """Send the shard a response with the latest value of this field, instead of one that was not sent yet."""
        self._news[field] = value
        self._wake.set()

    def send_failing(self, why: str) -> None:
        """Send the shard the reason `why` its reports are not acknowledged; '': they are again."""
        if why != self._failing:
            self._failing = why
            self.send("failing", why)

    def end(self) -> None:
        """Let `responses` end after the last response."""
        self._over = True
        self._wake.set()

    async def responses(self) -> AsyncIterator[ReportResponse]:
        """Yield the responses to send, until `end`."""
        yield ReportResponse(canaries=True)  # immediately: it shows the shard that the hub is there
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            while self._durable:
                part, self._durable = self._durable[:ACKNOWLEDGED_AT_ONCE], self._durable[ACKNOWLEDGED_AT_ONCE:]
                yield ReportResponse(acknowledged=part)
            news, self._news = self._news, {}
            for field, value in news.items():
                yield ReportResponse(**{field: value})


class ReportServicer(EvidenceServicer):
    """Serves any number of shards. Subclasses store the reports."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._closing = asyncio.Event()

    async def admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        """Acknowledge `item` on `stream` once it is durable; its shard sent it at `sent_ns`."""
        raise NotImplementedError

    def note_coverage(self, stream: Stream, coverage: Coverage) -> None:
        """Record the state of a shard's devices."""

    def on_begin(self, stream: Stream) -> None:
        """Handle a new stream."""

    async def on_end(self, stream: Stream) -> None:
        """Handle the end of a stream."""

    @property
    def failing(self) -> str:
        """The reason why reports cannot be stored and are not acknowledged; '' if they can."""
        raise NotImplementedError

    @property
    def redial_reason(self) -> str:
        """The message for a shard that must dial again, after a failure, and repeat unacknowledged reports."""
        raise NotImplementedError

    @property
    def streams(self) -> int:
        """The number of connected shards."""
        return len(self._streams)

    def close(self) -> None:
        """End every stream soon; the shards dial again."""
        self._closing.set()

    # The stubs expect a generator; acknowledgements do not wait for requests, so this method writes to the context.
    async def Report(  # type: ignore[override]
        self, request_iterator: AsyncIterator[ReportRequest], context: Context
    ) -> None:
        """Receive evidence and coverage; acknowledge evidence when it is durable."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return
        if first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message on a stream must be hello")
        stream = Stream(first.hello, caller(context))
        if problem := stream.identity_problem(first):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        self._streams.add(stream)
        self.on_begin(stream)
        async with beside(self._acknowledge(stream, context), name="evidence-acknowledge") as writing:
            try:
                async with (
                    beside(self._read(stream, request_iterator), name="evidence-read") as reading,
                    beside(self._closing.wait(), name="evidence-closing") as closing,
                ):
                    await asyncio.wait({reading, writing, closing}, return_when=asyncio.FIRST_COMPLETED)
                    # A broken stream ends in the same way as one that its shard ended.
                    over = reading.done() and not reading.cancelled() and reading.exception() is None
                    why = reading.result() if over else None
                if why:
                    # gRPC never sends a status that overtakes a response, and the shard would wait for ever.
                    stream.end()
                    await asyncio.wait({writing}, timeout=END_SECONDS)
                    await context.abort(*why)
            finally:
                self._streams.discard(stream)
                await self.on_end(stream)

    @staticmethod
    async def _acknowledge(stream: Stream, context: Context) -> None:
        with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            async for response in stream.responses():
                await context.write(response)

    async def _read(self, stream: Stream, requests: AsyncIterator[ReportRequest]) -> Ended | None:
        """Read until the shard ends the stream; return a status if the hub ends it instead."""
        async for request in requests:
            if problem := stream.identity_problem(request):
                return grpc.StatusCode.PERMISSION_DENIED, problem
            body = request.WhichOneof("body")
            if body == "evidence":
                stream.sign(request.evidence)
            if _overlong(request):
                return (
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"names of more than {MAX_CHARACTERS} characters are not allowed",
                )
            match body:
                case "evidence":
                    await self.admit_report(stream, request.evidence, request.sent_ns)
                case "coverage":
                    self.note_coverage(stream, request.coverage)
                    stream.send_failing(self.failing)
                case "hello":
                    stream.hello = request.hello
            if stream.resend_due and not self.failing:
                return grpc.StatusCode.UNAVAILABLE, self.redial_reason
        return None


def _overlong(request: ReportRequest) -> bool:
    """True if its names are longer than any shard's, and too long for keys in every database."""
    if request.WhichOneof("body") == "evidence":
        item = request.evidence
        keys = (len(item.id), len(item.episode), len(item.device), len(item.fleet) + len(item.zone))
        return max(keys) > MAX_CHARACTERS
    coverage = request.coverage
    devices = max((len(status.id) + len(status.zone) for status in coverage.devices), default=0)
    closed = max((len(ledger.device) for ledger in coverage.closed), default=0)
    return len(coverage.fleet) + len(coverage.shard) + max(devices, closed) > MAX_CHARACTERS
