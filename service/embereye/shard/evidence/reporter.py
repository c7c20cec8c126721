"""The shard's stream to the hub: spooled evidence and coverage up, acknowledgements down.

`run` reopens the stream whenever it ends. `_send` writes evidence as soon as it is spooled, and coverage every second
or when it changes. `_handle` acts on responses: it removes acknowledged reports from the spool. A large coverage report
is split into parts, so that evidence does not wait for it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import grpc

from embereye.process.condition import Condition
from embereye.process.grpc_server import converse
from embereye.process.reason import reason_of
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation, raise_if_cancelled
from embereye.process.timing.aligned_sleep import until_aligned
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns
from embereye.shard.evidence.spool import Spool
from embereye.shard.links import Links
from embereye.units import counted
from embereye.v1.evidence_pb2 import (
    Coverage,
    DeviceStatus,
    EvidenceItem,
    MarkedPlaces,
    ReportRequest,
    ReportResponse,
    SelfTests,
    ShardHello,
)
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
PART_BYTES = 1 << 14  # of one part of a coverage report, which takes some milliseconds to make
COVERAGE_PERIOD = 1.0  # seconds between coverage reports
STEADY_SECONDS = 2.0  # a stream that the hub ends sooner because of its content does not count as a success
# A restarted hub is back within seconds, and fires wait for it, so it is dialled often at first. Later, or if the hub
# refuses the stream, frequent attempts would only cost it time.
SOON_SECONDS = 30.0
SOON_PAUSE, PAUSE = 0.5, 3.0  # longest pause between two attempts, in seconds
AGAIN = "hub %s acknowledges reports again, %s"
REASONS = 10  # remembered reasons, each of which is logged once
# Codes of a hub that will accept no reports of this shard until something is changed.
REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}


def split(coverage: Coverage, statuses: Iterable[DeviceStatus]) -> Iterator[Coverage]:
    """Split `coverage` and the devices' `statuses` into messages of about PART_BYTES.

    Between two parts, other work has its turn, here and in the hub. Closed ledgers are in the last part: once it is
    durable, the whole report is.
    """
    part, size = _part(coverage), 0
    for status in chain(coverage.devices, statuses):
        if size > PART_BYTES:
            yield part
            part, size = _part(coverage), 0
            part.clock_ns = 0  # only the first part compares the clocks, because later ones are delayed
        part.devices.append(status)
        size += status.ByteSize()
    part.more = False
    part.closed.extend(coverage.closed)
    yield part


def _part(coverage: Coverage) -> Coverage:
    part = Coverage(fleet=coverage.fleet, shard=coverage.shard, epoch=coverage.epoch, time_ns=coverage.time_ns)
    part.clock_ns, part.final, part.more = coverage.clock_ns, coverage.final, True
    part.canary.CopyFrom(coverage.canary)
    return part


@dataclass(eq=False)
class Reporter:
    """Keeps one stream to the hub open; evidence that could not be delivered waits in the spool.

    `hello`, `coverage` and `statuses` are called whenever the stream needs them, so they always return the present
    state; statuses are made a few at a time. `ledgers_stored` is called with the time of the coverage report up to
    which closed ledgers are durable in the hub, `marked` with all places of the fleet's false alarms, `tests` with the
    fleet's self-tests.
    """

    links: Links
    spool: Spool
    hello: Callable[[], ShardHello]
    coverage: Callable[[], Coverage]
    statuses: Callable[[int], Iterator[DeviceStatus]] = lambda _: iter(())
    ledgers_stored: Callable[[int], None] = lambda time_ns: None
    marked: Callable[[MarkedPlaces], None] = lambda places: None
    tests: Callable[[SelfTests], None] = lambda tests: None
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stored_ns: int = field(default=0, init=False)
    _coverage_due: float = field(default=0.0, init=False)
    # called with the ids of acknowledged reports
    acknowledged: Callable[[Sequence[str]], None] | None = field(default=None, init=False)
    connected: bool = field(default=False, init=False)
    # the connected hub accepts them; an older one would notify people of them
    accepts_canaries: bool = field(default=False, init=False)
    delivered: int = field(default=0, init=False)  # devices' reports that were acknowledged since the start
    _refused: str = field(default="", init=False)  # why the hub ended the latest stream; '' if that was temporary
    # the connected hub cannot store anything
    _failing: Condition = field(default_factory=lambda: Condition(logger, first_only=True), init=False)

    @property
    def refusal(self) -> str:
        """The reason why the hub acknowledges no reports although it can be reached; else ''."""
        why = self._failing.why or self._refused
        return f"hub {self.links.hub_address} acknowledges no reports: {why}" if why else ""

    def report(self, evidence: EvidenceItem) -> None:
        """Spool `evidence`, and send it as soon as the hub is connected."""
        self.spool.put(evidence)
        self._wake.set()

    def coverage_changed(self) -> None:
        """Send coverage now instead of when it is due."""
        self._coverage_due = 0.0
        self._wake.set()

    async def run(self) -> None:
        """Keep the stream open until cancelled."""
        soon, later = Backoff(floor=0.1, cap=SOON_PAUSE), Backoff(floor=0.1, cap=PAUSE)
        reached = time.monotonic()  # when the hub was last reached, or this started
        logged, rejected = set[str](), False  # reasons logged since a good stream; the hub rejected the latest stream
        failed = 0  # attempts since the hub was last reached
        while True:
            link, renewed, since = self.links.hub(failed), self.links.renewed, 0.0
            lost = False
            try:
                with no_stray_cancellation("the stream"):  # for example if the spool cannot be read now
                    async for response in converse(EvidenceStub(link).Report(), partial(self._send, renewed)):
                        if not self.connected:
                            self.connected, since = True, time.monotonic()
                            if not rejected:
                                logged.clear()
                                self._refused = ""
                                logger.info("hub %s: connected, %s", self.links.hub_address, self._waiting())
                        self._handle(response)
                reason, rejected = "" if renewed.is_set() else "the hub closed the stream", False
                self._refused = ""
            except UnrequestedCancellationError as error:
                reason, rejected = str(error), False
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
                lost = error.code() == grpc.StatusCode.UNAVAILABLE
                brief = self.connected and time.monotonic() - since < STEADY_SECONDS
                rejected = brief and not lost
                if error.code() in REFUSALS:
                    self._refused = error.details() or error.code().name
                elif not rejected:
                    self._refused = ""
            finally:
                self.connected = self.accepts_canaries = False
                self._failing.clear()
                await link.close(None)
            raise_if_cancelled()  # gRPC may swallow it
            failed = 0 if since else failed + 1
            if since:
                reached = time.monotonic()
            if since and not rejected:
                soon.reset()
                later.reset()
            if reason and reason not in logged:
                logger.warning("hub %s: %s; trying again, %s", self.links.hub_address, reason, self._waiting())
                logged = {reason, *list(logged)[: REASONS - 1]}
            backoff = soon if lost and time.monotonic() - reached < SOON_SECONDS else later
            await asyncio.sleep(backoff.next())

    def _waiting(self) -> str:
        return f"{counted(len(self.spool), 'report')} spooled"

    def _handle(self, response: ReportResponse) -> None:
        hub = self.links.hub_address
        self.spool.acknowledge(list(response.acknowledged))
        if self.acknowledged is not None and response.acknowledged:
            self.acknowledged(response.acknowledged)
        if self._refused and response.acknowledged:
            self._refused = ""
            logger.warning(AGAIN, hub, self._waiting())
        self.delivered += sum(not is_canary(name) for name in response.acknowledged)
        self.accepts_canaries |= response.canaries
        if response.ledgers_ns:
            self._stored_ns = response.ledgers_ns
            self.ledgers_stored(response.ledgers_ns)
        if response.HasField("marked"):
            self.marked(response.marked)
        if response.HasField("tests"):
            self.tests(response.tests)
        if response.HasField("failing"):
            if response.failing:
                sentence = "hub %s acknowledges no reports: %s; %s"
                self._failing.fail(response.failing, sentence, hub, response.failing, self._waiting())
            else:
                self._failing.clear(AGAIN, hub, self._waiting())

    async def _send(
        self, renewed: asyncio.Event, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]"
    ) -> None:
        """Write evidence and coverage, until the shard's certificate is renewed."""
        await call.write(ReportRequest(hello=self.hello()))
        self._coverage_due = 0.0
        sent = 0
        while not renewed.is_set():
            self._wake.clear()
            sent = await self._send_evidence(call, sent)
            now = time.monotonic()
            if now >= self._coverage_due:
                self._coverage_due = now + until_aligned(COVERAGE_PERIOD)
                coverage = self.coverage()
                for part in split(coverage, self.statuses(coverage.time_ns)):
                    await call.write(ReportRequest(coverage=part))
                    await asyncio.sleep(0)
                    sent = await self._send_evidence(call, sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._coverage_due - time.monotonic())):
                    await self._wake.wait()
        await call.done_writing()

    async def _send_evidence(self, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]", sent: int) -> int:
        """Write the reports that were spooled after number `sent`; return the number of the latest one."""
        while batch := self.spool.after(sent):
            for number, evidence in batch:
                sent = number
                if is_canary(evidence.device) and not self.accepts_canaries:
                    self.spool.acknowledge([evidence.id])  # from an earlier stream, and too late now
                    continue
                await call.write(ReportRequest(evidence=evidence, sent_ns=now_ns()))
        return sent

    async def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything spooled is acknowledged; True if it is.

        If the hub is connected, also wait until it has stored the final ledgers, which only this shard can report.
        """
        asked_ns, deadline = now_ns(), time.monotonic() + timeout
        self.coverage_changed()
        while time.monotonic() < deadline and (len(self.spool) or (self.connected and self._stored_ns < asked_ns)):
            await asyncio.sleep(0.01)
        return not len(self.spool)
