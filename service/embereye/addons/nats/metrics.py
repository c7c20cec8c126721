"""The metrics of the bus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge

if TYPE_CHECKING:
    from embereye.addons.nats.jetstream import JetStreamBus

FAILING = gauge("embereye_hub_bus_failing", "1 while the stream in NATS accepts no reports.")
WAITING = gauge("embereye_hub_bus_waiting_reports", "Reports in the stream that this hub has not read.")
PUBLISHED = counter("embereye_hub_bus_published_total", "Reports that the stream acknowledged.")
FAILURES = counter("embereye_hub_bus_failures_total", "Connections to NATS that failed or broke.")


def bus_metrics(bus: "JetStreamBus") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_bus_."""
    yield FAILING.value(bool(bus.failing))
    yield WAITING.value(bus.pending)
    yield PUBLISHED.value(bus.published)
    yield FAILURES.value(bus.failures)
