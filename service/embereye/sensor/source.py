"""Sources of readings besides text lines and gRPC: MQTT brokers, for example.

An add-on has a module `sensors` with `SCHEMES` and `open_source`. The shard makes one source per scheme, gives it the
devices of the shard after each assignment, and gets its reports back through `Owner.receive`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from prometheus_client.core import Metric

from embereye.process.tasks import Tasks
from embereye.process.tls.folder import ServerTls
from embereye.sensor.device.sensor import SensorDevice
from embereye.shard.access import Grant, Names
from embereye.wire.readings.quantity import Report

PUSH = "push"  # scheme of devices that send by HTTP


class Owner(Protocol):
    """The part of the shard that a source uses. Everything happens on the event loop."""

    def receive(self, device: str, report: Report, heard_ns: int) -> None:
        """Analyse what a message says of `device`, which was heard at `heard_ns` of the process's timeline."""

    def refuse(self, device: str, reason: str) -> None:
        """Count a message of `device` that cannot be read as rejected."""

    def note_link(self, device: str, problem: str) -> None:
        """Note why `device` cannot be heard now; '': it can."""


class ReadingSource(Protocol):
    """A source of readings."""

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin; `name` is the shard's."""

    def apply(self, fleet: str, devices: Collection[SensorDevice]) -> None:
        """Read exactly `devices` from now on."""

    async def drain(self) -> None:
        """Receive nothing more: other shards own the devices, or are about to."""

    def problem(self) -> str:
        """The reason why devices cannot be heard; '' if all can."""

    def metrics(self) -> Iterable[Metric]:
        """Yield the metrics of the source."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a device sent by HTTP."""

    device: str
    content: Any  # parsed JSON in our own format; `mapped`: bytes as the device writes them
    mapped: bool = False
    heard_ns: int = 0  # the latest check-in that the previous owner knows; 0: the message has arrived now


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate of a message: a status code of HTTP, and the problem, '' if it was analysed."""

    status: int = 202  # or 404, 422, 503
    problem: str = ""


class Router(Protocol):
    """The part of the shard that a source uses to which devices send, at any shard of their fleet."""

    def admit(self, host: str, headers: Iterable[tuple[str, str]], names: Names | None) -> Grant:
        """Return the devices that a request may speak for; NotAdmittedError if there are none."""

    def is_declared(self, device: str) -> bool:
        """True if the fleet declares `device`, here or at another shard."""

    async def deliver(self, messages: Sequence[Message]) -> list[Outcome]:
        """Have each message analysed by the shard that owns its device; return their outcomes, in order."""


@dataclass(frozen=True)
class Listening:
    """The address at which devices reach a shard; `tls` is its certificate, None: none."""

    host: str
    port: int
    tls: ServerTls | None = None


@runtime_checkable
class PushSource(ReadingSource, Protocol):
    """A source to which devices send, at any shard of their fleet."""

    async def listen(self, at: Listening, router: Router) -> None:
        """Accept messages from now on; UserError if the address cannot be used."""

    def read_pushed(self, message: Message) -> str:
        """Read a message of a device of this shard, and return why it is refused; '' if it is analysed."""
