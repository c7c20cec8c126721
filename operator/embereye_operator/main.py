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
from embereye.process.lifecycle import Tasks, UserError, first_of
from embereye_operator.controller import Controller
from embereye_operator.handlers import Watches
from embereye_operator.holding import TAKE_OVER
from embereye_operator.manifests import Settings
from embereye_operator.model import FLEET_TYPES
from embereye_operator.runtime.holds import Holds
from embereye_operator.runtime.kubernetes import ALL_NAMESPACES, KubernetesRuntime
from embereye_operator.runtime.lease import DURATION, Election
from embereye_operator.selection import Scope, split_names
from embereye_operator.trace import Trace

logger = logging.getLogger(__name__)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--namespace",
        action="append",
        metavar="NAME,…",
        help="watch these namespaces alone; may be repeated [EMBEREYE_NAMESPACE]",
    )
    scope.add_argument("--all-namespaces", action="store_true", help="watch all namespaces; so without --namespace")
    parser.add_argument(
        "--fleet-selector",
        default=env("FLEET_SELECTOR"),
        metavar="SELECTOR",
        help="look after fleets with these labels alone, for example site=north [EMBEREYE_FLEET_SELECTOR]",
    )
    parser.add_argument(
        "--take-over-after",
        type=float,
        default=float(env("TAKE_OVER_AFTER", f"{TAKE_OVER:g}")),
        metavar="SECONDS",
        help="how long another operator's Lease must not have changed until its fleets are taken over "
        "[EMBEREYE_TAKE_OVER_AFTER]",
    )
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
        default=env("SHARD_HOST"),
        help="address that shards listen on; empty: every address, IPv4 and IPv6 [EMBEREYE_SHARD_HOST]",
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
    scope = _scope(arguments)
    if arguments.take_over_after < DURATION:
        raise UserError(f"--take-over-after {arguments.take_over_after:g} is less than the {DURATION:g} s of a Lease")
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
        operator=_operator(client, arguments.lease),
        trace=Trace(arguments.scaling_trace).write if arguments.scaling_trace else None,
    )
    election = _election(client, arguments.lease, scope)
    leads = election.leads if election else lambda: True
    runtime = runtime_type(
        client,
        hub=arguments.hub,
        namespace=scope.namespaces or ALL_NAMESPACES,
        selects=scope.selects,
        operator=settings.operator,
        leads=leads,
    )
    holds = Holds(client, runtime, name=settings.operator, image=settings.image, patience=arguments.take_over_after)
    controller = Controller(runtime, settings, leads, holds)
    runner = await serve_http(_health_app(controller, election), "[::]", arguments.health_port)
    try:
        async with Tasks() as tasks:
            tasks.start(controller.run(), name="controller")
            # kopf looks for the resources only once: they have been listed before it starts.
            await first_of(controller.synced(), stop.wait(), tasks.failed.wait())
            if stop.is_set() or tasks.failed.is_set():
                return int(tasks.failed.is_set())
            watches = Watches(controller.observe, namespaces=scope.namespaces)
            if election:
                # Whoever cannot see the world yet does not stand for election.
                election.changed = controller.lead
                tasks.start(election.run(), name="election")
            logger.info(
                "operator ready: %s, image %s", ", ".join(scope.namespaces) or "all namespaces", arguments.image
            )
            await first_of(stop.wait(), tasks.failed.wait(), watches.ended.wait())
            failed = not stop.is_set()
            await watches.stop()
            return int(failed)
    finally:
        if election:
            await election.release()
        await runtime.close()
        await runner.cleanup()


def _scope(arguments: Namespace) -> Scope:
    named = arguments.namespace or [os.environ.get("EMBEREYE_NAMESPACE", "")]
    try:
        return Scope(() if arguments.all_namespaces else split_names(named), arguments.fleet_selector)
    except ValueError as error:
        raise UserError(f"--fleet-selector {error}") from error


def _operator(client: AsyncClient, lease: str) -> str:
    """What a fleet's status calls this operator: its Lease with the namespace; empty without one."""
    return lease if "/" in lease or not lease else f"{client.namespace}/{lease}"


def _election(client: AsyncClient, lease: str, scope: Scope) -> Election | None:
    if not lease:
        return None
    namespace, _, name = _operator(client, lease).rpartition("/")
    return Election(client, name, namespace, scope=scope.to_text())


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
            "embereye_fleet_required_shards": ("Shards that the scaling law asks for.", ""),
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
                told = getattr(record.status, attribute) if attribute else record.followed
                families[name].add_sample(name, dict(zip(labels, values, strict=True)), told)
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
