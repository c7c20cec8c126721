"""Nodes that come and go while pods on others are being listed, and nodes that two witnesses miss."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from lightkube import AsyncClient

from embereye.process.tasks import beside
from embereye_operator.api.names import LABEL_FLEET, LABEL_SHARD
from embereye_operator.runtime.kubernetes.client.resources import NODES, PODS
from embereye_operator.runtime.kubernetes.nodes import Nodes

from .test_refused_namespaces import OURS, Client, Listed, refusal


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


class Placed(Client):
    """A cluster of two nodes without heartbeats, whose pods can be listed by node and by shard."""

    def __init__(self) -> None:
        super().__init__()
        self.patched: list[str] = []
        for node in ("a", "b"):
            self.put(NODES, "", node, spec={}, status={})
        for shard, node in (("hall-sensors-0", "a"), ("yard-sensors-0", "a"), ("hall-sensors-1", "b")):
            fleet = f"sensors.{shard.partition('-')[0]}"
            labels = {**OURS, LABEL_FLEET: fleet, LABEL_SHARD: shard}
            self.put(PODS, "site", shard, metadata={"labels": labels}, spec={"nodeName": node}, status=ready("True"))

    def list(self, kind: Any, *arguments: Any, labels: Mapping[str, str] = {}, **named: Any) -> Listed:
        listed = super().list(kind, *arguments, **named)
        wanted = labels.get(LABEL_SHARD)
        return Listed([entry for entry in listed._objects if not wanted or entry["metadata"]["name"] == wanted], 0)

    async def get(self, *_: Any, **__: Any) -> Any:
        raise refusal(404)

    async def patch(self, kind: Any, name: str, body: Any, **_: Any) -> None:
        assert kind is PODS.Status
        self.patched.append(name)
        for pod in self.objects[PODS, "site"]:
            if pod["metadata"]["name"] == name:
                pod["status"] = body["status"]

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Any]]:
        await asyncio.Event().wait()
        yield "", None


def ready(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status}]}


HALL, YARD = ("site", "hall-sensors-0"), ("site", "yard-sensors-0")


@pytest.fixture
async def placed() -> AsyncIterator[tuple[Placed, Nodes]]:
    client = Placed()
    nodes = Nodes(cast("AsyncClient", client), ("site",))
    async with beside(nodes.watch(), name="watch"):
        await nodes.changed.wait()
        yield client, nodes


def lost(nodes: Nodes) -> set[str]:
    return {shard for shards in nodes.displaced.values() for shard, pod in shards.items() if pod.lost}


async def test_a_node_is_lost_when_both_witnesses_miss_all_its_shards(placed: tuple[Placed, Nodes]) -> None:
    client, nodes = placed
    await nodes.find_displaced((), {HALL})
    assert lost(nodes) == set(), "another shard on this node is heard"
    for _ in range(3):
        await nodes.find_displaced((), {HALL, YARD})
        assert lost(nodes) == {"hall-sensors-0", "yard-sensors-0"}
    assert sorted(client.patched) == ["hall-sensors-0", "yard-sensors-0"], "Services leave them out, once"
    await nodes.find_displaced((), ())
    assert lost(nodes) == set(), "they are heard again"


async def test_a_node_whose_kubelet_reports_that_a_shard_has_stopped_is_not_lost(placed: tuple[Placed, Nodes]) -> None:
    client, nodes = placed
    for pod in client.objects[PODS, "site"]:
        pod["status"] = ready("False")
    await nodes.find_displaced((), {HALL, YARD})
    assert lost(nodes) == set()
    assert client.patched == []
