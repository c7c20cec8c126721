"""The metrics of the bus."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import Metric as Declaration
from embereye.process.telemetry.metric import ScrapedCollector, counter, gauge

if TYPE_CHECKING:
    from embereye.addons.nats.jetstream import JetStreamBus

BUS: tuple[tuple[Declaration, Callable[["JetStreamBus"], float]], ...] = (
    (
        gauge("embereye_hub_bus_failing", "1 while the stream in NATS accepts no reports."),
        lambda bus: bool(bus.failing),
    ),
    (
        gauge("embereye_hub_bus_waiting_reports", "Reports in the stream that this hub has not read."),
        lambda bus: bus.pending,
    ),
    (counter("embereye_hub_bus_published_total", "Reports that the stream acknowledged."), lambda bus: bus.published),
    (
        counter("embereye_hub_bus_failures_total", "Connections to NATS that failed or broke."),
        lambda bus: bus.failures,
    ),
)


class BusMetrics(ScrapedCollector):
    """Collects the metrics that start with embereye_hub_bus_; without samples if NATS is not used."""

    def __init__(self, bus: "JetStreamBus | None") -> None:
        self._bus = bus

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        for metric, read in BUS:
            yield metric.rows([((), read(self._bus))] if self._bus else ())
