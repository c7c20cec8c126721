"""Salvage: replaces a damaged SQLite database by a new one with every row that can still be read.

`replace_damaged` copies the damaged file, applies its write-ahead log to the copy, and reads the copy table by table
into a new file. If the tables cannot be found, because the first page or another page of the schema is damaged, these
pages are taken from a new database: the same statements create tables in the same places. Rows with values of the wrong
type are not taken. Finally the damaged files are renamed and the new file takes their place.
"""

import contextlib
import datetime as dt
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from embereye.hub.databases import schema
from embereye.hub.databases.log_file import read_log
from embereye.hub.databases.losses import note_loss
from embereye.hub.roles import Role
from embereye.process.files import sync_file, sync_folder
from embereye.process.sqlite_files import SUFFIXES
from embereye.units import counted

SALVAGE_SECONDS = 20.0  # longest time for copying rows, in which the hub does not watch
MAX_ASIDE = 5  # damaged databases in the folder; more could fill the disk
CURSORS_AHEAD = 1_000_000_000  # more than a hub uses: subscribers that saw lost events must not miss new ones
MAX_CURSOR = 2**53  # larger ones are damaged; programs in JavaScript cannot count further
HEADER = b"SQLite format 3\0"
# Tables that may have many rows come last, so that a time limit affects history only.
LARGE = ("evidence", "episodes", "alarms", "audit", "ledgers", "events", "plan_images", "pictures")
TYPES: dict[str, type] = {"INTEGER": int, "TEXT": str, "BLOB": bytes}


@dataclass
class _Salvage:
    """The result of copying the readable rows."""

    rows: int = 0
    newest: int = 0  # cursor of the newest event that is known
    damaged: list[str] = field(default_factory=list)  # names of tables with rows that cannot be read
    unfinished: bool = False  # the time limit was reached


def replace_damaged(path: Path, why: str) -> None:
    """Set the damaged database at `path` aside and put a new one with its readable rows in its place.

    The loss is listed in the folder and in the new database's audit trail. OSError or sqlite3.Error if that fails: the
    damaged files then remain.
    """
    now = dt.datetime.now(dt.UTC)
    if len(list(path.parent.glob(f"{path.name}.damaged-*Z"))) >= MAX_ASIDE:
        raise OSError(f"{counted(MAX_ASIDE, 'damaged file')} are set aside already: copy them elsewhere or remove them")
    aside = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S.%fZ}")
    draft, image = (path.with_name(path.name + suffix) for suffix in (".salvage", ".image"))
    try:
        _remove(draft)
        newest = 0
        try:
            salvage = _copy_readable(path, image, draft)
            loss, newest = _describe(path, aside, why, salvage), min(salvage.newest, MAX_CURSOR)
        except (OSError, sqlite3.Error) as error:
            _remove(draft)
            loss = f"{path.name}: {why}. It was set aside as {aside.name}, and nothing could be salvaged: {error}."
        with contextlib.closing(create_tables(draft)) as db:
            db.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
            numbering = "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)"
            db.execute(numbering, (newest + CURSORS_AHEAD,))
            db.execute(
                """INSERT INTO audit (time_ns, who, role, address, action, subject, detail, recorded_ns)
                    VALUES (?, 'hub', ?, '', 'database damaged', ?, ?, ?)""",
                (time.time_ns(), int(Role.ADMIN), path.name, loss, time.time_ns()),
            )
        sync_file(draft)
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
        draft.rename(path)
        sync_folder(path.parent)
        note_loss(path.parent, loss)
    finally:
        _remove(draft)
        _remove(image)


