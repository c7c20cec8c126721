"""Move all that a hub has stored, but clips, into another database. The hub has to be stopped meanwhile.

What it was moved from stays as it is. Start the hub with --database and the same address afterwards.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.storage.transfer import copy_history
from embereye.process.lifecycle import UserError
from embereye_cli.hub_history.places import add_place, owning, print_copied


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    parser.add_argument("--to", required=True, metavar="ADDRESS",
                        help="a PostgreSQL, as for --database, or a hub's data folder")  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="lose what is there now")


def run(arguments: Namespace) -> int:
    """Fill the other database, or leave it as it is."""
    to: str = arguments.to
    folder = not to.startswith(("@", "postgres:", "postgresql:")) and "=" not in to
    if to in {arguments.database, str(arguments.data or "")}:
        raise UserError("--to names the place where it is already")  # and may hold a password
    place = Namespace(data=Path(to) if folder else None, database="" if folder else to)
    with owning(arguments) as source, owning(place) as target:
        copied = copy_history(source, target, replace=arguments.replace)
        name = target.name
    print_copied(copied, name)
    return 0
