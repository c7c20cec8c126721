"""The option of `embereye up` for walk tests."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import chain

from embereye.addons.walktest.hub import HELP, OPTION
from embereye.addons.walktest.plan import read_interval
from embereye.process.lifecycle import UserError


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the option of `embereye up`."""
    parser.add_argument(OPTION, action="append", default=[], metavar="[ZONE=]DAYS", help=HELP)


def hub_arguments(arguments: Namespace) -> Sequence[str]:
    """Return the options for the hub; UserError if one is wrong."""
    try:
        for text in arguments.walktest_every:
            read_interval(text)
    except ValueError as error:
        raise UserError(f"{OPTION} {error}") from error
    return tuple(chain.from_iterable((OPTION, text) for text in arguments.walktest_every))
