"""Answers of an API server, and those that are no failures, for example that an object does not exist."""

from contextlib import AbstractContextManager
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye_operator.api.schema import Manifest
from embereye_operator.runtime.kubernetes.client.resources import Kind


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
