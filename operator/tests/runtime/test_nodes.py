"""Nodes that come and go while pods on others are being listed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from lightkube import AsyncClient

from embereye.process.tasks import beside
from embereye_operator.api.names import LABEL_SHARD
from embereye_operator.runtime.kubernetes.client.resources import NODES, PODS
from embereye_operator.runtime.kubernetes.nodes import Nodes

from .test_refused_namespaces import OURS, Client, Listed


class Watched(Client):
    """A client whose watch reports a deleted node as soon as pods are listed, and which then returns the pods."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: Any = None
        self.heard = asyncio.Event()
        self._asked = asyncio.Event()

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Any]]:
        await self._asked.wait()
        yield "DELETED", self.gone
        self.heard.set()
        await asyncio.Event().wait()

    def list(self, kind: Any, *arguments: Any, **named: Any) -> Listed:
        listing = super().list(kind, *arguments, **named)
        return Late(listing, self) if kind is PODS else listing

    async def until_heard(self) -> None:
        self._asked.set()
        await self.heard.wait()


class Late(Listed):
    def __init__(self, listing: Listed, client: Watched) -> None:
        super().__init__(listing._objects, 0)
        self._client = client

    async def __aiter__(self) -> AsyncIterator[Any]:
        await self._client.until_heard()
        async for pod in super().__aiter__():
            yield pod


async def test_a_deleted_node_hides_no_shard_on_another() -> None:
    client = Watched()
    for name in ("a", "b", "c"):
        labels = {**OURS, LABEL_SHARD: f"hall-sensors-{name}"}
        client.put(NODES, "", name, spec={"unschedulable": True}, status={})
        client.put(PODS, "hall", f"pod-{name}", metadata={"labels": labels}, spec={"nodeName": name}, status={})
    client.gone = client.objects[NODES, ""][2]
    nodes = Nodes(cast("AsyncClient", client), ("hall",))
    async with beside(nodes.watch(), name="watch"):
        await nodes.changed.wait()
        assert await nodes.find_displaced(()) == {("hall", "sensors.hall")}
    assert nodes.displaced["hall", "sensors.hall"].keys() >= {"hall-sensors-a", "hall-sensors-b"}
