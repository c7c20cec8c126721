"""The option of `embereye hub` for Modbus, and the parts that it adds to the hub.

Only the hub that owns the database drives outputs; a standby replica has no zones. pymodbus is imported only if the
option is used.
"""

import logging
from argparse import Namespace
from typing import TYPE_CHECKING

from embereye.addons.modbus.metrics import modbus_metrics
from embereye.addons.modbus.options import OPTION, ModbusOptions, read_modbus
from embereye.hub.addon import Addon, DeclaredAddon, Parts
from embereye.hub.hub import Hub
from embereye.process.extras import needed_by
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

if TYPE_CHECKING:
    from embereye.addons.modbus.building import Building


OPTIONS = OptionGroup(
    "Modbus", "switch outputs of the building (addons/modbus/README.md)",
    declared_file(OPTION, "with rules from zones to coils and registers of panels, relays and PLCs"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    return ModbusAddon(read_modbus(arguments.modbus) if arguments.modbus else None)


class ModbusAddon(DeclaredAddon[ModbusOptions]):
    """Drives the outputs that `options` declare."""

    metrics = "embereye_hub_modbus_"

    def attach_declared(self, options: ModbusOptions, hub: Hub) -> Parts:
        """Make the outputs; see `DeclaredAddon.attach_declared`."""
        building = _open(hub, options)
        return Parts(
            collectors=[Scraped(lambda: modbus_metrics(building))],
            tasks={"modbus": building.run},
            close=building.close,
        )


def _open(hub: Hub, options: ModbusOptions) -> "Building":
    with needed_by(OPTION, "pymodbus", "modbus"):
        from embereye.addons.modbus.building import Building
    logging.getLogger("pymodbus.logging").setLevel(logging.CRITICAL)  # `Panel` logs failures, once
    return Building(hub, options)
