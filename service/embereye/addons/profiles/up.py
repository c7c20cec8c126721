"""The option of `embereye up` for profiles."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from embereye.addons.profiles.options import OPTION, read_profiles


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye up`."""
    parser.add_argument(
        OPTION, type=Path, default=None, metavar="FILE",
        help="YAML file with profiles of zones, such as for welding (addons/profiles/README.md)",
    )  # fmt: skip


def hub_arguments(arguments: Namespace) -> Sequence[str]:
    """Return the option for the hub; UserError if the file is wrong."""
    if arguments.profiles is None:
        return ()
    read_profiles(arguments.profiles)
    return (OPTION, str(arguments.profiles.resolve()))
