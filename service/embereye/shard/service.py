"""The process around a shard's core: servers, assignment, stream to the hub, shutdown.

`ShardProcess` owns servers, assignment, spool, reporter and canaries, and drives a `ShardCore` of sensors or cameras.
An assignment in force goes to the core's `apply`. Reports come back through `ShardContext.report` into the spool, from
which the `Reporter` sends them to the hub.

On a request to stop it waits until a successor answers under its name, if one is expected. Then it is no longer ready,
the core redirects its senders and finishes its work, and the reporter sends the rest. If the hub does not accept it and
the spool would be lost with the process, it waits longer, or hands the reports over to another shard.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc
from prometheus_client.core import Metric

from embereye.margins import Margin
from embereye.process.daemon import Daemon
from embereye.process.grpc_server import Service
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.guard import caller
from embereye.process.tasks import Tasks, first_of
from embereye.process.telemetry.metric import ScrapedCollector
from embereye.process.telemetry.runtime_metrics import SHARD_DISK
from embereye.process.telemetry.tracing import open_tracer
from embereye.process.timing.clock import now_ns, stepped_ns
from embereye.process.tls.folder import ServerTls
from embereye.shard.assignment import Assignments, follow_file
from embereye.shard.candidate.reports import CandidateReports
from embereye.shard.evidence.canary import Canaries, Fire
from embereye.shard.evidence.inheritance import hand_over, inherited, refusal
from embereye.shard.evidence.reporter import Reporter
from embereye.shard.evidence.spool import Spool
from embereye.shard.links import Links, PeerAddress
from embereye.shard.margins import Margins
from embereye.shard.metrics import shard_metrics
from embereye.shard.selftests import RunningTest, ShardTests
from embereye.shard.succession import await_successor
from embereye.shard.tracing import EpisodeTraces
from embereye.units import counted
from embereye.v1.evidence_pb2 import (
    ClosedLedger,
    Coverage,
    DeviceStatus,
    EvidenceItem,
    Ledger,
    MarkedPlaces,
    SelfTests,
    ShardHello,
)
from embereye.v1.shard_pb2 import (
    Assignment,
    AssignResponse,
    IdentifyRequest,
    IdentifyResponse,
    InheritRequest,
    InheritResponse,
    Load,
    ShardStatus,
    StatusRequest,
)
from embereye.v1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server
from embereye.zone.canary import PREFIX, is_canary

logger = logging.getLogger(__name__)
CLOSED_LIMIT = 20_000  # closed ledgers that are remembered while the hub is down
MARGINS_SECONDS = 0.3  # to send margins at the end; the rest is lost
INHERIT_SECONDS = 2.0  # between two attempts to hand reports over to other shards


@dataclass(frozen=True)
class ShardOptions:
    """The options of a shard process."""

    shard: str
    assignment: Path
    hub: str  # host:port of the hub's control port
    data: Path | None  # None: the spool is in memory
    host: str
    grpc_port: int
    tcp_port: int
    metrics_port: int
    shared_grpc_port: int  # 0: none
    shared_tcp_port: int  # 0: none
    linger: float = 0.0  # seconds to wait at the end for the hub, if the spool is lost with the process
    successor: float = 0.0  # seconds to continue at the end until another process answers under this shard's name
    control_port: int = 0
    identity: Path | None = None  # folder of its certificate; None: control is served only on loopback
    tls: Path | None = None  # folder of the certificate for devices; None: without TLS
    client_ca: Path | None = None  # folder of the authorities of devices' certificates; None: they need none
    tls_port: int = 0  # port of the text listener with TLS; 0: none
    shared_tls_port: int = 0  # 0: none
    http_port: int = 0  # port of readings by HTTP, which shards on one machine share; 0: none
    outer_host: str = ""  # host on which devices reach the gRPC port and the shared ports; empty: `host`


class ShardCore(Protocol):
    """The specific part of a kind of shard; the process around it does the rest. All methods run on the event loop."""

    def services(self) -> Iterable[Service]:
        """Its own gRPC services."""

    async def start(self, context: "ShardContext") -> None:
        """Open listeners and start background work."""

    def apply(self, assignment: Assignment) -> None:
        """Own exactly the assignment's devices, with its settings, from now on."""

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned device."""

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """Yield what `devices` returns, one status at a time; devices may be added and released meanwhile."""

    def covered(self, now_ns: int) -> tuple[int, int]:
        """The number of devices that `devices` returns, and the number of them that are covered."""

    def load(self) -> Load:
        """The load over the last seconds."""

    def degraded(self) -> str:
        """The requested task besides watching that it cannot do, and why; '' if it does everything."""

    def metrics(self) -> Iterator[Metric]:
        """Yield its metric families."""

    def note_marked(self, places: MarkedPlaces) -> None:
        """Replace the places of the fleet's marked false alarms."""

    def note_self_tests(self, tests: Mapping[str, RunningTest]) -> None:
        """Replace the running self-tests, by device."""

    async def light_canary(self, fire: Fire) -> None:
        """Give the signs of `fire` like a device, until it is reported."""

    async def drain(self, successor: str = "") -> None:
        """Redirect senders, to `successor` (host:port) if no other shard owns their devices; finish work in flight."""

    async def stop(self) -> None:
        """Close everything."""


