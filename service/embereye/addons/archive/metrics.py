"""The metrics of the archive in a bucket."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import Metric as Declaration
from embereye.process.telemetry.metric import counter, gauge
from embereye.units import SECOND

if TYPE_CHECKING:
    from embereye.addons.archive.backups import Backups
    from embereye.addons.archive.uploader import Uploader

FAILING = gauge("embereye_hub_archive_failing", "1 while evidence cannot be uploaded to the bucket.")
LAG = gauge("embereye_hub_archive_lag_seconds", "Time for which the oldest evidence has waited for its upload.")
EVENTS = gauge("embereye_hub_archive_waiting_events", "Events that are not in the bucket.")
CLIPS = gauge("embereye_hub_archive_waiting_clips", "Clips and stills that are not in the bucket.")
OBJECTS = counter("embereye_hub_archive_objects_total", "Objects uploaded to the bucket.")
BYTES = counter("embereye_hub_archive_uploaded_bytes_total", "Bytes uploaded to the bucket.")
MISSING = counter("embereye_hub_archive_missing_total", "Clips that were deleted before their upload.")
BACKUP_FAILING = gauge("embereye_hub_archive_backup_failing", "1 while no backup can be made.")
BACKUP_AGE = gauge(
    "embereye_hub_archive_backup_age_seconds", "Time since the newest backup of the hub's history was begun."
)
BACKUP_BYTES = gauge("embereye_hub_archive_backup_bytes", "Size of the newest backup since the hub started.")
BACKUP_OVERDUE = gauge(
    "embereye_hub_archive_backup_overdue_seconds", "Time for which a backup of the hub's history has been due."
)

WHERE = "a FleetBackup is declared"


def _of_backups(name: str, text: str) -> Declaration:
    return gauge(name, text, ("namespace", "backup"), only_where=WHERE)


READY = _of_backups("embereye_operator_backup_ready", "1 if the newest backup that was due was made.")
OVERDUE = _of_backups("embereye_operator_backup_overdue_seconds", "Time for which a backup has been due.")
AGE = _of_backups("embereye_operator_backup_age_seconds", "Time since the newest backup was begun.")
SIZE = _of_backups("embereye_operator_backup_size_bytes", "Size of the newest backup's history.")


def archive_metrics(uploader: "Uploader") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_archive_."""
    yield FAILING.value(bool(uploader.failing))
    yield LAG.value(uploader.lag_ns / SECOND)
    yield EVENTS.value(uploader.waiting_events)
    yield CLIPS.value(uploader.waiting_clips)
    yield OBJECTS.value(uploader.uploaded)
    yield BYTES.value(uploader.uploaded_bytes)
    yield MISSING.value(uploader.missing)


def backup_metrics(backups: "Backups") -> Iterator[Metric]:
    """Yield the metrics of backups."""
    yield BACKUP_FAILING.value(bool(backups.failing))
    yield BACKUP_OVERDUE.value(backups.overdue_ns / SECOND)
    age_ns = backups.age_ns
    yield BACKUP_AGE.rows([] if age_ns is None else [((), age_ns / SECOND)])
    yield BACKUP_BYTES.rows([((), backups.size)] if backups.size else [])
