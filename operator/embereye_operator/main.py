"""`embereye operator`: watches fleets and keeps their shards as declared."""

import asyncio
import logging
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import AsyncExitStack
from pathlib import Path

from lightkube import AsyncClient
from lightkube.core.exceptions import ConfigError

from embereye.process import lifecycle
from embereye.process.http_server import serve_http
from embereye.process.lifecycle import UserError
from embereye_operator.controller import Controller
from embereye_operator.handlers import run_operator
from embereye_operator.manager import Manager
from embereye_operator.manifests import Settings
from embereye_operator.metrics import health_app
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
    async with AsyncExitStack() as closing:
        runtime = runtime_type(client, hub=arguments.hub, namespace=namespace or ALL_NAMESPACES, leads=leads)
        closing.push_async_callback(runtime.close)
        controller = Controller(runtime, settings, leads)
        # One port for both pages, which answer from the first moment: kopf's own endpoint has one page, and only after
        # its startup, which waits for CustomResourceDefinitions.
        runner = await serve_http(health_app(controller, election), "0.0.0.0", arguments.health_port)
        closing.push_async_callback(runner.cleanup)
        manager = Manager(controller, election, stop, closing)
        logger.info("operator of %s, image %s", namespace or "all namespaces", arguments.image)
        try:
            await run_operator(manager, namespaces=[namespace] if namespace else [])
        except Exception:
            logger.exception("the operator failed")
            return 1
    return int(manager.failed)


def _election(client: AsyncClient, lease: str) -> Election | None:
    if not lease:
        return None
    namespace, _, name = lease.rpartition("/")
    return Election(client, name, namespace or client.namespace)
