"""The calls on an API server that commands make, with errors that have a remedy.

`embereye` commands that read a cluster use `connected`, which finds the kubeconfig as kubectl does, checks it, and
turns errors inside its block into UserErrors. Nothing is cached, and each command sees the server's present state. The
operator itself does not use this module.
"""

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
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES, FLEETS, api_version


@dataclass(frozen=True)
class Target:
    """The chosen cluster and namespace, from kubectl's flags; empty: from the environment."""

    namespace: str = ""  # "*": all
    context: str = ""
    kubeconfig: str = ""


def _config(target: Target) -> SingleConfig | None:
    context = target.context or os.environ.get("KUBECTL_CONTEXT") or None
    if target.kubeconfig:
        return KubeConfig.from_file(target.kubeconfig).get(context_name=context)
    # A kubeconfig in KUBECONFIG takes precedence over a pod's service account, as with kubectl.
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    existing = [path for path in paths if Path(path).expanduser().is_file()]
    if existing:
        configs = [KubeConfig.from_file(path) for path in existing]
        wanted = context or next((config.current_context for config in configs if config.current_context), None)
        chosen = next((config for config in configs if wanted in config.contexts), configs[0])
        return chosen.get(context_name=wanted)
    return KubeConfig.from_env().get(context_name=context)


class NoClusterError(UserError):
    """No kubeconfig has a cluster, or the kubeconfig is malformed."""


def _no_cluster(reason: str) -> NoClusterError:
    remedy = "set KUBECONFIG, or use --kubeconfig and --context"
    return NoClusterError(f"no Kubernetes cluster is configured ({reason}): {remedy}")


def _check(config: SingleConfig | None) -> None:
    """Raise ConfigError or ValueError for errors that would otherwise appear later, without the file's name."""
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
        raise ConfigError(f"{user.exec.command}, which provides its credentials, is not installed")


@asynccontextmanager
async def connected(target: Target = Target()) -> AsyncIterator[AsyncClient]:
    """Connect to the chosen cluster; errors inside the block become UserErrors."""
    namespace = target.namespace if target.namespace != ALL_NAMESPACES else ""
    try:
        config = _config(target)
        _check(config)
        client = AsyncClient(config=config, namespace=namespace or None)
    except (ConfigError, OSError) as error:
        raise _no_cluster(str(error)) from error
    except Exception as error:  # a file edited by hand may have any error
        raise _no_cluster(
            f"its kubeconfig is malformed: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    try:
        yield client
    except ConfigError as error:  # from the credentials program
        raise _no_cluster(str(error)) from error
    except ApiError as error:
        raise UserError(f"the API server refused the request: {error.status.message}") from error
    except httpx.HTTPStatusError as error:
        if error.response.status_code == 404:  # the path of a kind that is not installed
            raise UserError(
                f"the API server knows no {error.request.url.path.rpartition('/')[2]}: install EmberEye's "
                "CustomResourceDefinitions (helm upgrade, with crds.enabled=true)"
            ) from error
        raise UserError(f"the API server refused the request ({error})") from error
    except httpx.HTTPError as error:
        raise UserError(f"the API server cannot be reached ({error})") from error
    finally:
        await client.close()


async def list_fleets(target: Target, warn: Callable[[str], None]) -> list[Fleet]:
    """List the fleets in the chosen namespace, see `fleets_of`."""
    async with connected(target) as client:
        return await fleets_of(client, target.namespace or client.namespace, warn)


async def fleets_of(client: AsyncClient, namespace: str, warn: Callable[[str], None]) -> list[Fleet]:
    """List all fleets, sorted by key; call `warn` with the reason for each one that this version cannot read."""
    fleets: list[Fleet] = []
    for name, kind in FLEETS.items():
        listed: Any = client.list(kind, namespace=namespace, chunk_size=500)
        async for manifest in listed:
            document = {**manifest, "kind": name, "apiVersion": api_version(kind)}
            try:
                fleets.append(parse_fleet(document, strict=False))
            except FleetError as error:
                warn(str(error))
    return sorted(fleets, key=lambda fleet: (fleet.namespace, fleet.name, fleet.kind))
