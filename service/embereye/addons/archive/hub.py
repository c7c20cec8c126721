"""The option of `embereye hub` for the archive, and the parts that it adds to the hub.

Only the hub that owns the database uploads. obstore is imported only if the option is used.
"""

from argparse import Namespace
from pathlib import Path

from embereye.addons.archive.metrics import archive_metrics, backup_metrics
from embereye.addons.archive.options import OPTION, ArchiveOptions, read_archive
from embereye.addons.archive.tables import ARCHIVED
from embereye.hub.addon import Addon, Parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.hub import Hub
from embereye.hub.tables.transaction import Rows
from embereye.process.extras import needed_by
from embereye.process.telemetry.metric import Scraped
from embereye_cli.options import OptionGroup, declared_file

OPTIONS = OptionGroup(
    "archive", "upload evidence to an S3 bucket (addons/archive/README.md)",
    declared_file(OPTION, "that names the bucket"),
)  # fmt: skip


def read(arguments: Namespace) -> Addon:
    """The add-on with its options; UserError if the file is wrong."""
    options = read_archive(arguments.archive) if arguments.archive else None
    return ArchiveAddon(options, arguments.data, arguments.database)


class ArchiveAddon(Addon):
    """Uploads evidence, and backups, to the bucket that `options` name."""

    metrics = "embereye_hub_archive_"

    def __init__(self, options: ArchiveOptions | None, folder: Path, database: str) -> None:
        """`folder` is the hub's data folder; `database` is the address of its PostgreSQL, or ''."""
        self._options = options
        self._folder = folder
        self._database = database

    def attach(self, hub: Hub, clips: ClipStore) -> Parts:
        """Make the uploader; see `Addon.attach`."""
        if self._options is None:
            return self.stand_by()
        with needed_by(OPTION, "obstore", "s3"):
            from embereye.addons.archive.backups import Backups
            from embereye.addons.archive.uploader import Uploader
        progress = Rows(ARCHIVED)
        hub.add_part(progress)
        uploader = Uploader(hub, clips, progress, self._options)
        if not self._options.backup_seconds:
            return Parts(collectors=[Scraped(lambda: archive_metrics(uploader))], tasks={"archive": uploader.run})
        backups = Backups(hub, progress, self._options, self._folder, self._database)
        return Parts(
            collectors=[Scraped(lambda: [*archive_metrics(uploader), *backup_metrics(backups)])],
            tasks={"archive": uploader.run, "backups": backups.run},
        )
