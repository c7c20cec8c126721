"""The option of `embereye hub` for the archive, and the parts that it adds to the hub.

Only the hub that owns the database uploads. obstore is imported only for a bucket.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from embereye.addons.archive.metrics import archive_metrics, backup_metrics
from embereye.addons.archive.options import OPTION, ArchiveOptions, read_archive
from embereye.addons.archive.tables import ARCHIVED
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

OPTIONS = OptionGroup(
    "archive", "copy evidence to an S3 bucket or a folder (addons/archive/README.md)",
    declared_file(OPTION, "that names the bucket or the folder"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    options = read_archive(arguments.archive) if arguments.archive else None
    return ArchiveAddon(options, arguments.data, arguments.database)


class ArchiveAddon(Addon):
    """Uploads evidence, and backups, to the place that `options` name, and serves copies of the history."""

    metrics = "embereye_hub_archive_"

    def __init__(self, options: ArchiveOptions | None, folder: Path, database: str) -> None:
        """`folder` is the hub's data folder; `database` is the address of its PostgreSQL, or ''."""
        self._options = options
        self._folder = folder
        self._database = database

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the routes and the uploader; see `Addon.attach`."""
        from embereye.addons.archive.backups import Backups
        from embereye.addons.archive.copies import HistoryCopies
        from embereye.addons.archive.http import BackupRoutes
        from embereye.addons.archive.places import check_library
        from embereye.addons.archive.uploader import Uploader

        copies = HistoryCopies(self._folder, self._database)
        routes = [BackupRoutes(hub, clips, copies)]
        if self._options is None:
            return replace(self.stand_by(), routes=routes)
        check_library(self._options)
        progress = Rows(ARCHIVED)
        hub.add_part(progress)
        uploader = Uploader(hub, clips, progress, self._options)
        if not self._options.backup_seconds:
            collectors = [Scraped(lambda: archive_metrics(uploader))]
            return Parts(routes=routes, collectors=collectors, tasks={"archive": uploader.run})
        backups = Backups(hub, progress, self._options, copies)
        return Parts(
            routes=routes,
            collectors=[Scraped(lambda: [*archive_metrics(uploader), *backup_metrics(backups)])],
            tasks={"archive": uploader.run, "backups": backups.run},
        )
