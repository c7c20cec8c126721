"""Fleets as their operator sees them, as metrics: of a cluster's operator and of `embereye up` alike."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.monitoring.metrics import BY_NAME


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


# What each gauge tells; None: nothing to tell. Names, units and help stand in `metrics.py`.
GAUGES: dict[str, Callable[[FleetView], float | None]] = {
    "embereye_fleet_required_shards": lambda told: told.required,
    "embereye_fleet_shards": lambda told: told.status.shards,
    "embereye_fleet_ready_shards": lambda told: told.status.ready_shards,
    "embereye_fleet_min_shards": lambda told: told.fleet.spec.autoscaling.min_shards,
    "embereye_fleet_max_shards": lambda told: told.fleet.spec.autoscaling.max_shards,
    "embereye_fleet_placement_epoch": lambda told: told.status.placement_epoch,
    "embereye_fleet_devices": lambda told: told.status.devices.declared,
    "embereye_fleet_devices_covered": lambda told: told.status.devices.covered,
    "embereye_fleet_utilization_ratio": lambda told: told.status.load.utilization if told.status.load else None,
    "embereye_fleet_shard_capacity_cores": lambda told: shard_capacity(told.fleet),
    "embereye_fleet_target_utilization_ratio": lambda told: told.fleet.spec.autoscaling.target_utilization,
    "embereye_fleet_arrivals_per_second": lambda told: told.status.load.arrival_rate if told.status.load else None,
    "embereye_fleet_item_cost_seconds": lambda told: told.status.load.cost if told.status.load else None,
    "embereye_fleet_queue_depth": lambda told: told.status.load.queue_depth if told.status.load else None,
    "embereye_fleet_oldest_item_seconds": lambda told: told.status.load.oldest_age if told.status.load else None,
    "embereye_fleet_lead_seconds": lambda told: told.status.load.lead if told.status.load else None,
    "embereye_fleet_scaled_timestamp_seconds": lambda told: (
        _seconds(told.status.last_scale.time) if told.status.last_scale else None
    ),
    "embereye_fleet_alerts_enabled": lambda told: told.fleet.spec.alerts.enabled,
    "embereye_fleet_paused": lambda told: told.fleet.spec.paused,
}
COUNTERS: dict[str, Callable[[FleetReport], float]] = {
    "embereye_operator_passes_total": lambda told: told.passes,
    "embereye_operator_failures_total": lambda told: told.failures,
    "embereye_operator_pass_seconds_total": lambda told: told.seconds,
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
        for name, read in GAUGES.items():
            gauge = _gauge(name)
            for view, values in views:
                if (value := read(view)) is not None:
                    gauge.add_metric(values, value)
            yield gauge
        condition, age = _gauge("embereye_fleet_condition"), _gauge("embereye_fleet_pass_age_seconds")
        for told, values in reports:
            for name, true in told.conditions.items():
                condition.add_metric([*values, name], float(true))
            if told.latest:
                age.add_metric(values, time.monotonic() - told.latest)
        yield condition
        yield age
        for name, count in COUNTERS.items():
            counter = CounterMetricFamily(name.removesuffix("_total"), BY_NAME[name].help, labels=BY_NAME[name].labels)
            for told, values in reports:
                counter.add_metric(values, count(told))
            yield counter


def _gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, BY_NAME[name].help, labels=BY_NAME[name].labels)
