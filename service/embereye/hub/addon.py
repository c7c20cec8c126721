"""The interface of add-ons, features beside the watch. The hub knows none: its command passes them to `serve`.

An add-on says which `Parts` it contributes, and the server adds them to its own. It calls `attach` when this process
owns the database, and `stand_by` while it is a standby replica. Imports run only from an add-on to the hub.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prometheus_client.registry import Collector

from embereye.hub.clips.store import ClipStore
from embereye.hub.evidence_bus import EvidenceBus
from embereye.hub.hub import Hub
from embereye.hub.roles import Role
from embereye.hub.switches import ZoneSwitch
from embereye.process.grpc_server import Service
from embereye.process.telemetry.metric import Scraped, unsampled
from embereye.process.tls.folder import ServerTls

T = TypeVar("T")


async def _do_nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts that an add-on adds to a hub; by default none."""

    bus: EvidenceBus | None = None  # acknowledges evidence before the database has it
    services: Sequence[Service] = ()  # gRPC services for people, programs and shards
    roles: Mapping[str, Role] = field(default_factory=dict)  # by gRPC method; methods without one are for viewers
    routes: Sequence[object] = ()  # of the HTTP interface, see `embereye.hub.http.route`, and `console_files`
    schemas: Mapping[str, dict[str, object]] = field(default_factory=dict)  # that the routes' answers refer to, by name
    collectors: Sequence[Collector] = ()  # of metrics
    switches: Sequence[ZoneSwitch] = ()  # of zones, for users of the MQTT broker
    tasks: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)  # by name, until the end
    listen: Callable[[str, ServerTls | None], Awaitable[None]] = _do_nothing  # on the host for people, with its TLS
    close: Callable[[], Awaitable[None]] = _do_nothing  # called when the hub stops


class Addon:
    """An add-on with its options. These methods add nothing; an add-on overrides those that it needs."""

    metrics = ""  # the start of its metrics' names, which a standby replica lists without samples; '': it has none

    @property
    def ports(self) -> Mapping[str, int]:
        """Its ports by role, which standby replicas forward to the owner; 0: none."""
        return {}

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make its parts for a hub that owns the database. UserError if a library is missing."""
        return Parts()

    def stand_by(self) -> Parts:
        """Make its parts for a standby replica; only bus, collectors and tasks count."""
        return Parts(collectors=[Scraped(lambda: unsampled(self.metrics))] if self.metrics else ())


class DeclaredAddon(Addon, Generic[T]):
    """An add-on whose options are a file's content; without a file it does no more than in a standby replica."""

    def __init__(self, options: T | None) -> None:
        self._options = options

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the declared parts; see `Addon.attach`."""
        return self.stand_by() if self._options is None else self.attach_declared(self._options, hub)

    def attach_declared(self, options: T, hub: Hub) -> Parts:
        """Make the parts that `options` declare for a hub that owns the database."""
        raise NotImplementedError
