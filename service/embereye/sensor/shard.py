"""The sensor shard: declared devices in, evidence and coverage out."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from embereye.process.grpc_server import Service
from embereye.process.http_server import all_interfaces
from embereye.process.lifecycle import UserError
from embereye.sensor.device import SensorDevice
from embereye.sensor.ingest import Ingest
from embereye.sensor.text import Sessions
from embereye.shard.episodes import Episodes
from embereye.shard.meter import Meter
from embereye.shard.service import ShardContext
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.ingest_pb2 import DeviceBatch, Watermark
from embereye.v1.shard_pb2 import Assignment, Commands, Load, Peer, SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.device import Eeprom, FrameWords, SensorReading

logger = logging.getLogger(__name__)
UNDECLARED_LIMIT = 64  # devices shown although no fleet declares them
UNDECLARED_SECONDS = 60  # that they stay after their last word
TICK_SECONDS = 0.25  # between looks at silence and coverage
HANDOVER_SECONDS = 0.2  # that senders have to act on DRAIN before their streams are closed


class SensorShard:
    """Implements `embereye.shard.service.ShardCore` for sensors."""

    def __init__(self) -> None:
        self.commands = Commands(start="PERIOD_ON", calibration="EEPROM1", request="REQUEST1")
        self.draining = asyncio.Event()
        self.garbage: Counter[str] = Counter()
        self.relayed = 0
        self.relay_dropped = 0
        self._settings = SensorSettings()
        self._fleet = ""
        self._devices: dict[str, SensorDevice] = {}
        self._undeclared: dict[str, SensorDevice] = {}
        self._elsewhere: Mapping[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._episodes = Episodes("")
        self._meter = Meter()
        self._sessions = Sessions(self)
        self._ingest = Ingest(self)
        self._servers: list[asyncio.Server] = []
        self._context: ShardContext | None = None
        self._covered: dict[str, bool] = {}

    def services(self) -> Iterable[Service]:
        """Its own service: Ingest."""
        return (self._ingest.service(),)

    async def start(self, context: ShardContext) -> None:
        """Open the text listeners; they serve every device of the fleet, owned here or not."""
        self._context = context
        options = context.options
        for port, shared in ((options.tcp_port, False), (options.shared_tcp_port, True)):
            if shared and not port:
                continue
            try:
                server = await asyncio.get_running_loop().create_server(
                    self._sessions.protocol, all_interfaces(options.host), port, reuse_port=shared, backlog=4096
                )
            except OSError as error:
                raise UserError(
                    f"cannot listen for devices on {options.host}:{port}: {error.strerror or error}"
                ) from error
            self._servers.append(server)
        context.tasks.start(self._tick(), name="sensor-tick")

    def apply(self, assignment: Assignment) -> None:
        """Own the assignment's devices; those that stay keep their state."""
        self._fleet = assignment.fleet
        self._settings.CopyFrom(assignment.sensor)
        if assignment.sensor.HasField("commands"):
            self.commands = assignment.sensor.commands
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        wanted = {device.id: device for device in assignment.devices}
        self._episodes.forget(set(self._devices) - set(wanted))
        self._devices = {
            name: self._configured(self._devices.get(name) or self._undeclared.pop(name, None), spec)
            for name, spec in wanted.items()
        }
        self._elsewhere = dict(assignment.elsewhere)
        self._peers = {peer.shard: peer for peer in assignment.peers}
        for name in [name for name in self._undeclared if name in self._elsewhere]:
            del self._undeclared[name]

    def _configured(self, device: SensorDevice | None, spec: Device) -> SensorDevice:
        if device is None:
            return SensorDevice(spec, self._settings)
        device.configure(spec, self._settings)
        return device

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        return self._devices.get(device)

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        owner = self._elsewhere.get(device)
        return self._peers.get(owner) if owner else None

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """State of a device that no fleet declares: people see it, but it raises no alarm."""
        state = self._undeclared.get(device)
        if state is None:
            if len(self._undeclared) >= UNDECLARED_LIMIT:
                self.garbage["undeclared device"] += 1
                return None
            logger.warning(
                "device %s is not declared in %s: it is shown, not watched", device, self._fleet or "a fleet"
            )
            state = self._undeclared[device] = SensorDevice(Device(id=device), self._settings)
        return state

    def take(self, device: SensorDevice, message: SensorReading | FrameWords | Eeprom, now_ns: int) -> None:
        """Analyse one message of a text device and report what it shows."""
        self._meter.arrivals += 1
        device.ledger.offered += 1
        self._analyse(device, message, now_ns)

    def take_batch(self, device: SensorDevice, batch: DeviceBatch, now_ns: int) -> Watermark:
        """Analyse a gRPC batch; what was analysed before is a duplicate."""
        for message in device.unpack(batch, now_ns):
            self._meter.arrivals += 1
            self._analyse(device, message, now_ns)
        return Watermark(device=device.spec.id, epoch=device.epoch, sequence=device.sequence)

    def _analyse(self, device: SensorDevice, message: SensorReading | FrameWords | Eeprom, now_ns: int) -> None:
        signs = device.analyse(message, now_ns)
        self._meter.analysed += 1
        if not device.spec.zone or self._context is None:
            return
        for sign in signs:
            if evidence := self._episodes.observe(sign, now_ns):
                self._context.report(evidence)

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned device, then of the undeclared ones that talk here."""
        deadline = self._settings.deadline_ns
        return [device.status(now_ns, deadline) for device in (*self._devices.values(), *self._undeclared.values())]

    def load(self) -> Load:
        """Measured over the last seconds; nothing queues here: what arrives is analysed at once."""
        return self._meter.load(queue_depth=0, oldest_age_ns=0)

    def metrics(self) -> Iterator[Metric]:
        """Counters over all devices, read from plain slots at scrape time."""
        yield GaugeMetricFamily("embereye_sensor_connections", "Open text connections.", value=len(self._sessions))
        yield CounterMetricFamily(
            "embereye_sensor_relayed", "Messages passed on to the shard that owns their device.", value=self.relayed
        )
        yield CounterMetricFamily(
            "embereye_sensor_relay_dropped", "Messages that could not be passed on.", value=self.relay_dropped
        )
        garbage = CounterMetricFamily("embereye_sensor_garbage", "Lines that were no message.", labels=["reason"])
        for reason, count in sorted(self.garbage.items()):
            garbage.add_metric([reason], count)
        yield garbage
        packets = CounterMetricFamily("embereye_sensor_packets", "Packets by what became of them.", labels=["outcome"])
        ledgers = [device.ledger for device in self._devices.values()]
        packets.add_metric(["offered"], sum(ledger.offered for ledger in ledgers))
        packets.add_metric(["analysed"], sum(ledger.analysed for ledger in ledgers))
        packets.add_metric(["duplicate"], sum(ledger.duplicate for ledger in ledgers))
        packets.add_metric(["shed"], sum(ledger.shed.total() for ledger in ledgers))
        packets.add_metric(["rejected"], sum(ledger.rejected.total() for ledger in ledgers))
        yield packets

    async def drain(self) -> None:
        """Take no new device, tell gRPC senders to go elsewhere, and give them a moment to do so."""
        for server in self._servers:
            server.close()
        self.draining.set()
        await asyncio.sleep(HANDOVER_SECONDS)
        self._sessions.close()

    async def stop(self) -> None:
        """Close what is still open."""
        self._sessions.close()
        for server in self._servers:
            server.close()

    async def _tick(self) -> None:
        """Notice silence and recovery at once instead of with the next regular coverage report."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now, deadline = time.time_ns(), self._settings.deadline_ns
            covered = {name: not device.watch.reason(now, deadline) for name, device in self._devices.items()}
            if covered != self._covered and self._context is not None:
                self._covered = covered
                self._context.coverage_changed()
            ticks += 1
            if ticks % 4 == 0:
                self._meter.sample()
                stale = now - UNDECLARED_SECONDS * 1_000_000_000
                for name in [name for name, device in self._undeclared.items() if device.watch.heard_ns < stale]:
                    del self._undeclared[name]
