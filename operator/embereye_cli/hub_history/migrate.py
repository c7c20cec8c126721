"""Copy a hub's stored history, without clips, to another database. Stop the hub first.

The old database does not change. Afterwards, start the hub with --database and the new address.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.databases.transfer import copy_history
from embereye.process.lifecycle import UserError
from embereye_cli.hub_history.places import Place, add_place, check_stored, find_place, owning, print_copied


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    parser.add_argument("--to", required=True, metavar="ADDRESS",
                        help="address of a PostgreSQL, as for --database, or a hub's data folder")  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="replace the history that is there now")


def run(arguments: Namespace) -> int:
    """Fill the other database completely, or not at all."""
    place, to = find_place(arguments), _place(arguments.to)
    if to == place:
        raise UserError("--to names the database that the history is in already")  # the address can contain a password
    check_stored(place)
    with owning(place) as source, owning(to) as target:
        copied = copy_history(source, target, replace=arguments.replace)
        name = target.name
    print_copied(copied, name)
    return 0


def _place(to: str) -> Place:
    address = to.startswith(("@", "postgres:", "postgresql:")) or "=" in to
    return Place(database=to) if address else Place(Path(to))
