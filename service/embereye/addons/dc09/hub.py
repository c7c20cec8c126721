"""The option of `embereye hub` for DC-09, and the parts that it adds to the hub.

Only the hub that owns the database reports to stations and listens to panels; a standby replica does neither. siadc09
is imported only if the option is used.
"""

from argparse import Namespace

from embereye.addons.dc09.metrics import dc09_metrics
from embereye.addons.dc09.options import OPTION, Dc09Options, read_dc09
from embereye.addons.dc09.tables import DC09, Documents
from embereye.hub.addon import Addon, DeclaredAddon, Parts
from embereye.hub.hub import Hub
from embereye.process.extras import needed_by
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

OPTIONS = OptionGroup(
    "DC-09", "report to a monitoring station (addons/dc09/README.md)",
    declared_file(OPTION, "with monitoring stations, and with fire panels that report here"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    return Dc09Addon(read_dc09(arguments.dc09) if arguments.dc09 else None)


class Dc09Addon(DeclaredAddon[Dc09Options]):
    """Reports to the stations and listens to the panels that `options` declare."""

    metrics = "embereye_hub_dc09_"

    def attach_declared(self, options: Dc09Options, hub: Hub) -> Parts:
        """Make stations and listener; see `DeclaredAddon.attach_declared`."""
        with needed_by(OPTION, "siadc09", "dc09"):
            from embereye.addons.dc09.listener import Listener
            from embereye.addons.dc09.station import Station
        rows = Documents(DC09)
        hub.add_part(rows)
        stations = [Station(hub, rows, each) for each in options.stations]
        listener = Listener(hub, rows, options.listen) if options.listen else None
        tasks = {f"dc09-{station.options.name}": station.run for station in stations}
        if listener:
            tasks["dc09-listen"] = listener.run
        return Parts(collectors=[Scraped(lambda: dc09_metrics(stations, listener))], tasks=tasks)
