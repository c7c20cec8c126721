"""Limit the series with a device label: devices beyond the limit are only in the status, not in Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import gauge

DEVICE_SERIES = 1_000  # devices of one shard with separate series
WITHOUT_SERIES = gauge(
    "embereye_shard_devices_without_series",
    f"Devices beyond the first {DEVICE_SERIES} of this shard, which have no separate series.",
)


def over_limit(devices: int) -> Iterator[Metric]:
    """Yield the number of `devices` without separate series."""
    yield WITHOUT_SERIES.value(max(0, devices - DEVICE_SERIES))
