"""Fleets as their operator sees them, as metrics: of a cluster's operator and of `embereye up` alike."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus

LABELS = ("namespace", "kind", "fleet")


@dataclass(frozen=True)
class FleetView:
    """A fleet whose status may be believed."""

    fleet: Fleet
    status: FleetStatus
    required: int  # shards, as autoscalers of others are told them


@dataclass(frozen=True)
class FleetReport:
    """How the passes over one fleet went."""

    namespace: str
    kind: str  # sensors or cameras
    name: str
    view: FleetView | None  # None: what its status says may not be true any more, or never was
    conditions: Mapping[str, bool]  # by type, whether it is known to be true
    passes: int
    failures: int
    seconds: float  # of all passes
    latest: float  # monotonic seconds of the latest pass that succeeded; 0: none has


GAUGES: dict[str, tuple[str, Callable[[FleetView], float | None]]] = {
    "required_shards": ("Shards that the scaling law asks for.", lambda told: told.required),
    "shards": ("Shards that exist.", lambda told: told.status.shards),
    "ready_shards": ("Shards that work under the current placement.", lambda told: told.status.ready_shards),
    "min_shards": ("Fewest shards that scaling leaves.", lambda told: told.fleet.spec.autoscaling.min_shards),
    "max_shards": ("Most shards that scaling makes.", lambda told: told.fleet.spec.autoscaling.max_shards),
    "placement_epoch": ("Epoch of the placement.", lambda told: told.status.placement_epoch),
    "devices": ("Devices declared.", lambda told: told.status.devices.declared),
    "devices_covered": ("Devices covered.", lambda told: told.status.devices.covered),
    "utilization_ratio": (
        "Share of one core in use, mean over the shards.",
        lambda told: told.status.load.utilization if told.status.load else None,
    ),
    "target_utilization_ratio": (
        "Share of one core that scaling aims at.",
        lambda told: told.fleet.spec.autoscaling.target_utilization,
    ),
    "arrivals_per_second": (
        "Items that arrive at all shards, as scaling sees it.",
        lambda told: told.status.load.arrival_rate if told.status.load else None,
    ),
    "item_cost_seconds": (
        "CPU time per item, as scaling sees it.",
        lambda told: told.status.load.cost if told.status.load else None,
    ),
    "queue_depth": (
        "Items waiting in all shards, as scaling sees it.",
        lambda told: told.status.load.queue_depth if told.status.load else None,
    ),
    "oldest_item_seconds": (
        "How long the longest waiting item has been waiting, as scaling sees it.",
        lambda told: told.status.load.oldest_age if told.status.load else None,
    ),
    "lead_seconds": (
        "Time until a new shard is ready, as scaling sees it.",
        lambda told: told.status.load.lead if told.status.load else None,
    ),
    "scaled_timestamp_seconds": (
        "When the number of shards was changed last.",
        lambda told: _seconds(told.status.last_scale.time) if told.status.last_scale else None,
    ),
    "alerts_enabled": (
        "1 where alerts of the fleet are wanted (spec.alerts.enabled).",
        lambda told: told.fleet.spec.alerts.enabled,
    ),
    "paused": ("1 where the fleet is left as it is (spec.paused).", lambda told: told.fleet.spec.paused),
}
COUNTERS: dict[str, tuple[str, Callable[[FleetReport], float]]] = {
    "passes": ("Reconcile passes.", lambda told: told.passes),
    "failures": ("Passes that failed.", lambda told: told.failures),
    "pass_seconds": ("Time spent in passes.", lambda told: told.seconds),
}


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


class FleetMetrics(Collector):
    """Asks `reports` at scrape time. Of a fleet not known yet only passes are told: scalers would act on a 0."""

    def __init__(self, reports: Callable[[], Iterable[FleetReport]]) -> None:
        self._reports = reports

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: prometheus_client would otherwise collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One sample per fleet and family, and one per condition."""
        reports = [(told, [told.namespace, told.kind, told.name]) for told in self._reports()]
        views = [(told.view, values) for told, values in reports if told.view]
        for name, (text, read) in GAUGES.items():
            gauge = GaugeMetricFamily(f"embereye_fleet_{name}", text, labels=LABELS)
            for view, values in views:
                if (value := read(view)) is not None:
                    gauge.add_metric(values, value)
            yield gauge
        condition = GaugeMetricFamily(
            "embereye_fleet_condition", "1 where the condition is true.", labels=[*LABELS, "condition"]
        )
        age = GaugeMetricFamily(
            "embereye_fleet_pass_age_seconds", "Since the latest reconcile pass that succeeded.", labels=LABELS
        )
        for told, values in reports:
            for name, true in told.conditions.items():
                condition.add_metric([*values, name], float(true))
            if told.latest:
                age.add_metric(values, time.monotonic() - told.latest)
        yield condition
        yield age
        for name, (text, count) in COUNTERS.items():
            counter = CounterMetricFamily(f"embereye_operator_{name}", text, labels=LABELS)
            for told, values in reports:
                counter.add_metric(values, count(told))
            yield counter
