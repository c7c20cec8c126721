"""The option of `embereye up` for statements of watch."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from embereye.addons.statements.hub import SITE


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye up`."""
    parser.add_argument(
        SITE, default="", metavar="NAME", help="name of this site in statements of watch (addons/statements/README.md)"
    )


def hub_arguments(arguments: Namespace) -> Sequence[str]:
    """Return the option for the hub."""
    return (SITE, arguments.site) if arguments.site else ()
