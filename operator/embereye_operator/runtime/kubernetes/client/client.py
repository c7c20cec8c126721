"""The few calls on an API server that commands make, with errors that a person can mend."""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient, KubeConfig, SingleConfig
from lightkube.config.models import User
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
    """No kubeconfig names a cluster, or what it names is of no use."""


def _no_cluster(reason: str) -> NoClusterError:
    remedy = "set KUBECONFIG, or name one by --kubeconfig and --context"
    return NoClusterError(f"no Kubernetes cluster is configured ({reason}): {remedy}")


def _check(config: SingleConfig | None) -> None:
    """ConfigError or ValueError for what would fail with the first request, or without a name."""
    if config is None:
        return
    _ = urlsplit(config.cluster.server).port
    cluster, user = config.cluster, config.user or User()
    for file, data in (
        (cluster.certificate_auth, cluster.certificate_auth_data),
        (user.client_cert, user.client_cert_data),
        (user.client_key, user.client_key_data),
    ):
        if file and not data and not Path(config.abs_file(file)).is_file():
            raise ConfigError(f"{file} does not exist")
    if user.exec and not shutil.which(user.exec.command):
        raise ConfigError(f"{user.exec.command}, which it has credentials from, is not installed")


@asynccontextmanager
async def connected(target: Target = Target()) -> AsyncIterator[AsyncClient]:
    """A client of the cluster that is meant; what goes wrong inside becomes a UserError."""
    namespace = target.namespace if target.namespace != ALL_NAMESPACES else ""
    try:
        config = _config(target)
        _check(config)
        client = AsyncClient(config=config, namespace=namespace or None)
    except (ConfigError, OSError) as error:
        raise _no_cluster(str(error)) from error
    except Exception as error:  # a file that somebody wrote may be wrong in any way
        raise _no_cluster(f"its kubeconfig is none: {type(error).__name__}: {' '.join(str(error).split())}") from error
    try:
        yield client
    except ConfigError as error:  # of what is run for credentials
        raise _no_cluster(str(error)) from error
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
