"""The cluster's nodes, and the pods on drained or lost ones.

A watch keeps the list of nodes current. Every few seconds `find_displaced` lists the shards' pods on nodes with taints
or lost ones, and on nodes of silent shards it reads the kubelet's heartbeat, because Kubernetes declares a node lost
much later. A node from which neither hub nor operator hear any shard is lost sooner. The results are attributes that
passes read; fleets with changes are returned, and get a pass at once. Pods are listed only when needed, never watched.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.timing.backoff import Backoff
from embereye_operator.api.names import LABEL_FLEET, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.nodes import (
    HEARTBEATS,
    Displaced,
    Heartbeats,
    Node,
    displaced,
    is_ready,
    newest,
    read_node,
    unready,
)
from embereye_operator.decide.cluster.pods import FLEET, why_pod_waits
from embereye_operator.runtime.kubernetes.client.answers import list_objects, tolerating
from embereye_operator.runtime.kubernetes.client.resources import ALL_NAMESPACES, CHUNK, LEASES, NODES, PODS

logger = logging.getLogger(__name__)
WATCH_SECONDS = 120.0  # seconds without an event until the watch is started again, because it may be dead
SILENT_LISTED = 10  # silent shards whose pods are listed one by one; with more, all pods are listed at once
Shard = tuple[str, str]  # namespace, name
FleetLabel = tuple[str, str]  # namespace, value of LABEL_FLEET


class Nodes:
    """Watches all nodes, and finds shards that cannot stay where they are. `watch` must run."""

    def __init__(self, client: AsyncClient, namespaces: Sequence[str] = ()) -> None:
        """Search pods in `namespaces`, or in all if empty."""
        self.displaced: Mapping[FleetLabel, Mapping[str, Displaced]] = {}  # shard → why it cannot stay
        self.waiting: Mapping[FleetLabel, Mapping[str, str]] = {}  # silent shard → why its pod does not run
        self.changed = asyncio.Event()  # set when a node's taints or state change
        self._client = client
        self._namespaces = tuple(namespaces) or (ALL_NAMESPACES,)
        self._nodes: dict[str, Node] = {}
        self._heartbeats = Heartbeats()
        self._synced = False
        self._refused = Condition(logger)
        self._unseen: set[str] = set()  # namespaces whose pods may not be listed
        self._unready: set[str] = set()  # uids of pods on lost nodes that were marked as not ready

    async def watch(self) -> None:
        """Watch the nodes until cancelled."""
        backoff = Backoff(floor=0.5, cap=15.0)
        failing = Condition(logger)
        while True:
            try:
                version = await self._list()
                backoff.reset()
                failing.clear()
                await self._follow(version)
            except TimeoutError:
                continue  # no event for long
            except Exception as error:
                reason = reason_of(error)
                failing.fail(reason, "cannot read nodes: %s. Trying again", reason)
                await asyncio.sleep(backoff.next())

    async def _list(self) -> str:
        listed = self._client.list(NODES, chunk_size=CHUNK)
        nodes = [read_node(manifest) async for manifest in listed]
        self._nodes = {node.name: node for node in nodes}
        self._synced = True
        self.changed.set()
        return str(listed.resourceVersion)

    async def _follow(self, version: str) -> None:
        events: Any = self._client.watch(NODES, resource_version=version, server_timeout=300)
        try:
            while True:
                async with asyncio.timeout(WATCH_SECONDS):
                    type_, manifest = await anext(events)
                node = read_node(manifest)
                before = self._nodes.pop(node.name, None)
                if type_ != "DELETED":
                    self._nodes[node.name] = node
                if type_ == "DELETED" or before is None or (before.taints, before.lost) != (node.taints, node.lost):
                    self.changed.set()
        finally:
            await events.aclose()

    async def find_displaced(self, silent: Collection[Shard], unheard: Collection[Shard] = ()) -> set[FleetLabel]:
        """Find displaced shards, and why silent shards' pods do not run; returns the fleets with changes.

        The heartbeat of a node with a `silent` shard is read, because Kubernetes declares a node lost much later. The
        node of an `unheard` shard, which no hub hears either, may be lost already.
        """
        if not self._synced:
            return set()
        nodes = dict(self._nodes)  # a copy: the watch continues meanwhile
        placed: dict[str, list[Manifest]] = {}
        for node in nodes.values():
            if node.taints or node.lost:
                placed[node.name] = await self._shards_pods(fields={"spec.nodeName": node.name})
        suspects: dict[str, list[Manifest]] = defaultdict(list)
        silent_pods = await self._silent_pods({*silent, *unheard})
        for pod in silent_pods:
            name = pod["spec"].get("nodeName", "")
            if name not in placed and name in nodes:
                suspects[name].append(pod)
        lost = await self.without_heartbeat(suspects)
        lost |= {name for name in suspects.keys() - lost if await self._is_unheard(name, suspects[name], unheard)}
        placed |= {name: suspects[name] for name in lost}
        await self._mark_unready([pod for name in lost for pod in suspects[name]])
        displaced_shards: dict[FleetLabel, dict[str, Displaced]] = {}
        for name, pods in placed.items():
            for pod in newest(pods):
                labels = pod["metadata"].get("labels") or {}
                place = displaced(nodes[name], pod, lost=name in lost)
                if place and LABEL_SHARD in labels:
                    fleet = pod["metadata"]["namespace"], labels.get(LABEL_FLEET, "")
                    displaced_shards.setdefault(fleet, {})[labels[LABEL_SHARD]] = place
        waiting: dict[FleetLabel, dict[str, str]] = {}
        for (namespace, shard), pod in {_shard(pod): pod for pod in newest(silent_pods)}.items():
            if why := why_pod_waits(pod, FLEET):
                fleet = namespace, pod["metadata"]["labels"].get(LABEL_FLEET, "")
                waiting.setdefault(fleet, {})[shard] = why
        changed = _changed(self.displaced, displaced_shards) | _changed(self.waiting, waiting)
        self.displaced, self.waiting = displaced_shards, waiting
        return changed

    async def _is_unheard(self, node: str, pods: Sequence[Manifest], unheard: Collection[Shard]) -> bool:
        """True if all ready shards on `node` are `unheard`, at least one of its silent shards' `pods` among them.

        A kubelet that runs soon reports a shard that has stopped as not ready, so its node is not lost.
        """
        if not any(_shard(pod) in unheard and self._was_ready(pod) for pod in newest(pods)):
            return False
        others = newest(await self._shards_pods(fields={"spec.nodeName": node}))
        return all(_shard(pod) in unheard for pod in others if is_ready(pod))

    def _was_ready(self, pod: Manifest) -> bool:
        """True if the kubelet has last reported `pod` as ready."""
        return is_ready(pod) or pod["metadata"]["uid"] in self._unready

    async def _mark_unready(self, pods: Sequence[Manifest]) -> None:
        """Mark `pods` of lost nodes as not ready, so that Services send no connections there.

        Kubernetes does that, too, but later. A kubelet that runs after all marks its pods as ready again.
        """
        self._unready &= {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            metadata = pod["metadata"]
            if not is_ready(pod) or metadata["uid"] in self._unready:
                continue
            self._unready.add(metadata["uid"])
            with tolerating(403), tolerating(404):  # an earlier chart's role; a pod that is gone
                await self._client.patch(
                    PODS.Status, metadata["name"], {"status": {"conditions": [unready(datetime.now(tz=UTC))]}},
                    namespace=metadata["namespace"], patch_type=PatchType.STRATEGIC,
                )  # fmt: skip

    async def without_heartbeat(self, suspects: Collection[str]) -> set[str]:
        """Return those of `suspects` whose kubelet has stopped, even if the control plane has not noticed yet."""
        stale = set()
        for name in suspects:
            if self._nodes.get(name, Node(name, (), lost=False)).lost:
                stale.add(name)
                continue
            try:
                lease = await self._client.get(LEASES, name, namespace=HEARTBEATS)
            except ApiError as error:
                if error.status.code in {403, 404}:  # rely on the control plane, which is slower
                    sentence = "cannot read the heartbeat of node %s: %s"
                    self._refused.fail(str(error), sentence, name, error.status.message)
                    continue
                raise
            renewed = str((lease.get("spec") or {}).get("renewTime") or "")
            if self._heartbeats.is_stale(name, renewed, time.monotonic()):
                stale.add(name)
        return stale

    async def _silent_pods(self, silent: Collection[Shard]) -> Sequence[Manifest]:
        if len(silent) > SILENT_LISTED:
            return [pod for pod in await self._shards_pods() if _shard(pod) in silent]
        return [pod for namespace, name in silent for pod in await self._shards_pods((namespace,), {LABEL_SHARD: name})]

    async def _shards_pods(
        self, namespaces: Sequence[str] = (), labels: Mapping[str, str] = {}, *, fields: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """List the pods of shards with these labels, in `namespaces` or in all watched ones, except forbidden ones."""
        result: list[Manifest] = []
        for namespace in namespaces or self._namespaces:
            try:
                result += await self.pods(namespace, {LABEL_MANAGED_BY: MANAGED_BY, **labels}, fields)
            except ApiError as error:
                if error.status.code not in {403, 404}:
                    raise
                if namespace not in self._unseen:
                    logger.warning("cannot list pods in namespace %s: %s", namespace, error.status.message)
                self._unseen.add(namespace)
                if self._unseen.issuperset(self._namespaces):
                    raise
            else:
                self._unseen.discard(namespace)
        return result

    async def pods(
        self, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """List the pods of a namespace with these labels."""
        return await list_objects(self._client, PODS, namespace, labels=labels, fields=fields, chunk_size=CHUNK)

    async def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod; no error if it is gone."""
        with tolerating(404):
            await self._client.delete(PODS, name, namespace=namespace)


def _changed(before: Mapping[FleetLabel, Any], now: Mapping[FleetLabel, Any]) -> set[FleetLabel]:
    return {fleet for fleet in {*before, *now} if before.get(fleet) != now.get(fleet)}


def _shard(pod: Manifest) -> Shard:
    return pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(LABEL_SHARD, "")
