"""`embereye operator`: watches fleets and keeps their shards as declared."""

import asyncio
import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web
from lightkube import AsyncClient
from lightkube.core.exceptions import ConfigError
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from embereye.process import lifecycle, logs
from embereye.process.http_server import serve_http
from embereye.process.lifecycle import Tasks, UserError, first_of
from embereye.process.runtime_metrics import RuntimeMetrics
from embereye_operator.controller import Controller
from embereye_operator.handlers import Watches
from embereye_operator.manifests import Settings
from embereye_operator.metrics import FleetMetrics, FleetReport, FleetView
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
        "--scrape-annotations",
        action="store_true",
        default=env("SCRAPE_ANNOTATIONS") == "true",
        help="annotate the shards' Services with prometheus.io/* [EMBEREYE_SCRAPE_ANNOTATIONS=true]",
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
        log_format=os.environ.get(logs.FORMAT_VARIABLE, ""),
        scrape_annotations=arguments.scrape_annotations,
        trace=Trace(arguments.scaling_trace).write if arguments.scaling_trace else None,
    )
    election = _election(client, arguments.lease)
    leads = election.leads if election else lambda: True
    runtime = runtime_type(client, hub=arguments.hub, namespace=namespace or ALL_NAMESPACES, leads=leads)
    controller = Controller(runtime, settings, leads)
    registry = CollectorRegistry()
    runtime_metrics = RuntimeMetrics(registry)
    runner = await serve_http(_health_app(controller, election, registry), "0.0.0.0", arguments.health_port)
    try:
        async with Tasks() as tasks:
            tasks.start(controller.run(), name="controller")
            tasks.start(runtime_metrics.run(), name="event-loop-lag")
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


def fleet_reports(controller: Controller) -> Iterator[FleetReport]:
    """What the controller knows of each fleet, for its metrics."""
    for (resource, namespace, name), record in controller.known().items():
        yield FleetReport(
            namespace,
            FLEET_TYPES[resource].kind,
            name,
            FleetView(record.fleet, record.status, record.latest) if record.fleet and record.latest else None,
            record.passes,
            record.failures,
            record.seconds,
        )


def _health_app(controller: Controller, election: Election | None, registry: CollectorRegistry) -> web.Application:
    registry.register(FleetMetrics(lambda: fleet_reports(controller)))
    leading = Gauge("embereye_operator_leading", "1 where this operator acts.", registry=registry)
    leading.set_function(lambda: float(election.leads() if election else True))
    app = web.Application()

    async def healthz(_: web.Request) -> web.Response:
        reason = controller.unhealthy() or (election.unhealthy() if election else "")
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    return app
