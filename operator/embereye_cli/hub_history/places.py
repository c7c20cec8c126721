"""Where a hub keeps what it has stored, as commands name it."""

import contextlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from embereye.hub.databases.interface import Database, StoreError
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.storage.store import lock_folder, open_database
from embereye.hub.storage.transfer import CopiedTable
from embereye.process.lifecycle import UserError
from embereye_cli.processes.hub import add_database


def add_place(parser: ArgumentParser) -> None:
    """Declare --data and --database, one of which is needed."""
    folder = os.environ.get("EMBEREYE_DATA", "")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None,
                        help="the hub's data folder, where its database is in there [EMBEREYE_DATA]")  # fmt: skip
    add_database(parser)


@contextlib.contextmanager
def reading(arguments: Namespace) -> Iterator[Database]:
    """The database that `arguments` name, beside the hub that may be running on it."""
    if arguments.database:
        with closing(open_database(Path(), arguments.database, writer=False)) as database:
            yield database
        return
    with closing(SqliteDatabase(_file(arguments), only_read=True)) as database:
        yield database


@contextlib.contextmanager
def owning(arguments: Namespace) -> Iterator[Database]:
    """The database that `arguments` name, made where there is none; UserError where a hub is running on it."""
    if arguments.database:
        with closing(open_database(Path(), arguments.database)) as database:
            yield database
        return
    folder = _folder(arguments)
    lock = lock_folder(folder)
    try:
        with closing(open_database(folder)) as database:
            yield database
    finally:
        os.close(lock)


@contextlib.contextmanager
def closing(database: Database) -> Iterator[Database]:
    """`database`, which has to be of use now; UserError where it is not, or ceases to be."""
    try:
        if database.failing:
            raise UserError(database.failing)
        yield database
    except StoreError as error:
        raise UserError(f"{error}; nothing was changed") from error
    finally:
        database.close()


def _folder(arguments: Namespace) -> Path:
    if arguments.data is None:
        raise UserError("--data or --database is missing: name the hub's data folder, or its PostgreSQL")
    return Path(arguments.data)


def _file(arguments: Namespace) -> Path:
    path = _folder(arguments) / "hub.sqlite"
    if not path.exists():
        raise UserError(f"{path} does not exist: name the data folder of a hub, or its PostgreSQL with --database")
    return path


def print_copied(copied: Sequence[CopiedTable], target: str) -> None:
    """Say what was copied."""
    for table in copied:
        print(f"{table.name:12} {table.rows:9,} {'row' if table.rows == 1 else 'rows'}")
    print(f"copied to {target}, compared row by row: identical")
