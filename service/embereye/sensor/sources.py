"""The sources of a shard's readings besides text lines and gRPC, and what becomes of their reports.

A source is made when the first device needs it. `ReadingSources` is their `Owner`: it analyses each report at once,
because bought devices send few. A device whose source is unknown, or cannot be made, is dark with the reason.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.fleet import Fleet
from embereye.sensor.messages import MessageRouter
from embereye.sensor.source import PUSH, Listening, PushSource, ReadingSource
from embereye.sensor.tick import TickBatcher
from embereye.shard.evidence.episodes import Sign
from embereye.wire.readings.quantity import Report

logger = logging.getLogger(__name__)
Maker = Callable[[], ReadingSource]


@dataclass(eq=False)
class ReadingSources:
    """Implements `embereye.sensor.source.Owner`. `makers` make sources by the scheme of a device's source."""

    makers: Mapping[str, Maker]
    fleet: Fleet
    batcher: TickBatcher
    observe: Callable[[list[Sign], int], None]
    router: MessageRouter
    _sources: dict[Maker, ReadingSource] = field(default_factory=dict, init=False)
    _started: tuple[Tasks, str] | None = field(default=None, init=False)

    def start(self, tasks: Tasks, name: str) -> None:
        """Run the sources' tasks in `tasks`; `name` is the shard's."""
        self._started = tasks, name
        self.apply()

    def apply(self) -> None:
        """Give each source its devices of the assignment in force; make those that are needed."""
        if self._started is None:
            return
        by_maker: dict[Maker, list[SensorDevice]] = {maker: [] for maker in self._sources}
        for device in self.fleet.owned_devices.values():
            if not device.spec.source:
                continue
            scheme = device.spec.source.partition(":")[0]
            if maker := self.makers.get(scheme):
                by_maker.setdefault(maker, []).append(device)
            else:
                device.note_link(f'this shard cannot read a source "{scheme}:"', 1)
        for maker, devices in by_maker.items():
            if source := self._source(maker, devices):
                source.apply(self.fleet.name, devices)
        self.router.hand_over(self._started[0])

    def _source(self, maker: Maker, devices: list[SensorDevice]) -> ReadingSource | None:
        """Return the source that `maker` makes; None if it cannot be made, which `devices` then say."""
        assert self._started
        if maker not in self._sources:
            try:
                source = maker()
            except ImportError as error:
                logger.error("%s", error)  # noqa: TRY400 -- the text says what to install
                for device in devices:
                    device.note_link(str(error), 1)
                return None
            self._sources[maker] = source
            source.start(self, *self._started)
        return self._sources[maker]

    async def listen(self, at: Listening) -> None:
        """Accept messages that devices send by HTTP; UserError if that is impossible."""
        maker = self.makers.get(PUSH)
        source = maker and self._source(maker, [])
        if not isinstance(source, PushSource):
            raise UserError("--http-port: this installation has no source of readings by HTTP")
        await source.listen(at, self.router)
        self.router.source = source

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the sources."""
        for source in self._sources.values():
            yield from source.metrics()

    async def drain(self) -> None:
        """Receive nothing more."""
        for source in self._sources.values():
            await source.drain()
        await self.router.close()

    def problem(self) -> str:
        """The reason why devices cannot be heard; '' if all can."""
        return "; ".join(filter(None, (source.problem() for source in self._sources.values())))

    def repeat_signs(self, now_ns: int) -> None:
        """Renew the signs of alarms that are on, and end those that are over. Call it several times a second."""
        for device in list(self.fleet.owned_devices.values()) if self._sources else ():
            if device.states.values and device.levels.is_open():
                self.observe(device.states.repeat(now_ns), now_ns)
        if self._sources and self.fleet.candidate is not None:
            self.fleet.candidate.repeat_signs(now_ns)

    def receive(self, device: str, report: Report, heard_ns: int) -> None:
        """Analyse what a message says of a device of this shard; see `Owner`."""
        if (sensor := self.fleet.owned_devices.get(device)) is None:
            return
        now = now_ns()
        self.batcher.offered += 1
        self.batcher.analysed += 1
        self.observe(sensor.analyse_report(report, heard_ns, now), now)
        if self.fleet.candidate is not None:
            self.fleet.candidate.analyse_report(device, report, heard_ns, now)

    def refuse(self, device: str, reason: str) -> None:
        """Count a message of a device of this shard as rejected; see `Owner`."""
        if sensor := self.fleet.owned_devices.get(device):
            sensor.arrivals.ledger.offered += 1
            sensor.arrivals.ledger.rejected[reason] += 1

    def note_link(self, device: str, problem: str) -> None:
        """Note why a device of this shard cannot be heard; see `Owner`."""
        if sensor := self.fleet.owned_devices.get(device):
            sensor.note_link(problem, now_ns())
