"""Backups of the hub's history at an interval: `backups/TIME.sqlite.gz` in the archive's place.

Clips are separate objects. Without `keepBackups` nothing is deleted: then the key needs no right to delete, and a
lifecycle rule of the bucket can.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

from embereye.addons.archive.copies import FOLDER, SUFFIX, HistoryCopies, backup_name, present_stamp
from embereye.addons.archive.options import ArchiveOptions
from embereye.addons.archive.places import Place, PlaceError, open_place
from embereye.addons.archive.uploader import store_progress
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.process.condition import Condition
from embereye.process.timing.backoff import Backoff
from embereye.units import SECOND

logger = logging.getLogger(__name__)
BACKUP = "backup"  # the position: when the newest backup was begun, on the hub's timeline
MEDIA = "application/gzip"
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")
PAUSE_SECONDS, MAX_PAUSE_SECONDS = 10.0, 600.0  # after a failure
LOOK_SECONDS = 60.0  # between two looks at the time


class Backups:
    """Makes a backup every `backup_seconds` of the options. `run` it until cancelled."""

    def __init__(
        self, hub: Hub, progress: Rows[str, int], options: ArchiveOptions, copies: HistoryCopies,
        *, open_bucket: Callable[[ArchiveOptions], Place] = open_place,
    ) -> None:  # fmt: skip
        self.failing = Condition(logger, begin=logging.ERROR)
        self._hub = hub
        self._progress = progress
        self._options = options
        self._copies = copies
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
                except (PlaceError, StoreError, StoreFailingError, OSError) as error:
                    why = str(error)
                    self.failing.fail(why, "backup to %s: %s; trying again", self._options.name, why)
                    await asyncio.sleep(backoff.next())
                    continue
                self.failing.clear("backup to %s: made again", self._options.name)
                backoff.reset()
            await asyncio.sleep(min(LOOK_SECONDS, self._options.backup_seconds))

    async def _back_up(self) -> None:
        begun_ns, name = self._hub.timeline.now_ns(), backup_name(present_stamp())
        place = self._open_bucket(self._options)
        async with self._copies.packed() as (packed, digest):
            await place.put(name, packed, MEDIA, {"sha256": digest})
            size = packed.stat().st_size
        await store_progress(self._hub, self._progress, {BACKUP: begun_ns}, self._options.name, [(name, digest)])
        self.size = size
        logger.info("backup to %s: %s", self._options.name, name)
        await asyncio.to_thread(prune, place, self._options)


def prune(place: Place, options: ArchiveOptions) -> int:
    """Delete all backups but the newest `keep`, and those that a person named; 0 keeps all. Returns their number.

    A place that refuses is only logged, because the new backup is there.
    """
    if not options.keep:
        return 0
    deleted = 0
    try:
        names = [name for name, _ in place.list(FOLDER) if STAMPED.fullmatch(Path(name).name.removesuffix(SUFFIX))]
        for name in names[: -options.keep]:
            place.delete(name)
            deleted += 1
    except PlaceError as error:
        logger.warning("backup to %s: old backups cannot be deleted: %s; the next backup tries again",
                       options.name, error)  # fmt: skip
    return deleted
