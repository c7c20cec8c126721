"""The operator process: its options and the assembly of its parts.

`embereye operator` calls `serve`. It turns the options into `Settings` for the passes and options for the runtime, then
builds the runtime, ownership, controller, pages and manager in this order; an exit stack closes them in reverse. kopf
then runs until `stop` is set. Without a lease name, this operator is the only one and always leads.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from kopf._cogs.clients.errors import APIError  # kopf has no public name for it
from lightkube import AsyncClient
from lightkube.core.exceptions import ConfigError

from embereye.process.addons import addon_modules
from embereye.process.heap import collect_garbage, freeze_heap
from embereye.process.http.connections import Connections
from embereye.process.http.server import serve_http
from embereye.process.lifecycle import UserError, value_errors
from embereye.process.tasks import beside
from embereye.process.telemetry import logs
from embereye.process.telemetry.tracing import ENDPOINT_VARIABLE
from embereye.units import SECOND
from embereye_operator.addon import OperatorContext, OperatorPart
from embereye_operator.controller import Controller
from embereye_operator.decide.claims import Claims
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.holding import TAKE_OVER
from embereye_operator.decide.ownership.selection import Scope
from embereye_operator.decide.rollout.turns import DEFAULT_QUESTIONS, Question, Turns
from embereye_operator.decide.scaling.trace import ROOM, Trace
from embereye_operator.handlers import run_operator
from embereye_operator.manager import Manager
from embereye_operator.pages import health_app
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES
from embereye_operator.runtime.kubernetes.lease import DURATION, Election
from embereye_operator.runtime.kubernetes.ownership import Ownership
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The start options of an operator."""

    settings: Settings  # of the shards
    namespaces: tuple[str, ...] = ()  # watched namespaces; empty: all
    authority_secret: str = ""  # Secret of an external certificate authority; empty: the operator creates one
    watch_nodes: bool = False  # if only some namespaces are watched; otherwise nodes always are
    fleet_selector: str = ""  # label selector of the operator's fleets; empty: all
    take_over_after: float = TAKE_OVER  # seconds without change of another operator's Lease until it counts as dead
    lease: str = ""  # [namespace/]name; empty: it is the only operator
    hub_names: tuple[str, ...] = ()  # host names that people use for the hub, for its certificate
    release: str = "embereye"  # the Helm release; names of certificate Secrets start with it
    role: str = ""  # the operator's ClusterRole or Role, which owns disruption budgets
    scaling_trace: Path | None = None  # folder
    scaling_trace_size: int = ROOM  # bytes; size limit of the folder
    rollout_max_fleets: int = 5
    rollout_delay: float = 10.0  # seconds
    rollout_halt_on: Sequence[Question] = DEFAULT_QUESTIONS
    health_port: int = 8080


async def serve(
    options: OperatorOptions,
    stop: asyncio.Event,
    build: Callable[[AsyncClient, KubernetesOptions], KubernetesRuntime] = build_runtime,
) -> int:
    """Run the operator until `stop` is set."""
    if not options.settings.image:
        raise UserError("--image is empty: give the shards' image, or set EMBEREYE_IMAGE")
    with value_errors("--fleet-selector "):
        scope = Scope(options.namespaces, options.fleet_selector)
    if options.take_over_after < DURATION:
        raise UserError(
            f"--take-over-after {options.take_over_after:g}: shorter than a Lease, which lasts {DURATION:g} s"
        )
    try:
        client = AsyncClient()
    except ConfigError as error:
        raise UserError(f"no Kubernetes cluster is configured ({error}): set KUBECONFIG, or run in a pod") from error
    settings = _settings(options, client)
    election = _election(client, options.lease, scope)
    is_leading = election.is_leading if election else lambda: True
    async with AsyncExitStack() as closing:
        runtime = build(client, _runtime_options(options, settings, client, scope, is_leading))
        closing.push_async_callback(runtime.close)
        ownership = Ownership(
            client, runtime.world, name=settings.operator, image=settings.image, patience=options.take_over_after
        )
        controller = Controller(runtime, settings, is_leading, ownership)
        parts = _addons(options, settings, client, scope, is_leading)
        # One port for both pages, which answer from the start: kopf's endpoint has one page, and answers only after its
        # startup, which waits for CustomResourceDefinitions.
        runner = await serve_http(
            health_app(controller, election, parts), "[::]", options.health_port, connections=Connections()
        )
        closing.push_async_callback(runner.cleanup)
        freeze_heap()
        await closing.enter_async_context(beside(collect_garbage(), name="collect-garbage"))
        for part in parts:
            await closing.enter_async_context(beside(part.run(), name=part.name))
        manager = Manager(controller, election, stop, closing)
        logger.info("operator of %s, image %s", ", ".join(scope.namespaces) or "all namespaces", settings.image)
        try:
            await run_operator(manager, namespaces=scope.namespaces)
        except APIError as error:
            # A CustomResourceDefinition was removed: after its restart, the operator names it and waits for it.
            logger.error("a watch has ended, and the operator with it: %s", error.message or error)  # noqa: TRY400
            return 1
        except Exception:
            logger.exception("the operator failed")
            return 1
    return int(manager.failed)


def _settings(options: OperatorOptions, client: AsyncClient) -> Settings:
    return replace(
        options.settings,
        log_format=os.environ.get(logs.FORMAT_VARIABLE, ""),
        tracing=os.environ.get(ENDPOINT_VARIABLE, ""),
        operator=_operator(client, options.lease),
        claims=Claims(),
        turns=Turns(options.rollout_max_fleets, int(options.rollout_delay * SECOND), options.rollout_halt_on),
        trace=Trace(options.scaling_trace, options.scaling_trace_size).write if options.scaling_trace else None,
    )


def _runtime_options(
    options: OperatorOptions, settings: Settings, client: AsyncClient, scope: Scope, is_leading: Callable[[], bool]
) -> KubernetesOptions:
    return KubernetesOptions(
        hub=settings.hub,
        hubs=settings.hubs,
        namespaces=scope.namespaces or [ALL_NAMESPACES],
        watches_nodes=options.watch_nodes,
        authority_secret=options.authority_secret,
        is_selected=scope.is_selected,
        operator=settings.operator,
        is_leading=is_leading,
        role=options.role,
        image=settings.image,
        release=_release(options, settings, client),
        hub_names=options.hub_names,
    )


def _release(options: OperatorOptions, settings: Settings, client: AsyncClient) -> tuple[str, str]:
    """Return the namespace and the name of the release."""
    return settings.operator.rpartition("/")[0] or client.namespace, options.release


def _addons(
    options: OperatorOptions, settings: Settings, client: AsyncClient, scope: Scope, is_leading: Callable[[], bool]
) -> list[OperatorPart]:
    namespace, name = _release(options, settings, client)
    context = OperatorContext(
        client=client, namespace=namespace, release=name, is_leading=is_leading, is_selected=scope.is_selected
    )
    return [addon.build(context) for addon in addon_modules("operator")]


def _operator(client: AsyncClient, lease: str) -> str:
    """Return the operator's name in a fleet's status: namespace and name of its Lease; empty without one."""
    return lease if "/" in lease or not lease else f"{client.namespace}/{lease}"


def _election(client: AsyncClient, lease: str, scope: Scope) -> Election | None:
    if not lease:
        return None
    namespace, _, name = _operator(client, lease).rpartition("/")
    return Election(client, name, namespace, scope=scope.to_text())
