"""The operator's view of fleets as metrics, for the cluster's operator and for `embereye up`.

GAUGES and COUNTERS are tables of a metric and a function that reads its value. At each scrape `FleetMetrics` calls
`reports` and applies them; no value is stored between scrapes. A fleet without a recent successful pass has no view:
its gauges are absent instead of outdated, because an autoscaler would follow them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import Metric as Family

from embereye.process.telemetry.metric import Metric, ScrapedCollector, counter, gauge, histogram
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus, LoadSummary
from embereye_operator.decide.manifests.container import shard_capacity


@dataclass(frozen=True)
class FleetView:
    """A fleet whose status is reliable."""

    fleet: Fleet
    status: FleetStatus
    required: int  # number of shards for external autoscalers
    load: LoadSummary | None  # as measured in the latest pass


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


FLEET = ("namespace", "kind", "fleet")  # kind is sensors or cameras


Gauge = tuple[Metric, Callable[[FleetView], float | None]]  # and its value; None: no sample


def _gauge(name: str, text: str, read: Callable[[FleetView], float | None]) -> Gauge:
    return gauge(name, text, FLEET), read


def _load_gauge(name: str, text: str, read: Callable[[LoadSummary], float]) -> Gauge:
    return _gauge(name, f"{text}, as used for scaling.", lambda view: read(view.load) if view.load else None)


GAUGES = (
    _gauge("embereye_fleet_required_shards", "Shards that the scaling law requires.", lambda view: view.required),
    _gauge("embereye_fleet_shards", "Shards that exist.", lambda view: view.status.shards),
    _gauge("embereye_fleet_ready_shards", "Shards that follow the current placement.",
           lambda view: view.status.ready_shards),
    _gauge("embereye_fleet_min_shards", "Smallest number of shards for scaling.",
           lambda view: view.fleet.spec.autoscaling.min_shards),
    _gauge("embereye_fleet_max_shards", "Largest number of shards for scaling.",
           lambda view: view.fleet.spec.autoscaling.max_shards),
    _gauge("embereye_fleet_placement_epoch", "Epoch of the placement.", lambda view: view.status.placement_epoch),
    _gauge("embereye_fleet_devices", "Devices declared.", lambda view: view.status.devices.declared),
    _gauge("embereye_fleet_devices_covered", "Devices covered.", lambda view: view.status.devices.covered),
    _gauge("embereye_fleet_utilization_ratio", "Share of one core in use, mean over the shards.",
           lambda view: view.load.utilization if view.load else None),
    _gauge("embereye_fleet_shard_capacity_cores", "Cores that one shard can use, as used for scaling.",
           lambda view: shard_capacity(view.fleet)),
    _gauge("embereye_fleet_target_utilization_ratio", "Target of scaling, as a share of a shard's capacity.",
           lambda view: view.fleet.spec.autoscaling.target_utilization),
    _load_gauge("embereye_fleet_arrivals_per_second", "Items arriving at all shards", lambda load: load.arrival_rate),
    _load_gauge("embereye_fleet_item_cost_seconds", "CPU time per item", lambda load: load.cost),
    _load_gauge("embereye_fleet_queue_depth", "Items waiting in all shards", lambda load: load.queue_depth),
    _load_gauge("embereye_fleet_oldest_item_seconds", "Age of the oldest waiting item", lambda load: load.oldest_age),
    _load_gauge("embereye_fleet_lead_seconds", "Time until a new shard is ready", lambda load: load.lead),
    _gauge("embereye_fleet_scaled_timestamp_seconds", "Time of the latest change of the number of shards.",
           lambda view: _seconds(view.status.last_scale.time) if view.status.last_scale else None),
    _gauge("embereye_fleet_alerts_enabled", "1 if the fleet's alerts are enabled (spec.alerts.enabled).",
           lambda view: view.fleet.spec.alerts.enabled),
    _gauge("embereye_fleet_paused", "1 if the fleet is paused (spec.paused).", lambda view: view.fleet.spec.paused),
)  # fmt: skip
CONDITION = gauge("embereye_fleet_condition", "1 if the condition is true.", (*FLEET, "condition"))
PASS_AGE = gauge("embereye_fleet_pass_age_seconds", "Time since the latest successful pass.", FLEET)
COUNTERS: tuple[tuple[Metric, Callable[[FleetReport], float]], ...] = (
    (counter("embereye_operator_passes_total", "Reconcile passes.", FLEET), lambda report: report.passes),
    (counter("embereye_operator_failures_total", "Passes that failed.", FLEET), lambda report: report.failures),
    (counter("embereye_operator_pass_seconds_total", "Time spent in passes.", FLEET), lambda report: report.seconds),
)
PASS_DURATIONS = histogram(
    "embereye_operator_pass_duration_seconds",
    "Time of a pass, of all fleets.",
    only_where="the operator runs in a cluster",
)
WRITES = counter(
    "embereye_operator_writes_total",
    "Patches of objects, by kind and whether they changed the object.",
    ["kind", "changed"],
    only_where="the operator writes to a cluster's API server",
)
LEADING = gauge("embereye_operator_leading", "1 if this replica leads and acts.")


def _seconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


class FleetMetrics(ScrapedCollector):
    """Calls `reports` at scrape time. An unknown fleet has only pass counts, because autoscalers would act on a 0."""

    def __init__(
        self, reports: Callable[[], Iterable[FleetReport]], is_leading: Callable[[], bool] = lambda: True
    ) -> None:
        self._reports = reports
        self._is_leading = is_leading

    def collect(self) -> Iterator[Family]:
        """Yield one sample per fleet and family, and one per condition."""
        yield LEADING.value(self._is_leading())
        reports = [(report, (report.namespace, report.kind, report.name)) for report in self._reports()]
        views = [(report.view, labels) for report, labels in reports if report.view]
        for metric, read in GAUGES:
            values = [(labels, read(view)) for view, labels in views]
            yield metric.rows((labels, value) for labels, value in values if value is not None)
        yield CONDITION.rows(
            ((*labels, name), is_true) for report, labels in reports for name, is_true in report.conditions.items()
        )
        now = time.monotonic()
        yield PASS_AGE.rows((labels, now - report.latest) for report, labels in reports if report.latest)
        for metric, count in COUNTERS:
            yield metric.rows((labels, count(report)) for report, labels in reports)


class WriteMetrics(ScrapedCollector):
    """Calls `counts` at scrape time: patches by kind of object, and whether they changed it."""

    def __init__(self, counts: Callable[[], Mapping[tuple[str, bool], int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Family]:
        """Yield the counter of patches."""
        yield WRITES.rows(((kind, str(changed).lower()), count) for (kind, changed), count in self._counts().items())
