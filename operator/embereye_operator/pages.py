"""The operator's pages: /healthz for the kubelet, /metrics for Prometheus.

`process.py` serves them from the start, on one port. Values are read from the controller at each request. A fleet whose
status is outdated has no gauges, and its conditions count as false, so that alerts on them fire. `/healthz` fails if
the controller or the election asks for a restart.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry

from embereye.process.http.server import metrics_app
from embereye.process.tasks import beside
from embereye.process.telemetry.metric import Scraped
from embereye.process.telemetry.runtime_metrics import RuntimeMetrics
from embereye_operator.addon import OperatorPart
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.controller import Controller
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.scaling.followers import followed_shards
from embereye_operator.monitoring.fleets import PASS_DURATIONS, FleetMetrics, FleetReport, FleetView, WriteMetrics
from embereye_operator.runtime.kubernetes.lease import Election


def fleet_reports(controller: Controller) -> Iterator[FleetReport]:
    """Yield the controller's knowledge of each fleet."""
    now, known = time.monotonic(), controller.records
    tolerance = controller.runtime.world.is_offered(TOLERANCE)
    for (resource, namespace, name), record in known.items():
        current = record.is_current(now, len(known))
        # An outdated condition counts as false, so that alerts on it fire.
        conditions = {
            entry.type: entry.status == "True" if current or entry.type == "Degraded" else False
            for entry in record.status.conditions
        }
        view = None
        if current and record.fleet:
            status, mode = record.status, record.fleet.spec.autoscaling.mode
            required = followed_shards(mode, status.required_shards, status.shards, tolerance=tolerance)
            view = FleetView(record.fleet, status, required, record.load)
        yield FleetReport(
            namespace, FLEET_TYPES[resource].kind, name, view, conditions,
            record.passes, record.failures, record.seconds, record.latest,
        )  # fmt: skip


def health_app(
    controller: Controller, election: Election | None, parts: Sequence[OperatorPart] = ()
) -> web.Application:
    """Build both pages: /healthz answers 503 with the reason to restart the operator. `parts` are those of add-ons."""
    registry = CollectorRegistry()
    is_leading = election.is_leading if election else lambda: True
    registry.register(FleetMetrics(lambda: fleet_reports(controller), is_leading))
    registry.register(WriteMetrics(lambda: controller.runtime.writer.write_counts))
    registry.register(Scraped(lambda: [PASS_DURATIONS.histograms([((), controller.pass_durations)])]))
    for collector in (collector for part in parts for collector in part.collectors):
        registry.register(collector)
    runtime = RuntimeMetrics(registry, lambda: controller.credentials)

    async def measure(_: web.Application) -> AsyncIterator[None]:
        async with beside(runtime.run(), name="event-loop-lag"):
            yield

    app = metrics_app(registry, lambda: controller.unhealthy() or (election.unhealthy() if election else ""))
    app.cleanup_ctx.append(measure)
    return app
