"""The few calls on an API server that commands make, with errors that a person can mend."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient, KubeConfig, SingleConfig
from lightkube.core.exceptions import ApiError, ConfigError

from embereye.process.lifecycle import UserError
from embereye_operator.api.fleets import Fleet, FleetError, parse_fleet
from embereye_operator.runtime.kubernetes.client.resources import FLEETS, api_version
from embereye_operator.runtime.kubernetes.runtime import ALL_NAMESPACES


@dataclass(frozen=True)
class Target:
    """Which cluster and namespace is meant, as kubectl's flags say it; empty: as the environment has it."""

    namespace: str = ""  # "*": all
    context: str = ""
    kubeconfig: str = ""


def _config(target: Target) -> SingleConfig | None:
    context = target.context or os.environ.get("KUBECTL_CONTEXT") or None
    if target.kubeconfig:
        return KubeConfig.from_file(target.kubeconfig).get(context_name=context)
    # A kubeconfig that is named goes before a pod's own account, as with kubectl.
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    existing = [path for path in paths if Path(path).expanduser().is_file()]
    if existing:
        configs = [KubeConfig.from_file(path) for path in existing]
        wanted = context or next((config.current_context for config in configs if config.current_context), None)
        found = next((config for config in configs if wanted in config.contexts), configs[0])
        return found.get(context_name=wanted)
    return KubeConfig.from_env().get(context_name=context)


class NoClusterError(UserError):
    """No kubeconfig names a cluster."""


@asynccontextmanager
async def connected(target: Target = Target()) -> AsyncIterator[AsyncClient]:
    """A client of the cluster that is meant; what goes wrong inside becomes a UserError."""
    namespace = target.namespace if target.namespace != ALL_NAMESPACES else ""
    try:
        client = AsyncClient(config=_config(target), namespace=namespace or None)
    except ConfigError as error:
        raise NoClusterError(
            f"no Kubernetes cluster is configured ({error}): set KUBECONFIG, or name one by --kubeconfig and --context"
        ) from error
    try:
        yield client
    except ApiError as error:
        raise UserError(f"the API server answers: {error.status.message}") from error
    except httpx.HTTPError as error:
        raise UserError(f"the API server cannot be reached: {error}") from error
    finally:
        await client.close()


async def list_fleets(target: Target, tell: Callable[[str], None]) -> list[Fleet]:
    """The fleets of the namespace that is meant, as `fleets_of` has them."""
    async with connected(target) as client:
        return await fleets_of(client, target.namespace or client.namespace, tell)


async def fleets_of(client: AsyncClient, namespace: str, tell: Callable[[str], None]) -> list[Fleet]:
    """All fleets, sorted by key, but those that this version cannot read: `tell` is told why."""
    found: list[Fleet] = []
    for name, kind in FLEETS.items():
        listed: Any = client.list(kind, namespace=namespace, chunk_size=500)
        async for manifest in listed:
            document = {**manifest, "kind": name, "apiVersion": api_version(kind)}
            try:
                found.append(parse_fleet(document, strict=False))
            except FleetError as error:
                tell(str(error))
    return sorted(found, key=lambda fleet: (fleet.namespace, fleet.name, fleet.kind))
