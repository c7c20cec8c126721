"""The place of a hub's stored history, as commands name it.

`backup`, `restore` and `migrate` of `embereye hub` share these options. A place is a data folder with SQLite or the
address of a PostgreSQL. `reading` opens it while a hub may be using it; `owning` excludes a running hub, by the
folder's lock or the database's. Errors of the store become UserErrors, and nothing is changed then.
"""

import contextlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.hub.database import Database, StoreError
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.databases.store import lock_folder, open_database
from embereye.hub.databases.transfer import CopiedTable
from embereye.process.files import restrict
from embereye.process.lifecycle import NotFoundError, UserError
from embereye_cli.processes.hub import DATABASE


@dataclass(frozen=True)
class Place:
    """A hub's data folder, or the address of its PostgreSQL; the address wins."""

    folder: Path = Path()
    database: str = ""

    @property
    def file(self) -> Path:
        """The database in the folder."""
        return self.folder / "hub.sqlite"


def add_place(parser: ArgumentParser) -> None:
    """Declare --data and --database; one of them is required. Options win over environment variables."""
    parser.add_argument("--data", type=Path, default=None,
                        help="the hub's data folder, if its database is there [EMBEREYE_DATA]")  # fmt: skip
    DATABASE.add_to(parser)
    parser.set_defaults(database="")


def find_place(arguments: Namespace) -> Place:
    """The place that `arguments` name, or else environment variables. UserError if neither does."""
    data, database = arguments.data, arguments.database
    if data is None and not database:
        data, database = os.environ.get("EMBEREYE_DATA", ""), os.environ.get("EMBEREYE_DATABASE", "")
    if database:
        return Place(database=database)
    if not data:
        raise UserError("--data or --database is missing. Name the hub's data folder, or its PostgreSQL.")
    return Place(Path(data))


def check_stored(place: Place) -> None:
    """Raise NotFoundError if no hub has stored anything in the folder."""
    if not place.database and not place.file.exists():
        raise NotFoundError(
            f"{place.file} does not exist. Name the data folder of a hub, or its PostgreSQL with --database."
        )


@contextlib.contextmanager
def reading(place: Place) -> Iterator[Database]:
    """The database at `place`, for reading; a hub may be using it."""
    with closing(_open_beside(place)) as database:
        yield database


@contextlib.contextmanager
def owning(place: Place) -> Iterator[Database]:
    """The database at `place`, created if needed; UserError if a hub is using it."""
    if place.database:
        with closing(open_database(Path(), place.database)) as database:
            yield database
        return
    lock = lock_folder(place.folder)
    try:
        _prepare(place.file)
        with closing(open_database(place.folder)) as database:
            yield database
    finally:
        os.close(lock)


@contextlib.contextmanager
def closing(database: Database) -> Iterator[Database]:
    """`database`, closed at the end; UserError if it fails, now or in the block."""
    try:
        if database.failing:
            raise UserError(database.failing)
        yield database
    except StoreError as error:
        raise UserError(f"{error}; nothing was changed") from error
    finally:
        database.close()


def _prepare(file: Path) -> None:
    """Create the file with the folder's owner, and close it to other users as the hub does.

    SQLite gives its log the same owner and permissions.
    """
    with contextlib.suppress(OSError):  # if the folder is read-only, opening the file reports it
        file.touch(0o660)
        folder = file.parent.stat()
        os.chown(file, folder.st_uid, folder.st_gid)
    restrict([file], 0o007)


def _open_beside(place: Place) -> Database:
    if place.database:
        return open_database(Path(), place.database, writer=False)
    check_stored(place)
    return SqliteDatabase(place.file, only_read=True)


def print_copied(copied: Sequence[CopiedTable], target: str) -> None:
    """Print the number of rows of each table."""
    for table in copied:
        print(f"{table.name:12} {table.rows:9,} {'row' if table.rows == 1 else 'rows'}")
    print(f"copied to {target}, compared row by row: identical")
