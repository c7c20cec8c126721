"""The parts that drills add to the hub. They need no option.

Reports have the signature of statements: the same key and name of the site.
"""

from argparse import Namespace
from pathlib import Path

from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub

KEY = "--statement-key"


def read(arguments: Namespace) -> Addon:
    """The add-on."""
    key = getattr(arguments, "statement_key", None) or arguments.data / "statement-key"
    return DrillsAddon(getattr(arguments, "site", "main"), key)


class DrillsAddon(Addon):
    """Announces drills and signs their reports."""

    def __init__(self, site: str, key: Path) -> None:
        self._site = site
        self._key = key

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the drills; see `Addon.attach`. UserError if the key cannot be used."""
        from embereye.addons.drills.http import DrillRoutes
        from embereye.addons.drills.keeper import Drills
        from embereye.hub.http.console_files import console_files
        from embereye.process.signing import prepare_key

        drills = Drills(self._site, prepare_key(self._key, KEY), hub)
        hub.add_part(drills)
        return Parts(
            routes=[DrillRoutes(drills), console_files(__package__)],
            tasks={"drills": drills.run},
        )