def create_tables(path: Path) -> sqlite3.Connection:
    """Open the database at `path` and create its missing tables. They have the same pages in each new file."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.executescript(schema.TABLES)
    except BaseException:
        db.close()
        raise
    return db


def _describe(path: Path, aside: Path, why: str, salvage: _Salvage) -> str:
    tables = f"; not all rows of {', '.join(salvage.damaged)}" if salvage.damaged else ""
    limit = f"; the limit of {SALVAGE_SECONDS:.0f} s was reached" if salvage.unfinished else ""
    return (
        f"{path.name}: {why}. It was set aside as {aside.name}, and {counted(salvage.rows, 'row')} could be "
        f"salvaged{tables}{limit}."
    )


def _remove(path: Path) -> None:
    for suffix in (*SUFFIXES, "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy_readable(path: Path, image: Path, draft: Path) -> _Salvage:
    """Copy the readable rows of the database at `path` to `draft`; `image` is room for a copy of the file."""
    if path.exists():
        shutil.copyfile(path, image)
    else:
        image.touch()
    wal = path.with_name(path.name + "-wal")
    if wal.is_file():
        _apply_log(wal, image)
    with contextlib.closing(create_tables(draft)) as target:
        roots = {row[0] for row in target.execute("SELECT rootpage FROM sqlite_schema")}
        if path.exists():
            shutil.copymode(path, draft)
        _detach_header(image)
        if not _has_tables(image):
            _graft_schema(draft, roots, image)
        with contextlib.closing(_open_image(image)) as source:
            target.execute("PRAGMA synchronous = OFF")  # the finished file is synced
            return _copy_tables(source, target)


def _apply_log(wal: Path, image: Path) -> None:
    """Write the whole committed pages of the write-ahead log `wal` into `image`."""
    with image.open("r+b") as file:
        for frame in read_log(wal).frames:
            file.seek((frame.page - 1) * len(frame.data))
            file.write(frame.data)


def _detach_header(image: Path) -> None:
    """Make SQLite read `image` without a log and trust its length, which may be shorter than the header says."""
    with image.open("r+b") as file:
        if file.read(16) == HEADER:
            file.seek(18)
            file.write(b"\1\1")  # format without a write-ahead log
            file.seek(92)
            file.write(bytes(4))  # the number of pages in the header is valid for another version


def _open_image(image: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{quote(str(image))}?mode=ro&immutable=1", uri=True, isolation_level=None)
    db.text_factory = lambda text: text.decode(errors="replace")
    return db


def _has_tables(image: Path) -> bool:
    """True if `image` has a readable schema with at least one table of the hub."""
    try:
        with contextlib.closing(_open_image(image)) as db:
            return bool({row[0] for row in db.execute("SELECT name FROM sqlite_schema")} & set(schema.table_names()))
    except sqlite3.Error:
        return False


def _graft_schema(new: Path, roots: set[int], image: Path) -> None:
    """Replace the pages of the schema in `image` by those of the `new` database, whose tables begin at `roots`."""
    data = new.read_bytes()
    size = struct.unpack(">H", data[16:18])[0]
    if image.stat().st_size < size:
        raise sqlite3.DatabaseError("the file is shorter than one page")
    with image.open("r+b") as file:
        for number in range(1, len(data) // size + 1):
            if number not in roots:
                file.seek((number - 1) * size)
                file.write(data[(number - 1) * size : number * size])
    _detach_header(image)


def _copy_tables(source: sqlite3.Connection, target: sqlite3.Connection) -> _Salvage:
    salvage, deadline = _Salvage(), time.monotonic() + SALVAGE_SECONDS
    for table in sorted(schema.table_names(), key=lambda name: LARGE.index(name) if name in LARGE else -1):
        kinds = [TYPES[kind] for (kind,) in target.execute("SELECT type FROM pragma_table_info(?)", (table,))]
        marks = ", ".join("?" * len(kinds))
        target.execute("BEGIN")
        for row in _readable_rows(source, target, table, salvage):
            if len(row) == len(kinds) and all(map(isinstance, row, kinds)):
                # Rows at the edge of damage are read twice.
                salvage.rows += target.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row).rowcount
            elif table not in salvage.damaged:
                salvage.damaged.append(table)
            if time.monotonic() > deadline:
                salvage.unfinished = True
                break
        target.execute("COMMIT")
    for query in ("SELECT MAX(cursor) FROM events", "SELECT MAX(last_cursor) FROM alarms"):
        salvage.newest = max(salvage.newest, target.execute(query).fetchone()[0] or 0)
    with contextlib.suppress(sqlite3.Error):
        row = source.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        salvage.newest = max(salvage.newest, int(row[0]) if row else 0)
    return salvage


def _readable_rows(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, salvage: _Salvage
) -> Iterator[tuple[object, ...]]:
    """Yield the readable rows of `table`, maybe some twice; notes in `salvage` if there is damage."""
    keys = [row[0] for row in target.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (table,))]
    names = [row[0] for row in target.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    query = f"SELECT {', '.join(names)} FROM {table} NOT INDEXED"
    for order in ("DESC", "ASC"):  # the newest first, in case the time is too short for all
        try:
            yield from source.execute(f"{query} ORDER BY {', '.join(f'{key} {order}' for key in keys)}")
        except sqlite3.Error:
            if table not in salvage.damaged:
                salvage.damaged.append(table)
        else:
            return
    if (table, keys[0]) not in schema.numbered_tables():
        return
    # Both ends have been read up to damage. Between two damaged pages, probe numbers at growing distances.
    position, step = 0, 1
    while position < 2**62:
        try:
            for row in source.execute(f"{query} WHERE {keys[0]} > ? ORDER BY {keys[0]}", (position,)):
                yield row
                position, step = int(row[names.index(keys[0])]), 1
        except (sqlite3.Error, ValueError, TypeError):
            position, step = position + step, 2 * step
        else:
            return
