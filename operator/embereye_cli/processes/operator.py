"""`embereye operator`: watches fleets and keeps their shards as declared."""

import asyncio
import logging
import os
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack
from pathlib import Path

from lightkube import AsyncClient
from lightkube.core.exceptions import ConfigError

from embereye.process import lifecycle, logs
from embereye.process.http_server import serve_http
from embereye.process.lifecycle import UserError
from embereye_operator.controller import Controller
from embereye_operator.handlers import run_operator
from embereye_operator.decide.ownership.holding import TAKE_OVER
from embereye_operator.manager import Manager
from embereye_operator.manifests import Settings
from embereye_operator.pages import health_app
from embereye_operator.runtime.kubernetes.runtime.holds import Holds
from embereye_operator.runtime.kubernetes.runtime.runtime import ALL_NAMESPACES, KubernetesRuntime
from embereye_operator.runtime.kubernetes.runtime.lease import DURATION, Election
from embereye_operator.decide.ownership.selection import Scope, split_names
from embereye_operator.decide.scaling.trace import Trace

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
        "--role",
        default=env("ROLE"),
        help="the operator's own ClusterRole, with --namespace its Role: disruption budgets go with it, and half an "
        "hour after the operator; empty: they stay with their fleets [EMBEREYE_ROLE]",
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
        log_format=os.environ.get(logs.FORMAT_VARIABLE, ""),
        scrape_annotations=arguments.scrape_annotations,
        operator=_operator(client, arguments.lease),
        trace=Trace(arguments.scaling_trace).write if arguments.scaling_trace else None,
    )
    election = _election(client, arguments.lease, scope)
    leads = election.leads if election else lambda: True
    async with AsyncExitStack() as closing:
        runtime = runtime_type(
            client,
            hub=arguments.hub,
            namespace=scope.namespaces or ALL_NAMESPACES,
            selects=scope.selects,
            operator=settings.operator,
            leads=leads,
            role=arguments.role,
        )
        closing.push_async_callback(runtime.close)
        holds = Holds(client, runtime, name=settings.operator, image=settings.image, patience=arguments.take_over_after)
        controller = Controller(runtime, settings, leads, holds)
        # One port for both pages, which answer from the first moment: kopf's own endpoint has one page, and only after
        # its startup, which waits for CustomResourceDefinitions.
        runner = await serve_http(health_app(controller, election), "[::]", arguments.health_port)
        closing.push_async_callback(runner.cleanup)
        manager = Manager(controller, election, stop, closing)
        logger.info("operator of %s, image %s", ", ".join(scope.namespaces) or "all namespaces", arguments.image)
        try:
            await run_operator(manager, namespaces=scope.namespaces)
        except Exception:
            logger.exception("the operator failed")
            return 1
    return int(manager.failed)


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
