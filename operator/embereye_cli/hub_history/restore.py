"""Fill a hub's database from a file of `embereye hub backup`. Stop the hub first."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.databases.transfer import AHEAD, copy_history
from embereye.process.lifecycle import NotFoundError
from embereye_cli.hub_history.places import add_place, closing, find_place, owning, print_copied


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    parser.add_argument("file", type=Path, help="file of `embereye hub backup`")
    parser.add_argument("--replace", action="store_true", help="replace the history that is in the database now")


def run(arguments: Namespace) -> int:
    """Fill the database completely, or not at all."""
    if not arguments.file.is_file():
        raise NotFoundError(f"{arguments.file} does not exist. Name a file of `embereye hub backup`.")
    with closing(SqliteDatabase(arguments.file, only_read=True)) as source, owning(find_place(arguments)) as target:
        copied = copy_history(source, target, replace=arguments.replace, ahead=AHEAD)
        name = target.name
    print_copied(copied, name)
    return 0
