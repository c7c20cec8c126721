"""The operator's pages: /healthz for the kubelet, /metrics for Prometheus."""

import time
from collections.abc import Iterable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from embereye_operator.controller import Controller
from embereye_operator.model import FLEET_TYPES
from embereye_operator.runtime.lease import Election


class OperatorMetrics(Collector):
    """Fleets as the operator sees them, read at scrape time."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: prometheus_client would otherwise collect at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One sample per fleet and family."""
        labels = ["namespace", "kind", "fleet"]
        gauges = {
            "embereye_fleet_required_shards": ("Shards that the scaling law asks for.", "required_shards"),
            "embereye_fleet_shards": ("Shards that exist.", "shards"),
            "embereye_fleet_ready_shards": ("Shards that work under the current placement.", "ready_shards"),
            "embereye_fleet_placement_epoch": ("Epoch of the placement.", "placement_epoch"),
        }
        families: dict[str, Metric] = {}
        for name, (text, _) in gauges.items():
            families[name] = GaugeMetricFamily(name, text, labels=labels)
        utilization = GaugeMetricFamily(
            "embereye_fleet_utilization_ratio", "Share of one core in use, mean over the shards.", labels=labels
        )
        declared = GaugeMetricFamily("embereye_fleet_devices", "Devices declared.", labels=labels)
        covered = GaugeMetricFamily("embereye_fleet_devices_covered", "Devices covered.", labels=labels)
        condition = GaugeMetricFamily(
            "embereye_fleet_condition", "1 where the condition is true.", labels=[*labels, "condition"]
        )
        passes = CounterMetricFamily("embereye_operator_passes", "Reconcile passes.", labels=labels)
        failures = CounterMetricFamily("embereye_operator_failures", "Passes that failed.", labels=labels)
        seconds = CounterMetricFamily("embereye_operator_pass_seconds", "Time spent in passes.", labels=labels)
        now, known = time.monotonic(), self._controller.known()
        for (resource, namespace, fleet), record in known.items():
            values = [namespace, FLEET_TYPES[resource].kind, fleet]
            current = record.is_current(now, len(known))
            # Unknown is not 0: an autoscaler would take shards away.
            if current:
                for name, (_, attribute) in gauges.items():
                    families[name].add_sample(
                        name, dict(zip(labels, values, strict=True)), getattr(record.status, attribute)
                    )
                if record.status.load:
                    utilization.add_metric(values, record.status.load.utilization)
                declared.add_metric(values, record.status.devices.declared)
                covered.add_metric(values, record.status.devices.covered)
            # A condition that cannot be believed is not true; whoever relies on it has to hear of it.
            for entry in record.status.conditions:
                true = entry.status == "True" if current or entry.type == "Degraded" else False
                condition.add_metric([*values, entry.type], float(true))
            passes.add_metric(values, record.passes)
            failures.add_metric(values, record.failures)
            seconds.add_metric(values, record.seconds)
        writes = CounterMetricFamily(
            "embereye_operator_writes", "Patches of objects, and whether they changed any.", labels=["kind", "changed"]
        )
        for (kind, changed), count in self._controller.writes.items():
            writes.add_metric([kind, str(changed).lower()], count)
        yield writes
        yield from families.values()
        yield from (declared, covered, utilization, condition, passes, failures, seconds)


def health_app(controller: Controller, election: Election | None) -> web.Application:
    """Both pages: /healthz answers 503 with the reason why the operator should be restarted."""
    registry = CollectorRegistry()
    registry.register(OperatorMetrics(controller))
    leading = Gauge("embereye_operator_leading", "1 where this operator acts.", registry=registry)
    leading.set_function(lambda: float(election.leads() if election else True))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    app = web.Application()

    async def healthz(_: web.Request) -> web.Response:
        reason = controller.unhealthy() or (election.unhealthy() if election else "")
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    return app
