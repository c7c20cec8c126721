"""The option of `embereye hub` for the set-up, and the parts that it adds to the hub.

`embereye up` passes its manifests. In a cluster there are none: the console then prints commands instead.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from embereye.addons.setup.editor import Editor
from embereye.addons.setup.http import SetupRoutes
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.http.console_files import console_files
from embereye.hub.hub import Hub
from embereye_cli.options import Option, OptionGroup

OPTION = "--edit"


OPTIONS = OptionGroup(
    "set-up", "edit devices in the console (addons/setup/README.md)",
    Option(OPTION, "manifest that admins can edit in the console; repeatable; default: none, and the console prints "
           "commands", metavar="FLEET.yaml", is_list=True),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options."""
    return SetupAddon([Path(name) for name in arguments.edit], arguments.data / "setup")


class SetupAddon(Addon):
    """Edits the manifests at `paths`; `folder` keeps what can be undone."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self._editor = Editor(paths, folder)

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make its routes; see `Addon.attach`."""
        return Parts(
            routes=[SetupRoutes(self._editor, hub), console_files(__package__)],
        )
