"""The few calls on an API server that commands make, with errors that a person can mend."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError, ConfigError

from embereye.process.lifecycle import UserError
from embereye_operator.model import Fleet, parse_fleet
from embereye_operator.runtime.kubernetes import ALL_NAMESPACES
from embereye_operator.runtime.resources import FLEETS, api_version


@asynccontextmanager
async def connected(namespace: str = "") -> AsyncIterator[AsyncClient]:
    """A client of the current context; what goes wrong inside becomes a UserError."""
    try:
        config = KubeConfig.from_env()
        client = AsyncClient(config=config.get(context_name=os.environ.get("KUBECTL_CONTEXT") or None),
                             namespace=namespace or None)  # fmt: skip
    except ConfigError as error:
        raise UserError(f"no Kubernetes cluster is configured ({error}): set KUBECONFIG") from error
    try:
        yield client
    except ApiError as error:
        raise UserError(f"the API server answers: {error.status.message}") from error
    except httpx.HTTPError as error:
        raise UserError(f"the API server cannot be reached: {error}") from error
    finally:
        await client.close()


async def list_fleets(namespace: str = "") -> list[Fleet]:
    """The fleets of `namespace`: empty is the context's own, "*" all."""
    async with connected(namespace if namespace != ALL_NAMESPACES else "") as client:
        return await fleets_of(client, namespace or client.namespace)


async def fleets_of(client: AsyncClient, namespace: str) -> list[Fleet]:
    """All fleets, sorted by key."""
    found: list[Fleet] = []
    for name, kind in FLEETS.items():
        listed: Any = client.list(kind, namespace=namespace, chunk_size=500)
        async for manifest in listed:
            document = {**manifest, "kind": name, "apiVersion": api_version(kind)}
            found.append(parse_fleet(document, strict=False))
    return sorted(found, key=lambda fleet: (fleet.namespace, fleet.name, fleet.kind))
