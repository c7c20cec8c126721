"""The metrics of the archive in a bucket."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, counter, gauge
from embereye.units import SECOND

if TYPE_CHECKING:
    from embereye.addons.archive.uploader import Uploader

FAILING = gauge("embereye_hub_archive_failing", "1 while evidence cannot be uploaded to the bucket.")
LAG = gauge("embereye_hub_archive_lag_seconds", "Time for which the oldest evidence has waited for its upload.")
EVENTS = gauge("embereye_hub_archive_waiting_events", "Events that are not in the bucket.")
CLIPS = gauge("embereye_hub_archive_waiting_clips", "Clips and stills that are not in the bucket.")
OBJECTS = counter("embereye_hub_archive_objects_total", "Objects uploaded to the bucket.")
BYTES = counter("embereye_hub_archive_uploaded_bytes_total", "Bytes uploaded to the bucket.")
MISSING = counter("embereye_hub_archive_missing_total", "Clips that were deleted before their upload.")


class ArchiveMetrics(ScrapedCollector):
    """Collects the metrics that start with embereye_hub_archive_; without samples if there is no archive."""

    def __init__(self, uploader: "Uploader | None") -> None:
        self._uploader = uploader

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        uploader = self._uploader
        values = (
            (FAILING, bool(uploader.failing)), (LAG, uploader.lag_ns / SECOND), (EVENTS, uploader.waiting_events),
            (CLIPS, uploader.waiting_clips), (OBJECTS, uploader.uploaded), (BYTES, uploader.uploaded_bytes),
            (MISSING, uploader.missing),
        ) if uploader else ()  # fmt: skip
        for metric in (FAILING, LAG, EVENTS, CLIPS, OBJECTS, BYTES, MISSING):
            yield metric.rows([((), float(value)) for its_metric, value in values if its_metric is metric])
