"""The source `mqtt:` of a sensor shard: finds the devices of each broker, and connects to it."""

import asyncio
import logging
import os
import socket
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.addresses import server_url
from embereye.process.tasks import Tasks
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.source import Owner, ReadingSource
from embereye.wire.readings.source import parse_source
from embereye.wire.readings.sparkplug import Births
from embereye.wire.readings.templates import mapping_of

if TYPE_CHECKING:
    from embereye.addons.mqtt_sensors.broker import Broker, Place, Subscriber

logger = logging.getLogger(__name__)
SCHEMES = ("mqtt", "mqtts")  # of the sources that this add-on reads
PORTS = {"mqtt": 1883, "mqtts": 8883}
DRAIN_SECONDS = 2.0  # for the broker to hear that nothing is wanted any more
CREDENTIALS = "EMBEREYE_CREDENTIALS"  # folder with one mounted folder per Secret


def open_source() -> ReadingSource:
    """Make the source; ImportError says how to install what it needs."""
    try:
        import aiomqtt  # noqa: F401
    except ImportError as error:
        raise ImportError(f"sensors with source mqtt: need aiomqtt: pip install 'embereye[mqtt]' ({error})") from error
    return MqttSensors()


class MqttSensors:
    """Implements `ReadingSource`: one connection for each broker and login."""

    def __init__(self, host: str = "") -> None:
        """`host` distinguishes two processes of one shard's name; default: this host's name, or the pod's."""
        self._host = host or socket.gethostname()
        self._owner: Owner | None = None
        self._tasks: Tasks | None = None
        self._name = ""
        self._brokers: dict[Place, tuple[Broker, asyncio.Task[None]]] = {}

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; see `ReadingSource`."""
        self._owner, self._tasks, self._name = owner, tasks, name

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Read exactly `devices` from now on; see `ReadingSource`."""
        from embereye.addons.mqtt_sensors.broker import Subscriber

        wanted: dict[Place, dict[str, Subscriber]] = {}
        assert self._owner is not None
        for device in devices:
            spec = device.spec
            try:
                source = parse_source(spec.source)
                place = place_of(source.broker, spec.credentials)
                mapping = mapping_of(source.topic, source.template, source.fields)
            except ValueError as error:
                self._owner.note_link(spec.id, str(error))
                logger.error("device %s: %s", spec.id, error)  # noqa: TRY400 -- the text says all
                continue
            births = Births(is_node="/NDATA/" in mapping.main) if source.template == "sparkplug" else None
            subscriber = Subscriber(spec.id, mapping, bool(source.deadline_ns), fleet, births=births)
            wanted.setdefault(place, {})[spec.id] = subscriber
        self._leave(place for place in list(self._brokers) if place not in wanted)
        for place, subscribers in wanted.items():
            self._subscribe(place, fleet, subscribers)

    def _subscribe(self, place: "Place", fleet: str, subscribers: dict[str, "Subscriber"]) -> None:
        from embereye.addons.mqtt_sensors.broker import Broker

        assert self._owner is not None
        assert self._tasks is not None
        if place not in self._brokers:
            broker = Broker(place, f"embereye-{fleet}-{self._name}-{self._host}", self._owner)
            broker.wanted = subscribers
            self._brokers[place] = broker, self._tasks.start(broker.run(), name="mqtt-sensors")
            return
        self._brokers[place][0].replace(subscribers)

    async def drain(self) -> None:
        """Unsubscribe and disconnect, so that the broker keeps nothing for this shard."""
        if leaving := self._leave(list(self._brokers)):
            await asyncio.wait(leaving, timeout=DRAIN_SECONDS)
        for task in leaving:
            task.cancel()

    def _leave(self, places: "Iterable[Place]") -> list[asyncio.Task[None]]:
        """Unsubscribe from all at `places`; return the tasks that do."""
        leaving = []
        for place in places:
            broker, task = self._brokers.pop(place)
            broker.leave()
            if broker.connected:
                leaving.append(task)
            else:
                task.cancel()
        return leaving

    @property
    def is_connected(self) -> bool:
        """True if every broker is connected and subscribed."""
        return bool(self._brokers) and all(broker.connected for broker, _ in self._brokers.values())

    def problem(self) -> str:
        """Return why devices cannot be heard; see `ReadingSource`."""
        return "; ".join(broker.failing.why for broker, _ in self._brokers.values() if broker.failing)

    def metrics(self) -> Iterable[Metric]:
        """Yield nothing: the shard counts messages."""
        return ()


def place_of(broker: str, secret: str) -> "Place":
    """The broker at the URL `broker`, with the login named `secret`; ValueError or UserError."""
    from embereye.addons.mqtt_sensors.broker import Place

    scheme, host, port = server_url("mqtt.broker", broker, PORTS)
    folder = Path(os.environ.get(CREDENTIALS, "")) / secret if secret else None
    return Place(host, port, scheme == "mqtts", folder)
