"""The options of `embereye hub` for NATS, and the bus that they add to the hub.

The hub's command declares the options; without --nats the add-on adds only its metrics. On the owner the bus publishes
and consumes, on a standby replica it only publishes. nats-py is imported only if the bus is used.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from embereye.addons.nats.metrics import bus_metrics
from embereye.addons.nats.options import BusOptions, read_bus
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.extras import needed_by
from embereye.process.lifecycle import value_errors
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import Option, OptionGroup, folders_of_peer

if TYPE_CHECKING:
    from embereye.addons.nats.jetstream import JetStreamBus


OPTIONS = OptionGroup(
    "NATS", "acknowledge evidence by a JetStream stream (addons/nats/README.md)",
    Option("--nats", "nats://HOST:4222 or tls://HOST:4222 of each server of one cluster; default: none, the database "
           "acknowledges evidence", metavar="URL,…"),
    Option("--nats-stream", "stream, created if it is missing; each hub needs another one (%(default)s)",
           default="embereye", metavar="NAME"),
    Option("--nats-copies", "servers with a copy of the stream when it is created: 1, 3 or 5 (%(default)s)",
           default="1", type=int, metavar="NUMBER"),
    *folders_of_peer("nats", "NATS", "username and password, or token"),
)  # fmt: skip


def bus_options(arguments: Namespace) -> BusOptions | None:
    """The NATS that the options name, if any; UserError if its address is wrong."""
    if not arguments.nats:
        return None
    with value_errors("--"):
        return read_bus(
            arguments.nats, stream=arguments.nats_stream, copies=arguments.nats_copies,
            credentials=arguments.nats_credentials, certificates=arguments.nats_tls,
        )  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if one is wrong."""
    return NatsAddon(bus_options(arguments))


class NatsAddon(Addon):
    """Carries evidence through NATS if `options` name servers."""

    metrics = "embereye_hub_bus_"

    def __init__(self, options: BusOptions | None) -> None:
        self._options = options

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the bus, which also consumes the stream; see `Addon.attach`."""
        return self._parts(hub)

    def stand_by(self) -> Parts:
        """Make the bus, which only publishes; see `Addon.stand_by`."""
        return self._parts(None)

    def _parts(self, hub: Hub | None) -> Parts:
        if self._options is None:
            return super().stand_by()
        bus = _open_bus(self._options, hub)
        return Parts(bus=bus, collectors=[Scraped(lambda: bus_metrics(bus))], tasks={"bus": bus.run})


def _open_bus(options: BusOptions, hub: Hub | None) -> "JetStreamBus":
    with needed_by("--nats", "nats-py", "nats"):
        from embereye.addons.nats.intake import StreamIntake
        from embereye.addons.nats.jetstream import JetStreamBus
    return JetStreamBus(options, StreamIntake(hub, options.stream) if hub else None)
