"""The options of `embereye hub` for statements of watch, and the parts that they add to the hub.

Statements need no option: each hub that owns a database makes them.
"""

from argparse import Namespace
from pathlib import Path

from embereye.addons.statements.metrics import statement_metrics
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import Option, OptionGroup

KEY = "--statement-key"
SITE = "--site"


OPTIONS = OptionGroup(
    "statements", "sign what was watched each day (addons/statements/README.md)",
    Option(KEY, "file with the private key that signs statements, created if missing; default: statement-key in the "
           "data folder", type=Path, metavar="FILE"),
    Option(SITE, "name of this site in statements", default="main", metavar="NAME", for_up=True),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options."""
    return StatementsAddon(arguments.site, arguments.statement_key or arguments.data / "statement-key")


class StatementsAddon(Addon):
    """Makes a signed statement of each day."""

    metrics = "embereye_hub_statements_"

    def __init__(self, site: str, key: Path) -> None:
        self._site = site
        self._key = key

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the statements; see `Addon.attach`. UserError if the key cannot be used."""
        from embereye.addons.statements.http import StatementRoutes
        from embereye.addons.statements.keeper import Site, Statements
        from embereye.hub.http.console_files import console_files
        from embereye.process.signing import prepare_key

        statements = Statements(Site(self._site, prepare_key(self._key, KEY)), hub)
        hub.add_part(statements)
        return Parts(
            routes=[StatementRoutes(statements), console_files(__package__)],
            collectors=[Scraped(lambda: statement_metrics(statements))],
            tasks={"statements": statements.run},
        )
