"""Backups of the hub's history in the bucket: `backups/TIME.sqlite.gz`, each as `embereye hub backup` writes it.

A separate process copies the history, so that alarms do not wait. Clips are separate objects. Nothing is deleted
here: the key needs no right to delete, and a lifecycle rule of the bucket can.
"""

import asyncio
import contextlib
import gzip
import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from embereye.addons.archive.bucket import Bucket, BucketError
from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.uploader import store_progress
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.process.condition import Condition
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND

logger = logging.getLogger(__name__)
FOLDER = "backups"
SUFFIX = ".sqlite.gz"
STAMP = "%Y-%m-%dT%H-%M-%SZ"  # the name: when it was begun, in UTC
BACKUP = "backup"  # the position: when the newest backup was begun, on the hub's timeline
DRAFT = ".backup-draft"  # begins the names of files that are removed before and after each backup
FREE_BYTES = 256 * 1024**2  # left free on the disk for the database, which alarms need
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 10.0, 600.0  # after a failure
LOOK_SECONDS = 60.0  # between two looks at the time
NICENESS = 5


class Backups:
    """Makes a backup every `backup_seconds` of the options. `run` it until cancelled."""

    def __init__(
        self, hub: Hub, progress: Rows[str, int], options: ArchiveOptions, folder: Path, database: str = "",
        *, open_bucket: Callable[[ArchiveOptions], Bucket] = Bucket,
    ) -> None:  # fmt: skip
        """`folder` is the hub's data folder; `database` is the address of its PostgreSQL, or ''."""
        self.failing = Condition(logger, begin=logging.ERROR)
        self._hub = hub
        self._progress = progress
        self._options = options
        self._folder = folder
        self._database = database
        self._open_bucket = open_bucket
        self._begun_ns = hub.timeline.now_ns()
        self.size = 0  # bytes of the newest backup of this run

    @property
    def overdue_ns(self) -> int:
        """The time for which a backup has been due; 0 if none is."""
        interval_ns = int(self._options.backup_seconds * SECOND)
        due_ns = self._progress[BACKUP] + interval_ns if BACKUP in self._progress else self._begun_ns
        return max(0, self._hub.timeline.now_ns() - due_ns)

    @property
    def age_ns(self) -> int | None:
        """The time since the newest backup was begun; None if there is none."""
        begun_ns = self._progress.get(BACKUP)
        return None if begun_ns is None else max(0, self._hub.timeline.now_ns() - begun_ns)

    async def run(self) -> None:
        """Make backups until cancelled."""
        backoff = Backoff(floor=PAUSE_SECONDS, cap=MAX_PAUSE_SECONDS)
        while True:
            if self.overdue_ns:
                try:
                    await self._back_up()
                except (BucketError, StoreError, StoreFailingError, OSError) as error:
                    why = str(error)
                    self.failing.fail(why, "backup to %s: %s; trying again", self._options.bucket, why)
                    await asyncio.sleep(backoff.next())
                    continue
                self.failing.clear("backup to %s: made again", self._options.bucket)
                backoff.reset()
            await asyncio.sleep(min(LOOK_SECONDS, self._options.backup_seconds))

    async def _back_up(self) -> None:
        begun_ns, stamp = self._hub.timeline.now_ns(), time.strftime(STAMP, time.gmtime())
        bucket = self._open_bucket(self._options)
        draft, packed = self._folder / f"{DRAFT}.sqlite", self._folder / f"{DRAFT}{SUFFIX}"
        name = f"{FOLDER}/{stamp}{SUFFIX}"
        try:
            self._make_room(draft, packed)
            await copy_history(draft, self._folder, self._database)
            digest = await asyncio.to_thread(_pack, draft, packed)
            await bucket.put(name, packed, "application/gzip", {"sha256": digest})
            size = packed.stat().st_size
        finally:
            _remove(draft, packed)
        await store_progress(self._hub, self._progress, {BACKUP: begun_ns}, self._options.bucket, [(name, digest)])
        self.size = size
        logger.info("backup to %s: %s", self._options.bucket, name)

    def _make_room(self, *drafts: Path) -> None:
        """Remove what a killed hub left; OSError if the disk has too little room."""
        _remove(*drafts)
        database = self._folder / "hub.sqlite"
        needed = FREE_BYTES + (2 * database.stat().st_size if database.exists() else 0)
        if shutil.disk_usage(self._folder).free < needed:
            raise OSError(f"{self._folder}: less than {needed >> 20} MB are free")


async def copy_history(file: Path, folder: Path, database: str) -> None:
    """Run `embereye hub backup` as a separate process; OSError if it fails."""
    # The address may contain a password, which everybody could read among the arguments.
    place: Mapping[str, str] = {"EMBEREYE_DATA": str(folder), "EMBEREYE_DATABASE": database}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "hub", "backup", str(file), env={**os.environ, **place},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        with contextlib.suppress(ProcessLookupError):  # it failed at once, and says why
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = output.decode(errors="replace").strip().splitlines()
        raise OSError(lines[-1] if lines else f"the copy ended with code {process.returncode}")


def _pack(file: Path, packed: Path) -> str:
    """Compress `file`; return the SHA-256 of the result."""
    with file.open("rb") as source, gzip.open(packed, "wb", compresslevel=4) as target:
        shutil.copyfileobj(source, target, 1024**2)
    with packed.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _remove(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.partial").unlink(missing_ok=True)  # of `embereye hub backup`
