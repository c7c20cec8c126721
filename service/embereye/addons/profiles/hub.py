"""The option of `embereye hub` for profiles, and the parts that it adds to the hub."""

from argparse import ArgumentParser, Namespace
from importlib import resources
from pathlib import Path

from embereye.addons.profiles.metrics import ProfileMetrics
from embereye.addons.profiles.options import OPTION, ProfilesOptions, read_profiles
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye_cli.options import Option


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye hub`; its default comes from EMBEREYE_PROFILES."""
    group = parser.add_argument_group(
        "profiles", "let work in zones make signs without an alarm for a while (addons/profiles/README.md)"
    )
    text = "YAML file with profiles of zones, such as for welding; default: none"
    Option(OPTION, text, type=Path, metavar="FILE").add_to(group)


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    return ProfilesAddon(read_profiles(arguments.profiles) if arguments.profiles else None)


class ProfilesAddon(Addon):
    """Lets people give zones the profiles that `options` declare."""

    def __init__(self, options: ProfilesOptions | None) -> None:
        self._options = options

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the profiles; see `Addon.attach`."""
        if self._options is None:
            return Parts(collectors=[ProfileMetrics(None)])
        from embereye.addons.profiles.http import SCRIPT_FILE, ProfileRoutes, schemas
        from embereye.addons.profiles.keeper import Profiles
        from embereye.addons.profiles.switch import ProfileSwitch

        profiles = Profiles(self._options, hub)
        hub.add_part(profiles)
        return Parts(
            routes=[ProfileRoutes(profiles)],
            schemas=schemas(),
            scripts=[f"/profiles/{SCRIPT_FILE}"],
            messages=[resources.files(__package__).joinpath("messages")],
            collectors=[ProfileMetrics(profiles)],
            switches=[ProfileSwitch(profiles)] if any(each.mqtt for each in self._options.profiles.values()) else [],
            tasks={"profiles": profiles.run},
        )

    def stand_by(self) -> Parts:
        """Do nothing; see `Addon.stand_by`."""
        return Parts(collectors=[ProfileMetrics(None)])
