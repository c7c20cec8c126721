"""Write a hub's stored history, without clips, to one file. The hub can keep running.

The file shows the history at one moment.
"""

import contextlib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.databases.transfer import copy_history
from embereye.process.files import sync_file, sync_folder
from embereye.process.lifecycle import UserError
from embereye_cli.hub_history.places import add_place, closing, find_place, print_copied, reading


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    add_place(parser)
    parser.add_argument("file", type=Path, help="file to write: an SQLite database, also if the hub uses PostgreSQL")


def run(arguments: Namespace) -> int:
    """Write the complete file, or nothing."""
    file: Path = arguments.file
    if file.exists():
        raise UserError(f"{file} already exists. Name another file.")
    draft = file.with_name(f".{file.name}.partial")
    leftovers = (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm"))
    try:
        for left in leftovers:  # of a run that was killed
            left.unlink(missing_ok=True)
        draft.touch(0o600)  # it contains the audit trail and digests of tokens
        with reading(find_place(arguments)) as source, closing(SqliteDatabase(draft)) as target:
            copied = copy_history(source, target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, also for read-only media
        sync_file(draft)
        draft.rename(file)
        sync_folder(file.absolute().parent)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        for left in leftovers:
            with contextlib.suppress(OSError):  # a read-only folder has no leftovers
                left.unlink(missing_ok=True)
    print_copied(copied, str(file))
    return 0
