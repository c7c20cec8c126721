"""The sources `push:` and `http:` of a sensor shard: readings that devices send, and readings that it fetches."""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.core import Metric

from embereye.addons.http_sensors.metrics import Counts
from embereye.addons.http_sensors.poll import INTERVAL_SECONDS, Login, Polled, Poller
from embereye.addons.http_sensors.server import PushServer
from embereye.process.addresses import server_url
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.source import Listening, Message, Owner, ReadingSource, Router
from embereye.units import MINUTE, SECOND
from embereye.wire.readings.pushed import parse_entry
from embereye.wire.readings.quantity import Report
from embereye.wire.readings.source import parse_source
from embereye.wire.readings.templates import SensorMapping, mapping_of, read

logger = logging.getLogger(__name__)
SCHEMES = ("push", "http", "https")  # of the sources that this add-on reads
PORTS = {"http": 80, "https": 443}
CREDENTIALS = "EMBEREYE_CREDENTIALS"  # folder with one mounted folder per Secret
AHEAD_NS = MINUTE  # nanoseconds by which a device's clock may be ahead; a time beyond is not used
NO_PORT = "spec.listen.http is missing: name the port at which it can send"


def open_source() -> ReadingSource:
    """Make the source."""
    return HttpSensors()


@dataclass
class _Pusher:
    """A device that sends."""

    mapping: SensorMapping
    last: Report = field(default_factory=Report)  # with a time; a repeated request brings it again


class HttpSensors:
    """Implements `PushSource`: one server for devices that send, one task for each device that is read."""

    def __init__(self, default_interval: float = INTERVAL_SECONDS) -> None:
        """`default_interval` is the time in seconds between two readings of a URL that declares none."""
        self._default_interval = default_interval
        self.counts = Counts()
        self._owner: Owner
        self._tasks: Tasks
        self._pushers: dict[str, _Pusher] = {}
        self._polling: dict[str, tuple[Polled, Poller, asyncio.Task[None]]] = {}
        self._server: PushServer | None = None

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; see `ReadingSource`."""
        self._owner, self._tasks = owner, tasks

    async def listen(self, at: Listening, router: Router) -> None:
        """Accept messages of devices; see `PushSource`."""
        self._server = PushServer(router, self.counts)
        await self._server.start(at)
        for device in self._pushers:
            self._owner.note_link(device, "")

    @property
    def port(self) -> int:
        """The port at which devices send; 0: none."""
        return self._server.port if self._server else 0

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Read exactly `devices` from now on; see `ReadingSource`."""
        pushers: dict[str, _Pusher] = {}
        wanted: dict[str, Polled] = {}
        for device in devices:
            spec = device.spec
            try:
                source = parse_source(spec.source)
                mapping = mapping_of(source.topic, source.template, source.fields)
                if source.scheme == "push":
                    known = self._pushers.get(spec.id)
                    pushers[spec.id] = known if known and known.mapping == mapping else _Pusher(mapping)
                    self._owner.note_link(spec.id, "" if self._server else NO_PORT)
                else:
                    server_url("source", source.broker, PORTS)
                    url = source.broker + source.topic
                    interval = source.interval_ns / SECOND or self._default_interval
                    wanted[spec.id] = Polled(spec.id, url, mapping, interval, _login(spec.credentials))
            except ValueError as error:
                self._owner.note_link(spec.id, str(error))
                logger.error("device %s: %s", spec.id, error)  # noqa: TRY400 -- the text says all
        self._pushers = pushers
        for name in [name for name, (polled, _, _) in self._polling.items() if wanted.get(name) != polled]:
            self._polling.pop(name)[2].cancel()
        for name, polled in wanted.items():
            if name not in self._polling:
                poller = Poller(polled, self._owner, self.counts)
                self._polling[name] = polled, poller, self._tasks.start(poller.run(), name="http-sensors")

    def read_pushed(self, message: Message) -> str:
        """Read a message of a device of this shard; see `PushSource`."""
        name = message.device
        pusher = self._pushers.get(name)
        if pusher is None:
            return f'device "{name}": its declaration in spec.sensors has no source: push'
        try:
            if message.mapped:
                report = read(pusher.mapping, pusher.mapping.main, message.content)
            else:
                report = parse_entry(message.content)
        except ValueError as error:
            self._owner.refuse(name, "unreadable message")
            return f'device "{name}": {error}'
        now = now_ns()
        if report.seen_ns > now + AHEAD_NS:
            report = Report(report.readings)
        if report.seen_ns and report == pusher.last:
            return ""  # sent again, because the answer was lost
        pusher.last = report
        heard_ns = message.heard_ns or report.seen_ns or now
        self._owner.receive(name, report, min(heard_ns, now))
        return ""

    async def drain(self) -> None:
        """Receive and read nothing more."""
        polling, self._polling = self._polling, {}
        for _, _, task in polling.values():
            task.cancel()
        server, self._server = self._server, None
        if server:
            await server.stop()

    def problem(self) -> str:
        """Return why devices cannot be heard; see `ReadingSource`."""
        return "; ".join(poller.failing.why for _, poller, _ in self._polling.values() if poller.failing)

    def metrics(self) -> Iterable[Metric]:
        """Yield the metrics of the source."""
        return self.counts.metrics(sum(bool(poller.failing) for _, poller, _ in self._polling.values()))


def _login(secret: str) -> Login:
    return Login(Path(os.environ.get(CREDENTIALS, "")) / secret if secret else None)
