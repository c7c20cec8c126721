"""The option of `embereye up` for the set-up, and the manifests that its hub may edit."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import chain

from embereye.addons.setup.hub import OPTION

NO_EDITING = "--no-editing"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye up`."""
    parser.add_argument(NO_EDITING, action="store_true", help="do not let admins edit the manifests in the console")


def hub_arguments(arguments: Namespace) -> Sequence[str]:
    """Return the options for the hub."""
    if arguments.no_editing:
        return ()
    return tuple(chain.from_iterable((OPTION, str(path.absolute())) for path in arguments.manifests))
