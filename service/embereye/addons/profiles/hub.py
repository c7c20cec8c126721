"""The option of `embereye hub` for profiles, and the parts that it adds to the hub."""

from argparse import Namespace

from embereye.addons.profiles.metrics import profile_metrics
from embereye.addons.profiles.options import OPTION, ProfilesOptions, read_profiles
from embereye.hub.addon import Addon, DeclaredAddon, Parts
from embereye.hub.hub import Hub
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

OPTIONS = OptionGroup(
    "profiles", "let work in zones make signs without an alarm for a while (addons/profiles/README.md)",
    declared_file(OPTION, "with profiles of zones, such as for welding"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    return ProfilesAddon(read_profiles(arguments.profiles) if arguments.profiles else None)


class ProfilesAddon(DeclaredAddon[ProfilesOptions]):
    """Lets people give zones the profiles that `options` declare."""

    metrics = "embereye_hub_profile"

    def attach_declared(self, options: ProfilesOptions, hub: Hub) -> Parts:
        """Make the profiles; see `DeclaredAddon.attach_declared`."""
        from embereye.addons.profiles.http import ProfileRoutes, schemas
        from embereye.addons.profiles.keeper import Profiles
        from embereye.addons.profiles.switch import ProfileSwitch
        from embereye.hub.http.console_files import console_files

        profiles = Profiles(options, hub)
        hub.add_part(profiles)
        return Parts(
            routes=[ProfileRoutes(profiles), console_files(__package__)],
            schemas=schemas(),
            collectors=[Scraped(lambda: profile_metrics(profiles))],
            switches=[ProfileSwitch(profiles)] if any(each.mqtt for each in options.profiles.values()) else [],
            tasks={"profiles": profiles.run},
        )
