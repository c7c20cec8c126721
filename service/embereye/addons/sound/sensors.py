"""The source `sound:` of a sensor shard: microphones that hear the alarms of smoke detectors in the building."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric

from embereye.addons.sound.metrics import FAILING
from embereye.process.condition import Condition
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.source import Owner, ReadingSource
from embereye.wire.readings.quantity import Reading, Report
from embereye.wire.readings.source import parse_source

if TYPE_CHECKING:
    from embereye.addons.sound.microphone import Microphone, Place

logger = logging.getLogger(__name__)
SCHEMES = ("sound+rtsp", "sound+rtsps", "sound+http", "sound+https")  # of the sources that this add-on reads
CREDENTIALS = "EMBEREYE_CREDENTIALS"  # folder with one mounted folder per Secret


def open_source() -> ReadingSource:
    """Make the source."""
    from embereye.addons.sound.microphone import quiet_library

    quiet_library()
    return SoundSensors()


@dataclass
class _Heard:
    place: "Place"
    microphone: "Microphone"
    failing: Condition


class SoundSensors:
    """Implements `ReadingSource`: one thread for each microphone."""

    def __init__(self) -> None:
        self._owner: Owner
        self._heard: dict[str, _Heard] = {}

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; see `ReadingSource`."""
        self._owner = owner

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Listen to exactly `devices` from now on; see `ReadingSource`."""
        wanted = {}
        for device in devices:
            try:
                wanted[device.spec.id] = place_of(device)
            except ValueError as error:
                self._owner.note_link(device.spec.id, str(error))
                logger.error("device %s: %s", device.spec.id, error)  # noqa: TRY400 -- the text says all
        for name in [name for name, heard in self._heard.items() if wanted.get(name) != heard.place]:
            self._heard.pop(name).microphone.stop()
        for name, place in wanted.items():
            if name not in self._heard:
                self._heard[name] = self._listen(name, place)

    def _listen(self, name: str, place: "Place") -> _Heard:
        from embereye.addons.sound.microphone import Microphone

        loop, failing = asyncio.get_running_loop(), Condition(logger, end=logging.INFO)

        def is_current() -> bool:
            return name in self._heard and self._heard[name].failing is failing

        def receive(readings: tuple[Reading, ...]) -> None:
            if is_current():
                failing.clear("device %s: can be heard again", name)
                self._owner.note_link(name, "")
                self._owner.receive(name, Report(readings), now_ns())

        def fail(why: str) -> None:
            if is_current():
                failing.fail(why, "device %s: %s", name, why)
                self._owner.note_link(name, why)

        def report(readings: tuple[Reading, ...]) -> None:
            _call(loop, receive, readings)

        def fail_soon(why: str) -> None:
            _call(loop, fail, why)

        microphone = Microphone(place, report, fail_soon)
        microphone.start()
        return _Heard(place, microphone, failing)

    async def drain(self) -> None:
        """Listen no more."""
        heard, self._heard = self._heard, {}
        for each in heard.values():
            each.microphone.stop()

    def problem(self) -> str:
        """Return why devices cannot be heard; see `ReadingSource`."""
        return "; ".join(heard.failing.why for heard in self._heard.values() if heard.failing)

    def metrics(self) -> Iterable[Metric]:
        """Yield the metrics of the source."""
        yield FAILING.rows([((), float(sum(bool(heard.failing) for heard in self._heard.values())))])


def place_of(device: SensorDevice) -> "Place":
    """The sound that `device` declares; ValueError if its source cannot be read."""
    from embereye.addons.sound.microphone import Place

    source, secret = parse_source(device.spec.source), device.spec.credentials
    url = source.broker.removeprefix("sound+") + source.topic
    return Place(url, Path(os.environ.get(CREDENTIALS, "")) / secret if secret else None)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], argument: object) -> None:
    """Call `function` on the event loop, unless that has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, argument)
