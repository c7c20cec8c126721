"""`embereye operator`: watches fleets and keeps their shards as declared."""

import asyncio
import logging
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiohttp import web
from lightkube import AsyncClient
from lightkube.core.exceptions import ConfigError
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from embereye.process import lifecycle
from embereye.process.http_server import serve_http
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks, first_of
from embereye_operator.controller import Controller
from embereye_operator.handlers import Watches
from embereye_operator.manifests import Settings
from embereye_operator.model import FLEET_TYPES
from embereye_operator.runtime.kubernetes import ALL_NAMESPACES, KubernetesRuntime
from embereye_operator.runtime.lease import Election
from embereye_operator.trace import Trace

logger = logging.getLogger(__name__)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--namespace", default=env("NAMESPACE"), help="watch this namespace [EMBEREYE_NAMESPACE]")
    scope.add_argument("--all-namespaces", action="store_true", help="watch all namespaces; so without --namespace")
    parser.add_argument(
        "--hub",
        default=env("HUB", "embereye-hub:50052"),
        help="host:port of the hub, as shards reach it [EMBEREYE_HUB]",
    )
    parser.add_argument("--image", default=env("IMAGE"), help="image of the shards [EMBEREYE_IMAGE]")
    parser.add_argument(
        "--image-pull-policy",
        default=env("IMAGE_PULL_POLICY"),
        choices=["", "Always", "IfNotPresent", "Never"],
        help="of the shards; empty: Kubernetes' default [EMBEREYE_IMAGE_PULL_POLICY]",
    )
    parser.add_argument(
        "--shard-host",
        default=env("SHARD_HOST", "0.0.0.0"),
        help="address that shards listen on; [::] where pods have IPv6 alone [EMBEREYE_SHARD_HOST]",
    )
    parser.add_argument(
        "--lease",
        default=env("LEASE"),
        metavar="[NAMESPACE/]NAME",
        help="of several operators only the holder of this Lease acts; empty: there is only one [EMBEREYE_LEASE]",
    )
    parser.add_argument(
        "--prometheus",
        default=env("PROMETHEUS", Settings.prometheus),
        help="URL of the Prometheus that KEDA asks for fleets with autoscaling.mode keda [EMBEREYE_PROMETHEUS]",
    )
    parser.add_argument(
        "--monitor-labels",
        type=labels,
        default=env("MONITOR_LABELS"),
        metavar="K=V,…",
        help="labels by which Prometheus selects monitors and rules, for example release=prometheus",
    )
    parser.add_argument(
        "--scaling-trace",
        type=Path,
        default=Path(env("SCALING_TRACE")) if env("SCALING_TRACE") else None,
        metavar="DIR",
        help="record there what scaling decides on, for `embereye explain replay` [EMBEREYE_SCALING_TRACE]",
    )
    parser.add_argument(
        "--health-port", type=int, default=int(env("HEALTH_PORT", "8080")), help="port of /healthz and /metrics"
    )


def labels(text: str) -> dict[str, str]:
    """`a=b,c=d` as a mapping; an argparse type."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if any(not name or not value for name, _, value in pairs):
        raise ArgumentTypeError(f'"{text}" is not a list of labels such as release=prometheus')
    return {name: value for name, _, value in pairs}


def run(arguments: Namespace, *, runtime: type[KubernetesRuntime] = KubernetesRuntime) -> int:
    """Run the operator until SIGTERM; returns the exit code."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    return lifecycle.run(lambda stop: serve(arguments, stop, runtime))


async def serve(arguments: Namespace, stop: asyncio.Event, runtime_type: type[KubernetesRuntime]) -> int:
    """Run the operator until `stop` is set."""
    if not arguments.image:
        raise UserError("--image is empty: name the image that shards run, or set EMBEREYE_IMAGE")
    namespace = "" if arguments.all_namespaces else arguments.namespace
    try:
        client = AsyncClient()
    except ConfigError as error:
        raise UserError(f"no Kubernetes cluster is configured ({error}): set KUBECONFIG, or run in a pod") from error
    settings = Settings(
        image=arguments.image,
        hub=arguments.hub,
        image_pull_policy=arguments.image_pull_policy,
        host=arguments.shard_host,
        prometheus=arguments.prometheus,
        monitor_labels=arguments.monitor_labels,
        trace=Trace(arguments.scaling_trace).write if arguments.scaling_trace else None,
    )
    election = _election(client, arguments.lease)
    leads = election.leads if election else lambda: True
    runtime = runtime_type(client, hub=arguments.hub, namespace=namespace or ALL_NAMESPACES, leads=leads)
    controller = Controller(runtime, settings, leads)
    runner = await serve_http(_health_app(controller, election), "0.0.0.0", arguments.health_port)
    try:
        async with Tasks() as tasks:
            tasks.start(controller.run(), name="controller")
            # kopf looks for the resources only once: they have been listed before it starts.
            await first_of(controller.synced(), stop.wait(), tasks.failed.wait())
            if stop.is_set() or tasks.failed.is_set():
                return int(tasks.failed.is_set())
            watches = Watches(controller.observe, namespace=namespace)
            if election:
                # Whoever cannot see the world yet does not stand for election.
                election.changed = controller.lead
                tasks.start(election.run(), name="election")
            logger.info("operator ready: %s, image %s", namespace or "all namespaces", arguments.image)
            await first_of(stop.wait(), tasks.failed.wait(), watches.ended.wait())
            failed = not stop.is_set()
            await watches.stop()
            return int(failed)
    finally:
        if election:
            await election.release()
        await runtime.close()
        await runner.cleanup()


def _election(client: AsyncClient, lease: str) -> Election | None:
    if not lease:
        return None
    namespace, _, name = lease.rpartition("/")
    return Election(client, name, namespace or client.namespace)


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
        for (resource, namespace, fleet), record in self._controller.known().items():
            if not record.latest:
                continue  # unknown is not 0: an autoscaler would take shards away
            values = [namespace, FLEET_TYPES[resource].kind, fleet]
            for name, (_, attribute) in gauges.items():
                families[name].add_sample(
                    name, dict(zip(labels, values, strict=True)), getattr(record.status, attribute)
                )
            if record.status.load:
                utilization.add_metric(values, record.status.load.utilization)
            declared.add_metric(values, record.status.devices.declared)
            covered.add_metric(values, record.status.devices.covered)
            for entry in record.status.conditions:
                condition.add_metric([*values, entry.type], float(entry.status == "True"))
            passes.add_metric(values, record.passes)
            failures.add_metric(values, record.failures)
            seconds.add_metric(values, record.seconds)
        yield from families.values()
        yield from (declared, covered, utilization, condition, passes, failures, seconds)


def _health_app(controller: Controller, election: Election | None) -> web.Application:
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
