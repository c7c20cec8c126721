"""Sources of readings besides text lines and gRPC: MQTT brokers, for example.

An add-on has a module `sensors` with `SCHEMES` and `open_source`. The shard makes one source per scheme, gives it the
devices of the shard after each assignment, and gets its reports back through `Owner.receive`.
"""

from collections.abc import Collection
from typing import Protocol

from embereye.process.tasks import Tasks
from embereye.sensor.device.sensor import SensorDevice
from embereye.wire.readings.quantity import Report


class Owner(Protocol):
    """The part of the shard that a source uses. Everything happens on the event loop."""

    def receive(self, device: str, report: Report, heard_ns: int) -> None:
        """Analyse what a message says of `device`, which was heard at `heard_ns` of the process's timeline."""
        ...

    def refuse(self, device: str, reason: str) -> None:
        """Count a message of `device` that cannot be read as rejected."""
        ...

    def note_link(self, device: str, problem: str) -> None:
        """Note why `device` cannot be heard now; '': it can."""
        ...


class ReadingSource(Protocol):
    """A source of readings."""

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; `name` is the shard's."""
        ...

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Read exactly `devices` from now on."""
        ...

    async def drain(self) -> None:
        """Receive nothing more: other shards own the devices, or are about to."""
        ...

    def problem(self) -> str:
        """The reason why devices cannot be heard; '' if all can."""
        ...
