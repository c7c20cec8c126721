"""The operator's view of fleets as metrics, for the cluster's operator and for `embereye up`."""

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
    """A fleet whose status is reliable."""

    fleet: Fleet
    status: FleetStatus
    required: int  # number of shards for external autoscalers


@dataclass(frozen=True)
class FleetReport:
    """The history of the passes over one fleet."""

    namespace: str
    kind: str  # sensors or cameras
    name: str
    view: FleetView | None  # None: its status is outdated or missing
    conditions: Mapping[str, bool]  # by type; True only if it is known to be true
    passes: int
    failures: int
    seconds: float  # sum over all passes
    latest: float  # monotonic seconds of the latest successful pass; 0: none


# The value of each gauge; None: no sample. Names, units and help texts are in `metrics.py`.
GAUGES: dict[str, Callable[[FleetView], float | None]] = {
    "embereye_fleet_required_shards": lambda view: view.required,
    "embereye_fleet_shards": lambda view: view.status.shards,
    "embereye_fleet_ready_shards": lambda view: view.status.ready_shards,
    "embereye_fleet_min_shards": lambda view: view.fleet.spec.autoscaling.min_shards,
    "embereye_fleet_max_shards": lambda view: view.fleet.spec.autoscaling.max_shards,
    "embereye_fleet_placement_epoch": lambda view: view.status.placement_epoch,
    "embereye_fleet_devices": lambda view: view.status.devices.declared,
    "embereye_fleet_devices_covered": lambda view: view.status.devices.covered,
    "embereye_fleet_utilization_ratio": lambda view: view.status.load.utilization if view.status.load else None,
    "embereye_fleet_shard_capacity_cores": lambda view: shard_capacity(view.fleet),
    "embereye_fleet_target_utilization_ratio": lambda view: view.fleet.spec.autoscaling.target_utilization,
    "embereye_fleet_arrivals_per_second": lambda view: view.status.load.arrival_rate if view.status.load else None,
    "embereye_fleet_item_cost_seconds": lambda view: view.status.load.cost if view.status.load else None,
    "embereye_fleet_queue_depth": lambda view: view.status.load.queue_depth if view.status.load else None,
    "embereye_fleet_oldest_item_seconds": lambda view: view.status.load.oldest_age if view.status.load else None,
    "embereye_fleet_lead_seconds": lambda view: view.status.load.lead if view.status.load else None,
    "embereye_fleet_scaled_timestamp_seconds": lambda view: (
        _seconds(view.status.last_scale.time) if view.status.last_scale else None
    ),
    "embereye_fleet_alerts_enabled": lambda view: view.fleet.spec.alerts.enabled,
    "embereye_fleet_paused": lambda view: view.fleet.spec.paused,
}
COUNTERS: dict[str, Callable[[FleetReport], float]] = {
    "embereye_operator_passes_total": lambda report: report.passes,
    "embereye_operator_failures_total": lambda report: report.failures,
    "embereye_operator_pass_seconds_total": lambda report: report.seconds,
}


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


class FleetMetrics(Collector):
    """Calls `reports` at scrape time. An unknown fleet has only pass counts, because autoscalers would act on a 0."""

    def __init__(self, reports: Callable[[], Iterable[FleetReport]]) -> None:
        self._reports = reports

    def describe(self) -> Iterable[Metric]:
        """Return an empty description, so that prometheus_client does not collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield one sample per fleet and family, and one per condition."""
        reports = [(report, [report.namespace, report.kind, report.name]) for report in self._reports()]
        views = [(report.view, values) for report, values in reports if report.view]
        for name, read in GAUGES.items():
            gauge = _gauge(name)
            for view, values in views:
                if (value := read(view)) is not None:
                    gauge.add_metric(values, value)
            yield gauge
        condition, age = _gauge("embereye_fleet_condition"), _gauge("embereye_fleet_pass_age_seconds")
        for report, values in reports:
            for name, true in report.conditions.items():
                condition.add_metric([*values, name], float(true))
            if report.latest:
                age.add_metric(values, time.monotonic() - report.latest)
        yield condition
        yield age
        for name, count in COUNTERS.items():
            counter = CounterMetricFamily(name.removesuffix("_total"), BY_NAME[name].help, labels=BY_NAME[name].labels)
            for report, values in reports:
                counter.add_metric(values, count(report))
            yield counter


def _gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, BY_NAME[name].help, labels=BY_NAME[name].labels)
