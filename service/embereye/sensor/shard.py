"""The sensor shard: data of declared devices in, evidence and coverage out.

Lines arrive in `sessions` (TCP) and batches in `grpc.ingest`; both find the `SensorDevice` by name and analyse its data
through the `TickBatcher`. Its signs come back in `_observe`, become evidence reports in `Episodes`, and go to the hub.
`apply` makes the shard own exactly the devices of an assignment: it creates and releases `SensorDevice`s, and Ingest
hands over those that leave. A periodic task notices silent devices, broken sensors and finished recordings.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from prometheus_client.core import Metric

from embereye.detect.sensing.bands import BandTable
from embereye.process.grpc_server import Service
from embereye.process.heap import collect_garbage, freeze_heap
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.clock import now_ns
from embereye.process.timing.running import Running
from embereye.sensor.archive import Archive, Telemetry
from embereye.sensor.canary import SensorCanary
from embereye.sensor.candidate import SensorCandidate
from embereye.sensor.device.readings import ClearBands
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.fleet import Fleet
from embereye.sensor.grpc.batches import analyse_batches
from embereye.sensor.grpc.commands import CommandService
from embereye.sensor.grpc.ingest import Ingest
from embereye.sensor.listeners import Listeners
from embereye.sensor.margins import margins_of
from embereye.sensor.messages import MessageRouter
from embereye.sensor.metrics import device_metrics, shard_metrics
from embereye.sensor.recorder import LineRecorder
from embereye.sensor.relay import Relays
from embereye.sensor.relay_service import RelayService
from embereye.sensor.sessions import Sessions
from embereye.sensor.source import Listening, ReadingSource
from embereye.sensor.sources import ReadingSources
from embereye.sensor.tick import TickBatcher
from embereye.shard.access import DeviceAccess
from embereye.shard.candidate.current import current_candidate
from embereye.shard.evidence.canary import Fire
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.shard.links import Links, PeerAddress
from embereye.shard.meter import Meter
from embereye.shard.selftests import RunningTest
from embereye.shard.service import ShardContext
from embereye.units import MINUTE, SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, MarkedPlaces
from embereye.v1.shard_pb2 import Assignment, Commands, Load, SensorSettings
from embereye.wire.device.commands import START
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
UNDECLARED_NS = MINUTE  # nanoseconds that they are shown after their last message
TICK_SECONDS = 0.25  # between two checks of silence and coverage
INSPECTION_TICKS = 20  # ticks between two inspections of one device's sensors
RECORDINGS_SECONDS = 0.5  # to deliver recordings to the hub when draining; the rest waits on the disk
HANDOVER_SECONDS = 0.2  # for senders to act on DRAIN before their streams are closed


class SensorShard:
    """Implements `embereye.shard.service.ShardCore` for sensors."""

    def __init__(
        self, telemetry: Telemetry | None = None, sources: Mapping[str, Callable[[], ReadingSource]] | None = None
    ) -> None:
        """`telemetry` is the folder for raw readings; None: they are not stored.

        `sources` make the sources of readings other than text lines and gRPC, by the scheme of a device's source.
        """
        self._telemetry = telemetry
        self._archive_problem = ""  # why raw readings are not stored although they should be
        self.commands = Commands(start=START)  # the default until an assignment arrives: have devices stream at once
        self.garbage: Counter[str] = Counter()  # invalid lines, by reason
        bands = BandTable()
        self._canary = SensorCanary(bands)
        self.fleet = Fleet(bands, self._canary.device_named, self.garbage)
        self.batcher = TickBatcher(bands, self._observe)
        self.clear: ClearBands | None = None  # None: no assignment yet
        self.access = DeviceAccess()
        self.running = Running()
        self._episodes = Episodes("")
        self._meter = Meter()
        self._sessions = Sessions(self)
        self.relays = Relays(self._dial_peer, self._sessions.count_dropped, self._sessions.tasks)
        self._ingest = Ingest(self)
        self._listeners = Listeners(self._sessions.protocol)
        self._context: ShardContext | None = None
        self._covered: dict[str, bool] = {}
        router = MessageRouter(self.fleet, self.access, self._dial_peer)
        self._sources = ReadingSources(sources or {}, self.fleet, self.batcher, self._observe, router)
        self._recorder: LineRecorder | None = None  # None: there is no folder for recordings

    def services(self) -> Iterable[Service]:
        """The gRPC services: Ingest, commands to text devices, and relayed lines of other shards."""
        return (
            self._ingest.service(),
            CommandService(self).service(),
            RelayService(self._sessions, self._sources.router.receive_pushed).service(),
        )

    @property
    def links(self) -> Links:
        """The channels to other shards."""
        return self._context.links if self._context else Links()

    @property
    def ports(self) -> list[int]:
        """The ports of the text listeners, the shard's own first."""
        return self._listeners.ports

    async def start(self, context: ShardContext) -> None:
        """Open the text listeners; they serve every device of the fleet, owned here or not."""
        freeze_heap()
        self._context = context
        self._sources.start(context.tasks, context.options.shard)
        if context.tls:
            context.tls.subscribe(self._recheck_senders)
        await self._listeners.open(context)
        if port := context.options.http_port:
            at = Listening(context.options.outer_host or context.options.host, port, context.tls)
            await self._sources.listen(at)
        if context.options.data:
            self._recorder = await LineRecorder.start(context)
        context.tasks.start(self._tick(), name="sensor-tick")
        context.tasks.start(self.batcher.live.run(context.links, self._live_hello), name="live-pictures")
        context.tasks.start(collect_garbage(), name="collect-garbage")
        if self._telemetry is not None:
            self._open_archive(self._telemetry, context)

    def _dial_peer(self, peer: PeerAddress) -> grpc.aio.Channel:
        return self.links.peer(peer)

    def _recheck_senders(self) -> None:
        """Have every sender authenticate again: certificates of other authorities are required now."""
        self.access.recheck_senders()
        self._sessions.recheck_certified()

    def _open_archive(self, telemetry: Telemetry, context: ShardContext) -> None:
        try:
            archive = Archive(telemetry.folder, context.options.shard, retention_bytes=telemetry.size)
        except UserError as error:
            self._archive_problem = str(error)
            logger.error("raw readings are not stored: %s", error)  # noqa: TRY400 - the shard runs without them
            return
        self.batcher.archive = archive
        context.tasks.start(archive.run(), name="sensor-archive")

    def apply(self, assignment: Assignment) -> None:
        """Own exactly the devices of `assignment`; those that are already owned retain their state."""
        if self.fleet.name:
            self.batcher.flush()  # waiting data belongs to the previous assignment
        # A copy, because a part of a message keeps the whole of it in memory; and a new one each time, because a
        # message never frees the memory of earlier values.
        settings = SensorSettings()
        settings.CopyFrom(assignment.sensor)
        left = self.fleet.apply(assignment, settings)
        self.clear = ClearBands(settings)
        self.batcher.configure(settings)
        self.relays.configure(settings.deadline_ns / SECOND)
        self._sessions.forget_routes()
        if self.access.configure(settings.access if settings.HasField("access") else None):
            self._sessions.recheck()
            self._ingest.discard_pending()
        self.commands = settings.commands
        for name in left:
            self.batcher.live.forget(name)
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        self._episodes.configure(settings.deadline_ns)
        self._episodes.forget(set(left))
        if self._recorder:
            self._recorder.end(left.keys())
            self._recorder.share_among([device.arrivals.recent for device in self.fleet.owned_devices.values()])
        if self._context is not None:
            for name, device in left.items():
                self._context.closed(name, device.arrivals.ledger.message())
        self._apply_candidate(assignment)
        self._sources.apply()
        marks = {name: device.watermark() for name, device in left.items() if device.arrivals.epoch}
        self._ingest.on_reassigned(self.fleet.handed_over, marks)

    def _apply_candidate(self, assignment: Assignment) -> None:
        """Judge the same data by the assignment's candidate, if it has one."""
        candidate = current_candidate(
            assignment,
            self.fleet.candidate,
            lambda declared: SensorCandidate(declared, self.batcher.oldest_age_ns),
            lambda ended: ended.close(self.fleet.owned_devices.values()),
            self._context.candidates if self._context else None,
        )
        self.fleet.candidate = self.batcher.candidate = candidate
        if candidate is not None:
            candidate.watch(self.fleet.owned_devices)

    def _report_differences(self, candidate: SensorCandidate, now_ns: int) -> None:
        """Report what only one of the candidate and the settings in force found."""
        for difference in candidate.differences(now_ns):
            if self._context and self._context.candidates:
                self._context.candidates.add(difference)
            if self._recorder and (device := self.fleet.owned_devices.get(difference.device)):
                self._recorder.record_difference(difference, device, candidate.settings, self.fleet.name, now_ns)

    def _live_hello(self) -> Coverage:
        return Coverage(fleet=self.fleet.name, shard=self._context.options.shard if self._context else "")

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        """Analyse batches of `wire.batches.Request`; readings that were analysed before count as duplicates."""
        analyse_batches(device, batches, self.batcher, now_ns)

    def _observe(self, signs: list[Sign], now_ns: int) -> None:
        if self._context is None:
            return
        candidate = self.fleet.candidate
        for sign in signs:
            evidence = self._episodes.observe(sign, now_ns) if sign.zone else None
            if candidate is not None:
                candidate.note_in_force(sign, now_ns, evidence.episode if evidence else "")
            if evidence:
                if is_canary(sign.device):
                    self._canary.report(evidence)
                    continue
                if traces := self._context.traces:
                    traces.trace(evidence, now_ns - int(self.batcher.waited * SECOND), now_ns)
                self._context.report(evidence)
                if self._recorder and (device := self.fleet.owned_devices.get(sign.device)):
                    self._recorder.note_report(evidence, device, self.fleet.settings, now_ns)

    def is_own(self, peername: tuple[str, int]) -> bool:
        """True if the connection from `peername` (host, port) belongs to this shard's canary."""
        return peername == self._canary.address

    def note_marked(self, places: MarkedPlaces) -> None:
        """Do nothing: places exist only in cameras' pictures; the hub weighs the signs of sensors."""

    def note_self_tests(self, tests: Mapping[str, RunningTest]) -> None:
        """Ignore the regions of the running tests in thermal frames, and measure them."""
        for name, device in self.fleet.owned_devices.items():
            device.frames.self_test = tests.get(name)

    async def light_canary(self, fire: Fire) -> None:
        """Send smoke readings of an artificial device to the shard's own listener."""
        if listener := self._listeners.first:
            try:
                await self._canary.burn(fire, listener, self.fleet.settings)
            finally:
                self._episodes.forget({fire.device})

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned device, then of undeclared devices; some have their thermal picture."""
        return list(self.statuses(now_ns))

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """Yield what `devices` returns, one status at a time; devices that were released meanwhile are skipped."""
        return self.fleet.statuses(now_ns)

    def covered(self, now_ns: int) -> tuple[int, int]:
        """The number of reported devices, and the number of them that are covered."""
        deadline = self.fleet.settings.deadline_ns
        return len(self.fleet), sum(not device.reason(now_ns, deadline) for device in self.fleet.owned_devices.values())

    def load(self) -> Load:
        """The load over the last seconds."""
        return self._meter.load(queue_depth=self.batcher.depth, oldest_age_ns=self.batcher.oldest_age_ns())

    def degraded(self) -> str:
        """The reason why raw readings are not stored although they should be; else empty."""
        why = self._archive_problem or (self.batcher.archive.failing.why if self.batcher.archive else "")
        problems = [f"telemetry.archive: raw readings are not stored: {why}"] if why else []
        return "; ".join(filter(None, [*problems, self._sources.problem()]))

    def _sample(self) -> None:
        quiet_lines = self.fleet.quiet_lines
        self._meter.sample(
            time.monotonic(),
            offered=self.batcher.offered + quiet_lines - self._canary.packets,
            analysed=self.batcher.analysed + quiet_lines - self._canary.packets,
            cpu=time.process_time(),
        )

    def metrics(self) -> Iterator[Metric]:
        """Yield counters over all devices and gauges of each device."""
        yield from shard_metrics(self._sessions, self.batcher, streams=len(self._ingest), garbage=self.garbage)
        yield from device_metrics(self.fleet.owned_devices.values(), self.fleet.totals)
        if self._recorder:
            yield from self._recorder.metrics()
        yield from self._sources.metrics()
        if self.fleet.candidate:
            yield from self.fleet.candidate.counts.metrics()

    async def drain(self, successor: str = "") -> None:
        """Accept no new device, redirect gRPC senders, and give them a moment to leave."""
        self._listeners.close()
        self.batcher.flush()
        self._sessions.close()
        await self._ingest.drain(HANDOVER_SECONDS, successor)
        await self._sources.drain()
        if self._recorder:
            await self._recorder.drain(RECORDINGS_SECONDS)

    async def stop(self) -> None:
        """Close everything that is still open."""
        await self._ingest.close()
        await self._sessions.stop()
        self._listeners.close()
        if self._recorder:
            self._recorder.close()

    async def _tick(self) -> None:
        """Run the periodic checks: coverage, load, overdue recordings, broken sensors, unusable sessions."""
        ticks = 0
        while True:
            await aligned_sleep(TICK_SECONDS)
            now, deadline = now_ns(), self.fleet.settings.deadline_ns
            self.running.since(now)
            covered = {name: device.is_covered(now, deadline) for name, device in self.fleet.owned_devices.items()}
            if covered != self._covered and self._context is not None:
                self._covered = covered
                self._context.coverage_changed()
            self._sources.repeat_signs(now)
            if self._recorder:
                self._recorder.end_overdue(now)
            ticks += 1
            if ticks % 4 == 0:
                self._sample()
                if self.fleet.candidate is not None:
                    self._report_differences(self.fleet.candidate, now)
            # A share of the devices at a time, so that the event loop is not busy for long.
            share = list(self.fleet.owned_devices.values())[ticks % INSPECTION_TICKS :: INSPECTION_TICKS]
            for device in share:
                device.inspect_sensors(now)
            if self._context is not None:
                for margin in margins_of(share, now, deadline):
                    self._context.margin(margin)
            if ticks % INSPECTION_TICKS == 0:
                if self.fleet.forget_undeclared(now - UNDECLARED_NS):
                    self._sessions.forget_routes()
                self._sessions.close_unusable()
