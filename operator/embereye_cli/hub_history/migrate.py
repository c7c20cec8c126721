"""Move all that a hub has stored, but clips, into another database. The hub has to be stopped meanwhile.

What it was moved from stays as it is. Start the hub with --database and the same address afterwards.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.storage.transfer import copy_history
from embereye.process.lifecycle import UserError
from embereye_cli.hub_history.places import Place, add_place, check_stored, find_place, owning, print_copied


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    parser.add_argument("--to", required=True, metavar="ADDRESS",
                        help="a PostgreSQL, as for --database, or a hub's data folder")  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="lose what is there now")


def run(arguments: Namespace) -> int:
    """Fill the other database, or leave it as it is."""
    place, to = find_place(arguments), _place(arguments.to)
    if to == place:
        raise UserError("--to names the place where it is already")  # and may hold a password
    check_stored(place)
    with owning(place) as source, owning(to) as target:
        copied = copy_history(source, target, replace=arguments.replace)
        name = target.name
    print_copied(copied, name)
    return 0


def _place(to: str) -> Place:
    address = to.startswith(("@", "postgres:", "postgresql:")) or "=" in to
    return Place(database=to) if address else Place(Path(to))
