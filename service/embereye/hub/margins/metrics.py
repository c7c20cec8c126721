"""The metrics of stored margins."""

import time
from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.hub.margins.store import MarginStore
from embereye.process.telemetry.metric import gauge
from embereye.units import SECOND

BYTES = gauge("embereye_hub_margins_bytes", "Bytes of stored margins, by which people learn why there was no alarm.")
SPAN = gauge("embereye_hub_margins_span_seconds", "Age of the oldest stored margin; 0 if there is none.")
FAILING = gauge("embereye_hub_margins_failing", "1 while no margins can be stored.")


def margin_metrics(store: MarginStore) -> Iterator[Metric]:
    """Yield the metric families that start with embereye_hub_margins_."""
    yield BYTES.value(store.bytes)
    yield SPAN.value(max(0.0, (time.time_ns() - store.oldest_ns) / SECOND) if store.oldest_ns else 0.0)
    yield FAILING.value(bool(store.failing))
