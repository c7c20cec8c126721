"""Answers of an API server, and those that are no failures, for example that an object does not exist."""

from contextlib import AbstractContextManager
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye_operator.api.names import MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.errors import RefusedError
from embereye_operator.runtime.kubernetes.client.resources import EVENTS, Kind

REFUSALS = frozenset({400, 403, 422})  # answers of a quota, a policy or a validation


class tolerating(AbstractContextManager[None, bool]):  # noqa: N801 (it reads as a statement, like suppress)
    """Ends its block quietly if the API server answers with `code`; other errors pass."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return isinstance(error, ApiError) and error.status.code == self._code


async def find(client: AsyncClient, kind: Kind, name: str, namespace: str) -> Any:
    """Read an object; None if it does not exist."""
    with tolerating(404):
        return await client.get(kind, name, namespace=namespace)
    return None


async def list_objects(client: AsyncClient, kind: Kind, namespace: str, **selectors: Any) -> list[Manifest]:
    """Read all objects of a kind in a namespace; `selectors` are lightkube's arguments of the same names."""
    return [manifest async for manifest in client.list(kind, namespace=namespace, **selectors)]


async def list_existing(client: AsyncClient, kind: Kind, namespace: str) -> list[Manifest]:
    """Do the same as `list_objects`; nothing is listed if the server does not know the kind."""
    try:
        return await list_objects(client, kind, namespace)
    except httpx.HTTPStatusError as error:  # ApiError is one
        if error.response.status_code != 404:
            raise
        return []


async def apply(client: AsyncClient, kind: Kind, manifest: Manifest) -> None:
    """Apply `manifest` as the operator's; RefusedError if the API server refuses it for good."""
    metadata = manifest["metadata"]
    try:
        await client.patch(
            kind, metadata["name"], manifest, namespace=metadata["namespace"], patch_type=PatchType.APPLY, force=True,
            field_manager=MANAGED_BY,
        )  # fmt: skip
    except ApiError as error:
        if error.status.code not in REFUSALS:
            raise
        raise RefusedError(f"{manifest['kind']} {metadata['name']} is refused: {error.status.message}") from error


async def create_event(client: AsyncClient, event: Manifest) -> None:
    """Create an Event, unless it exists."""
    with tolerating(409):
        await client.create(EVENTS.from_dict(event))
