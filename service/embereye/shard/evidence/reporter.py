"""The shard's line to the hub: spooled evidence and coverage up, acknowledgements down."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import grpc

from embereye.process.grpc_server import converse
from embereye.process.tasks import UnrequestedCancellationError, no_stray_cancellation
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
    ShardHello,
)
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
PART_BYTES = 1 << 14  # some milliseconds of work on devices' statuses
COVERAGE_PERIOD = 1.0  # seconds between coverage reports
STEADY_SECONDS = 2.0  # a stream that the hub ends sooner, for what it was sent, is no success: so would the next
# A hub that is started anew is back within seconds, and fires wait for it: so long it is looked for often. Afterwards,
# and where it is there and refuses, attempts cost it more than they bring.
SOON_SECONDS = 30.0
SOON_PAUSE, PAUSE = 0.5, 3.0  # seconds between two attempts, at the longest
REASONS = 10  # that are remembered, each of which is logged once
# By which a hub that is there says that it takes no reports of this shard until something is changed.
REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}


def split(coverage: Coverage, statuses: Iterable[DeviceStatus]) -> Iterator[Coverage]:
    """A report of `coverage`, and of devices as `statuses` makes them, in messages of about PART_BYTES.

    Between two of them everything else has its turn, here and in the hub. What the shard has let go of is in the last
    one: once that is durable all of it is.
    """
    part, size = _beginning(coverage), 0
    for status in chain(coverage.devices, statuses):
        if size > PART_BYTES:
            yield part
            part, size = _beginning(coverage), 0
            part.clock_ns = 0  # what comes later would tell less of the clocks
        part.devices.append(status)
        size += status.ByteSize()
    part.more = False
    part.closed.extend(coverage.closed)
    yield part


def _beginning(coverage: Coverage) -> Coverage:
    part = Coverage(fleet=coverage.fleet, shard=coverage.shard, epoch=coverage.epoch, time_ns=coverage.time_ns)
    part.clock_ns, part.final, part.more = coverage.clock_ns, coverage.final, True
    part.canary.CopyFrom(coverage.canary)
    return part


class Reporter:
    """Keeps one stream to the hub open; evidence that could not be delivered waits in the spool.

    `hello`, `coverage` and `statuses`, of the devices, are asked whenever the stream needs them, so they always tell
    what is true now; statuses are made a few at a time. `told` hears up to which coverage report the closed ledgers are
    durable in the hub, `marked` all places where cameras of the fleet saw what people marked as a false alarm.
    """

    def __init__(
        self,
        links: Links,
        spool: Spool,
        *,
        hello: Callable[[], ShardHello],
        coverage: Callable[[], Coverage],
        statuses: Callable[[int], Iterator[DeviceStatus]] = lambda _: iter(()),
        told: Callable[[int], None] = lambda time_ns: None,
        marked: Callable[[MarkedPlaces], None] = lambda places: None,
    ) -> None:
        self._links = links
        self._spool = spool
        self._hello = hello
        self._coverage = coverage
        self._statuses = statuses
        self._wake = asyncio.Event()
        self._told = told
        self._marked = marked
        self._told_ns = 0
        self._coverage_due = 0.0
        self.acknowledged: Callable[[Sequence[str]], None] | None = None  # hears which reports the hub has
        self.connected = False
        self.welcomes_canaries = False  # the hub that is connected said so; another one would tell people of them
        self.delivered = 0  # reports acknowledged since the start, of devices
        self._refused = ""  # why the hub ended the latest stream; '' where it was not for a lasting reason
        self._failing = ""  # why the hub that is connected can store nothing, as it says

    @property
    def refusal(self) -> str:
        """Why the hub, which is there, acknowledges no reports; '' where it does or cannot be reached."""
        why = self._failing or self._refused
        return f"hub {self._links.hub_address} acknowledges no reports: {why}" if why else ""

    def report(self, evidence: EvidenceItem) -> None:
        """Spool `evidence` and send it as soon as the hub is there."""
        self._spool.put(evidence)
        self._wake.set()

    def coverage_changed(self) -> None:
        """Send coverage now rather than when it is next due."""
        self._coverage_due = 0.0
        self._wake.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        soon, later = Backoff(floor=0.1, cap=SOON_PAUSE), Backoff(floor=0.1, cap=PAUSE)
        seen = time.monotonic()  # the hub, or our start
        told, sent_away = set[str](), False  # why streams ended since one was good; whether the latest one was not
        failed = 0  # attempts since the hub was reached
        while True:
            link, renewed, since = self._links.hub(failed), self._links.renewed, 0.0
            lost = False
            try:
                with no_stray_cancellation("the stream"):  # by what cannot be read of the spool now
                    async for response in converse(EvidenceStub(link).Report(), partial(self._send, renewed)):
                        if not self.connected:
                            self.connected, since = True, time.monotonic()
                            if not sent_away:
                                told.clear()
                                self._refused = ""
                                logger.info("hub %s: connected, %s", self._links.hub_address, self._waiting())
                        self._hear(response)
                reason, sent_away = "" if renewed.is_set() else "the hub closed the stream", False
                self._refused = ""
            except UnrequestedCancellationError as error:
                reason, sent_away = str(error), False
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                lost = error.code() == grpc.StatusCode.UNAVAILABLE
                brief = self.connected and time.monotonic() - since < STEADY_SECONDS
                sent_away = brief and not lost
                if error.code() in REFUSALS:
                    self._refused = error.details() or error.code().name
                elif not sent_away:
                    self._refused = ""
            finally:
                self.connected = self.welcomes_canaries = False
                self._failing = ""
                await link.close(None)
            failed = 0 if since else failed + 1
            if since:
                seen = time.monotonic()
            if since and not sent_away:
                soon.reset()
                later.reset()
            if reason and reason not in told:
                logger.warning("hub %s: %s; trying again, %s", self._links.hub_address, reason, self._waiting())
                told = {reason, *list(told)[: REASONS - 1]}
            backoff = soon if lost and time.monotonic() - seen < SOON_SECONDS else later
            await asyncio.sleep(backoff.next())

    def _waiting(self) -> str:
        return f"{counted(len(self._spool), 'report')} spooled"

    def _hear(self, response: ReportResponse) -> None:
        self._spool.acknowledge(list(response.acknowledged))
        if self.acknowledged is not None and response.acknowledged:
            self.acknowledged(response.acknowledged)
        if self._refused and response.acknowledged:
            self._refused = ""
            self._tell_acknowledging()
        self.delivered += sum(not is_canary(name) for name in response.acknowledged)
        self.welcomes_canaries |= response.canaries
        if response.ledgers_ns:
            self._told_ns = response.ledgers_ns
            self._told(response.ledgers_ns)
        if response.HasField("marked"):
            self._marked(response.marked)
        if response.HasField("failing"):
            before, self._failing = self._failing, response.failing
            if self._failing and not before:
                logger.warning("%s; they wait here, %s", self.refusal, self._waiting())
            elif before and not self._failing:
                self._tell_acknowledging()

    def _tell_acknowledging(self) -> None:
        logger.warning("hub %s acknowledges reports again, %s", self._links.hub_address, self._waiting())

    async def _send(
        self, renewed: asyncio.Event, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]"
    ) -> None:
        """Write what is to be sent, until the shard has another certificate to prove itself with."""
        await call.write(ReportRequest(hello=self._hello()))
        self._coverage_due = 0.0
        sent = 0
        while not renewed.is_set():
            self._wake.clear()
            sent = await self._send_evidence(call, sent)
            now = time.monotonic()
            if now >= self._coverage_due:
                self._coverage_due = now + until_aligned(COVERAGE_PERIOD)
                coverage = self._coverage()
                for part in split(coverage, self._statuses(coverage.time_ns)):
                    await call.write(ReportRequest(coverage=part))
                    await asyncio.sleep(0)
                    sent = await self._send_evidence(call, sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._coverage_due - time.monotonic())):
                    await self._wake.wait()
        await call.done_writing()

    async def _send_evidence(self, call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]", sent: int) -> int:
        """Write what was spooled after number `sent`; the number of the latest one."""
        while batch := self._spool.after(sent):
            for number, evidence in batch:
                sent = number
                if is_canary(evidence.device) and not self.welcomes_canaries:
                    self._spool.acknowledge([evidence.id])  # from before; what it was to prove has failed
                    continue
                await call.write(ReportRequest(evidence=evidence, sent_ns=now_ns()))
        return sent

    async def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything spooled is acknowledged; True if it is.

        The last word on ledgers is waited for, too, where the hub is there: nobody else will tell it.
        """
        asked_ns, deadline = now_ns(), time.monotonic() + timeout
        self.coverage_changed()
        while time.monotonic() < deadline and (len(self._spool) or (self.connected and self._told_ns < asked_ns)):
            await asyncio.sleep(0.01)
        return not len(self._spool)
