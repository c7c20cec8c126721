"""The option of `embereye hub` for optical self-tests, and the parts that they add to the hub.

aiomqtt and pymodbus are imported only if the option is used.
"""

from argparse import Namespace

from embereye.addons.selftest.metrics import selftest_metrics
from embereye.addons.selftest.options import OPTION, SelfTestOptions, read_selftest
from embereye.hub.addon import Addon, DeclaredAddon, Parts
from embereye.hub.hub import Hub
from embereye.process.extras import needed_by
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

OPTIONS = OptionGroup(
    "self-tests", "switch lamps and heaters in view (addons/selftest/README.md)",
    declared_file(OPTION, "with lamps and heaters that devices must see when they are switched on"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    return SelfTestAddon(read_selftest(arguments.selftest) if arguments.selftest else None)


class SelfTestAddon(DeclaredAddon[SelfTestOptions]):
    """Runs the tests that `options` declare."""

    metrics = "embereye_hub_selftest"

    def attach_declared(self, options: SelfTestOptions, hub: Hub) -> Parts:
        """Make the tests; see `DeclaredAddon.attach_declared`."""
        from embereye.addons.selftest.http import SelfTestRoutes
        from embereye.hub.http.console_files import console_files

        with needed_by(OPTION, "aiomqtt", "mqtt"), needed_by(OPTION, "pymodbus", "modbus"):
            from embereye.addons.selftest.keeper import SelfTestKeeper
        tests = SelfTestKeeper(options, hub)
        return Parts(
            routes=[SelfTestRoutes(tests), console_files(__package__)],
            collectors=[Scraped(lambda: selftest_metrics(tests))],
            tasks={"selftest": tests.run},
        )
