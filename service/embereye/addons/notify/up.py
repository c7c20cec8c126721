"""The option of `embereye up` for notifications."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from embereye.addons.notify.hub import read


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye up`."""
    parser.add_argument("--notify", type=Path, default=None, metavar="FILE",
                        help="YAML file with routes to people and escalations (addons/notify/README.md)")  # fmt: skip


def hub_arguments(arguments: Namespace) -> Sequence[str]:
    """Return the option for the hub; UserError if the file is wrong."""
    if arguments.notify is None:
        return ()
    read(arguments)
    return ("--notify", str(arguments.notify.resolve()))