@dataclass(frozen=True)
class ShardContext:
    """The parts of the process that its core uses."""

    options: ShardOptions
    tasks: Tasks
    report: Callable[[EvidenceItem], None]
    coverage_changed: Callable[[], None]
    closed: Callable[[str, Ledger], None] = lambda device, ledger: (
        None
    )  # called with the final ledger of a released device
    links: Links = field(default_factory=Links)
    traces: EpisodeTraces | None = None  # None: alarms are not traced
    tls: ServerTls | None = None  # certificate for devices
    margin: Callable[[Margin], None] = lambda margin: None  # called with each margin of a device
    candidates: CandidateReports | None = None  # gets the differences of a candidate


class ShardProcess(ShardServicer, ScrapedCollector):
    """Runs one core: `await ShardProcess(core, options).run(stop)`."""

    def __init__(self, core: ShardCore, options: ShardOptions) -> None:
        self._core = core
        self._options = options
        self._credentials = Credentials(options.identity) if options.identity else None
        self._tls = ServerTls(options.tls, options.client_ca) if options.tls else None
        self._links = Links(options.hub, self._credentials)
        self._assignments = Assignments()
        self._assignments.subscribe(self._apply)
        self._spool = Spool(options.data / f"{options.shard}.spool" if options.data else None)
        self._reporter = Reporter(
            self._links,
            self._spool,
            hello=self._hello,
            coverage=self._coverage,
            statuses=lambda now: map(self._tests.add_to, core.statuses(now)),
            ledgers_stored=self._forget_ledgers,
            marked=core.note_marked,
            tests=self._note_tests,
        )
        self._tests = ShardTests(self._reporter.coverage_changed)
        self._canaries = Canaries(
            options.shard,
            settings=lambda: self._assignments.current.canary,
            ready=lambda: self._reporter.accepts_canaries and not self._draining,
            light=core.light_canary,
            report=self._reporter.report,
        )
        self._margins = Margins(lambda: (self._assignments.current.fleet, options.shard))
        self._candidates = CandidateReports(lambda: (self._assignments.current.fleet, options.shard))
        self._closed: list[tuple[int, ClosedLedger]] = []  # with the time at which they were closed
        self._final = False
        self._lingering = ""  # why it has not ended yet
        self._successor = ""  # host:port where senders continue; '': at the fleet's service
        self._draining = False
        self._started_ns = now_ns()
        services = [Service(add_ShardServicer_to_server, self, "embereye.v1.Shard"), *core.services()]
        self._daemon = Daemon(
            services, credentials=self._credentials, tls=self._tls, share_port=bool(options.shared_grpc_port)
        )

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until `stop` is set or a task fails; return the exit code."""
        options, daemon = self._options, self._daemon
        daemon.registry.register(self)
        shared = [options.shared_grpc_port] if options.shared_grpc_port else []
        daemon.listen(options.outer_host or options.host, options.grpc_port, *shared)
        daemon.listen_control(options.host, options.control_port)
        await daemon.open_pages(options.host, options.metrics_port)
        tracer = open_tracer("embereye-shard", **{"service.instance.id": options.shard})
        traces = EpisodeTraces(tracer) if tracer else None
        if traces:
            self._reporter.acknowledged = traces.acknowledged
        async with Tasks() as tasks:
            context = ShardContext(
                options, tasks, self._reporter.report, self._reporter.coverage_changed, self._close_ledger, self._links,
                traces, self._tls, self._margins.add, self._candidates,
            )  # fmt: skip
            await self._core.start(context)
            await daemon.start(tasks)
            tasks.start(follow_file(options.assignment, self._assignments), name="follow-assignment")
            tasks.start(self._reporter.run(), name="report-to-hub")
            tasks.start(self._canaries.run(), name="canaries")
            tasks.start(self._margins.run(self._links), name="margins")
            tasks.start(self._candidates.run(self._links), name="candidate")
            await daemon.set_serving(True)
            logger.info(
                "shard %s ready: gRPC %d, control %d, metrics %d",
                options.shard, options.grpc_port, options.control_port, options.metrics_port,
            )  # fmt: skip
            await first_of(stop.wait(), tasks.failed.wait())
            if not tasks.failed.is_set():
                await first_of(self._await_successor(), tasks.failed.wait())
            failed = tasks.failed.is_set()
            await daemon.grpc.set_serving(False)
            self._draining = True
            await self._core.drain(self._successor)
            self._final = True
            self._spool.discard(PREFIX)  # canaries are useless after the end
            await self._deliver_rest()
            await daemon.stop()
            await self._core.stop()
        self._spool.close()
        if traces:
            traces.close()
        return int(failed)

    async def _await_successor(self) -> None:
        """Continue until another process answers as this shard; a second signal ends that."""
        current, seconds = self._assignments.current, self._options.successor
        if not (seconds and current.devices and current.own.control):
            return
        address = PeerAddress(current.own.shard, current.own.control)
        if await await_successor(address, self._identify(), self._links.peer, seconds):
            self._successor = current.own.grpc
            logger.info("another process answers as %s: this one ends", self._options.shard)
        else:
            logger.warning(
                "no other process answers as %s after %g s: %s not watched until one does",
                self._options.shard, seconds, counted(len(current.devices), "device is", "devices are"),
            )  # fmt: skip

    async def _deliver_rest(self) -> None:
        """Send everything that the hub should still get."""
        if not await self._reporter.flush(0.5):
            await self._linger()
        await self._margins.drain(self._links, MARGINS_SECONDS)
        await self._candidates.drain(self._links)

    async def _linger(self) -> None:
        """Wait for the hub to accept the reports, if the spool is lost at the end; a second signal ends that."""
        seconds = self._options.linger
        self._spool.save()
        if not seconds and not self._spool.is_durable():
            logger.error("reports about %s are lost: the hub did not accept them", self._spool.subjects())
            return
        if not seconds:
            logger.warning(
                "%s in the spool until this shard starts again",
                counted(len(self._spool), "report stays", "reports stay"),
            )
            return
        self._lingering = f"this shard ends once the hub has accepted its reports about {self._spool.subjects()}"
        logger.warning("%s, after %g s at most", self._lingering, seconds)
        deadline = time.monotonic() + seconds
        peers = [PeerAddress(peer.shard, peer.control) for peer in self._assignments.current.peers]
        while (left := deadline - time.monotonic()) > 0:
            if heir := await hand_over(self._spool, peers, self._links.peer):
                logger.warning("%s has taken over all reports: this shard ends", heir)
                return
            if await self._reporter.flush(min(left, INHERIT_SECONDS)):
                logger.warning("the hub has all reports: this shard ends")
                return
        logger.error("reports about %s are lost: the hub did not accept them in %g s", self._spool.subjects(), seconds)

    def _apply(self, assignment: Assignment) -> None:
        self._links.hub_found = assignment.hub
        self._core.apply(assignment)
        self._core.note_self_tests(self._tests.running)
        self._reporter.coverage_changed()

    def _note_tests(self, tests: SelfTests) -> None:
        self._tests.announce(tests)
        self._core.note_self_tests(self._tests.running)

    def _hello(self) -> ShardHello:
        current = self._assignments.current
        return ShardHello(fleet=current.fleet, shard=self._options.shard, epoch=current.epoch)

    def _coverage(self) -> Coverage:
        current, now = self._assignments.current, now_ns()
        return Coverage(
            fleet=current.fleet,
            shard=self._options.shard,
            epoch=current.epoch,
            time_ns=now,
            clock_ns=now + stepped_ns(),
            closed=[closed for _, closed in self._closed],
            final=self._final,
            canary=self._canaries.plan(ending=self._draining),
        )

    def _close_ledger(self, device: str, ledger: Ledger) -> None:
        self._closed.append((now_ns(), ClosedLedger(device=device, ledger=ledger)))
        del self._closed[:-CLOSED_LIMIT]

    def _forget_ledgers(self, time_ns: int) -> None:
        self._closed = [entry for entry in self._closed if entry[0] > time_ns]

    def _status(self, *, devices: bool) -> ShardStatus:
        current = self._assignments.current
        now = now_ns()
        declared, covered = self._core.covered(now)
        return ShardStatus(
            fleet=current.fleet,
            shard=self._options.shard,
            epoch=current.epoch,
            ready=bool(current.epoch) and not self._draining,
            draining=self._draining,
            devices=map(self._tests.add_to, self._core.devices(now)) if devices else (),
            declared=declared,
            covered=covered,
            load=self._core.load(),
            started_ns=self._started_ns,
            evidence_spooled=len(self._spool),
            degraded="; ".join(filter(None, (self._core.degraded(), self._tls_problem(), *self._report_problems()))),
        )

    def _report_problems(self) -> tuple[str, str, str]:
        """The problems of the spool, of the stream to the hub, and of the shutdown; '' for each that is fine."""
        return self._spool.degraded, self._reporter.refusal if len(self._spool) else "", self._lingering

    def _tls_problem(self) -> str:
        """The problem of the shard's certificate for devices; '' if it is fine."""
        if self._tls is None:
            return ""
        if self._tls.failing:
            return f"spec.access.tls: {self._tls.failing.why}"
        if self._tls.current.expires < time.time():
            return "spec.access.tls: the certificate for devices has expired: renew it in its Secret"
        return ""

    async def Assign(self, request: Assignment, context: object) -> AssignResponse:
        """Accept an assignment from the operator."""
        reason = self._foreign(request) or self._assignments.offer(request)
        return AssignResponse(accepted=not reason, epoch=self._assignments.current.epoch, reason=reason)

    def _foreign(self, assignment: Assignment) -> str:
        """The reason why an assignment is not for this shard, by its certificate; '' if it is."""
        me = self._credentials.identity if self._credentials else None
        if me is None or (assignment.fleet, assignment.shard) == (me.fleet, me.name):
            return ""
        return f"this is {me.name} of {me.fleet}, but the assignment is for {assignment.shard} of {assignment.fleet}"

    async def Status(self, request: StatusRequest, context: object) -> ShardStatus:
        """Return this shard's status to the operator."""
        return self._status(devices=request.devices)

    async def Identify(self, request: IdentifyRequest, context: object) -> IdentifyResponse:
        """Identify this process to another one of the same shard."""
        return self._identify()

    def _identify(self) -> IdentifyResponse:
        epoch = self._assignments.current.epoch
        return IdentifyResponse(started_ns=self._started_ns, epoch=epoch, ready=bool(epoch) and not self._draining)

    async def Inherit(
        self, request: InheritRequest, context: "grpc.aio.ServicerContext[InheritRequest, InheritResponse]"
    ) -> InheritResponse:
        """Take over the reports of a shard that ends: spool them here, and send them to the hub."""
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this shard is ending, too")
        if reason := refusal(request.reports, self._assignments.current.fleet, len(self._spool)):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        identity = caller(context)
        for report in request.reports:
            if not is_canary(report.device):  # it would prove nothing about the shard that ended
                self._reporter.report(inherited(report, identity.name) if identity else report)
        logger.warning("took over %s of a shard that ends", counted(len(request.reports), "report"))
        return InheritResponse(taken=[report.id for report in request.reports])

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of every shard, then those of the core."""
        yield from shard_metrics(self._status(devices=False), self._reporter, self._spool)
        yield from self._canaries.metrics()
        yield from self._margins.metrics()
        yield from SHARD_DISK.metrics(self._options.data)
        yield from self._core.metrics()
