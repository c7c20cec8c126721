"""The margins' file: blocks of shards by fleet and time, limited by age and size.

It is a SQLite separate database beside the hub's, so that it can be deleted at any time, and no alarm waits for it.
All work is done on a dedicated thread. A damaged file is replaced.
"""

import asyncio
import contextlib
import errno
import json
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from embereye.margins import Margin
from embereye.process.condition import Condition
from embereye.process.margins_call import Block, margins_in
from embereye.units import MINUTE

logger = logging.getLogger(__name__)
R = TypeVar("R")
NAME = "margins.sqlite"
DEFAULT_BYTES = 2 * 1024**3
FREE_BYTES = 256 * 1024**2  # left free on the disk for the database, which alarms need
LONGEST_NS = 10 * MINUTE  # of a block; a query looks no further back for blocks that overlap its span
EXPIRE_SECONDS = 600.0  # between two deletions of what is too old
SCHEMA = """
create table if not exists margin_blocks
  (fleet text, shard text, from_ns integer, until_ns integer, shift_ns integer, content blob,
   profiles text);
create index if not exists blocks_by_time on margin_blocks (fleet, until_ns);
create index if not exists blocks_by_age on margin_blocks (until_ns);
"""


class NotStoredError(Exception):
    """The disk cannot store or read margins now; the message says why."""


class MarginStore:
    """The stored margins. `failing.why` says why none can be stored."""

    def __init__(self, folder: Path, *, capacity: int = DEFAULT_BYTES, retention_ns: int) -> None:
        """Keep up to `capacity` bytes in `folder`, for `retention_ns`."""
        self.failing = Condition(logger, begin=logging.ERROR)
        self.bytes = 0
        self.oldest_ns = 0  # 0: nothing is stored
        self._path = folder / NAME
        self._capacity = capacity
        self._retention_ns = retention_ns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="margins")
        self._closed = False
        self._database: sqlite3.Connection | None = None

    async def add(self, block: Block, now_ns: int, profiles: Mapping[str, str] | None = None) -> None:
        """Store a block that arrived at `now_ns` (Unix epoch), and delete the oldest ones. NotStoredError.

        `profiles` are the present ones of zones, by zone.
        """
        await self._run(partial(self._add, block, now_ns, dict(profiles or {})))

    async def find(self, fleet: str, device: str, from_ns: int, until_ns: int) -> list[Margin]:
        """The margins of a device that overlap a span, in order of time. NotStoredError."""
        return await self._run(partial(self._find, fleet, device, from_ns, until_ns))

    async def profiles(self, fleet: str, zone: str, from_ns: int, until_ns: int) -> list[str]:
        """The names of the profiles that a zone had in a span. NotStoredError."""
        return await self._run(partial(self._profiles, fleet, zone, from_ns, until_ns))

    async def run(self) -> None:
        """Delete what is too old, now and then, until cancelled."""
        while True:
            with contextlib.suppress(NotStoredError):  # `failing` says why
                await self._run(partial(self._expire, time.time_ns()))
            await asyncio.sleep(EXPIRE_SECONDS)

    async def close(self) -> None:
        """Close the file."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], R]) -> R:
        if self._closed:
            raise NotStoredError("the hub is stopping")
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
        except (sqlite3.Error, OSError) as error:
            why = f"{self._path}: {error}"
            self.failing.fail(why, "margins cannot be stored: %s; alarms are not affected", why)
            raise NotStoredError(why) from error
        self.failing.clear("margins can be stored again")
        return result

    # Runs on the thread

    def _work(self, work: Callable[[], R]) -> R:
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # such as a full disk
                raise
            logger.warning("%s: %s: it is replaced, margins before now are lost", self._path, error)
            self._close()
            for path in self._path.parent.glob(f"{NAME}*"):
                path.unlink()
            self.bytes = self.oldest_ns = 0
            return work()

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = self._connect()
        return self._database

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = normal")
            database.executescript(SCHEMA)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _add(self, block: Block, now_ns: int, profiles: dict[str, str]) -> None:
        database, capacity = self._open(), self._capacity
        if shutil.disk_usage(self._path.parent).free < FREE_BYTES:
            if self.bytes < len(block.content):
                raise OSError(errno.ENOSPC, f"less than {FREE_BYTES >> 20} MB are free")
            capacity = min(capacity, self.bytes)  # deleted blocks leave room in the file
        shift_ns = now_ns - block.sent_ns  # the shard's clock may be wrong; the age of its margins is not
        from_ns, until_ns = block.from_ns + shift_ns, block.until_ns + shift_ns
        database.execute(
            "insert into margin_blocks values (?, ?, ?, ?, ?, ?, ?)",
            (block.fleet, block.shard, from_ns, until_ns, shift_ns, block.content, json.dumps(profiles)),
        )
        self.bytes += len(block.content)
        self.oldest_ns = min(self.oldest_ns or from_ns, from_ns)
        while self.bytes > capacity:
            rows = database.execute("select rowid from margin_blocks order by until_ns limit 20").fetchall()
            database.executemany("delete from margin_blocks where rowid = ?", rows)
            self._measure()

    def _expire(self, now_ns: int) -> None:
        self._open().execute("delete from margin_blocks where until_ns < ?", (now_ns - self._retention_ns,))
        self._measure()

    def _measure(self) -> None:
        row = self._open().execute("select total(length(content)), min(from_ns) from margin_blocks").fetchone()
        self.bytes, self.oldest_ns = int(row[0]), row[1] or 0

    def _rows(self, columns: str, fleet: str, from_ns: int, until_ns: int) -> sqlite3.Cursor:
        """The blocks of a fleet that overlap a span."""
        condition = "fleet = ? and until_ns > ? and until_ns < ? and from_ns < ?"
        return self._open().execute(
            f"select {columns} from margin_blocks where {condition} order by from_ns",
            (fleet, from_ns, until_ns + LONGEST_NS, until_ns),
        )

    def _profiles(self, fleet: str, zone: str, from_ns: int, until_ns: int) -> list[str]:
        names = (json.loads(text).get(zone) for (text,) in self._rows("profiles", fleet, from_ns, until_ns))
        return list(dict.fromkeys(filter(None, names)))

    def _find(self, fleet: str, device: str, from_ns: int, until_ns: int) -> list[Margin]:
        rows = self._rows("content, shift_ns", fleet, from_ns, until_ns)
        results = list[Margin]()
        for content, shift_ns in rows:
            try:
                margins = list(margins_in(content, device))
                for margin in margins:
                    margin["fromNs"] += shift_ns
                    margin["untilNs"] += shift_ns
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("%s: a block of %s cannot be read: %s", self._path, fleet, error)
            else:
                results += [margin for margin in margins if margin["untilNs"] > from_ns and margin["fromNs"] < until_ns]
        return sorted(results, key=lambda margin: margin["fromNs"])

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
