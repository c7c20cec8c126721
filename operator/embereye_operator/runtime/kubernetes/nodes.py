"""Nodes as the API server tells of them, and the pods on those that are being emptied or are lost."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.process.timing.backoff import Backoff
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.nodes import HEARTBEATS, Displaced, Heartbeats, Node, displaced, newest, read_node
from embereye_operator.decide.cluster.pods import FLEET, why_pod_waits
from embereye_operator.decide.manifests.names import LABEL_FLEET, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from embereye_operator.runtime.kubernetes.client.resources import LEASES, NODES, PODS

logger = logging.getLogger(__name__)
CHUNK = 50  # nodes of one answer: with their images they are large
WATCH_SECONDS = 120.0  # without an event after which a watch is begun anew: it may be dead
EVERYWHERE = "*"  # of all namespaces
SILENT_LISTED = 10  # shards that are looked for one by one; of more all pods are listed at once
Shard = tuple[str, str]  # namespace, name
FleetLabel = tuple[str, str]  # namespace, value of LABEL_FLEET


class Nodes:
    """Follows all nodes, and finds the shards that cannot stay where they are. `watch` has to run."""

    def __init__(
        self, client: AsyncClient, namespaces: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Pods are looked for in `namespaces`, in all where there are none. `clock` gives monotonic seconds."""
        self.displaced: Mapping[FleetLabel, Mapping[str, Displaced]] = {}  # shard → what is wrong with its pod's place
        self.waiting: Mapping[FleetLabel, Mapping[str, str]] = {}  # silent shard → why its pod does not run
        self.changed = asyncio.Event()  # set when a node began or ceased to be one that pods have to leave
        self._client = client
        self._namespaces = tuple(namespaces) or (EVERYWHERE,)
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._heartbeats = Heartbeats()
        self._synced = False
        self._refused = ""
        self._unseen: set[str] = set()  # namespaces whose pods may not be seen

    async def watch(self) -> None:
        """Follow the nodes until cancelled."""
        backoff = Backoff(floor=0.5, cap=15.0)
        failing = ""
        while True:
            try:
                version = await self._list()
                backoff.reset()
                failing = ""
                await self._follow(version)
            except TimeoutError:
                continue  # nothing was told for long
            except Exception as error:
                if str(error) != failing:
                    logger.warning("cannot see nodes: %s; trying again", error)
                failing = str(error)
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

    async def find_displaced(self, silent: Collection[Shard]) -> set[FleetLabel]:
        """Find displaced shards; returns the fleets of which others are than before. `silent` shards do not answer.

        Why their pods do not run is found out as well. A node under a silent shard is asked for its heartbeat:
        Kubernetes itself gives a node up much later.
        """
        if not self._synced:
            return set()
        nodes = dict(self._nodes)  # the watch goes on meanwhile
        placed: dict[str, list[Manifest]] = {}
        for node in nodes.values():
            if node.taints or node.lost:
                placed[node.name] = await self._shards_pods(fields={"spec.nodeName": node.name})
        suspects: dict[str, list[Manifest]] = defaultdict(list)
        unheard = await self._silent_pods(silent)
        for pod in unheard:
            name = pod["spec"].get("nodeName", "")
            if name not in placed and name in nodes:
                suspects[name].append(pod)
        lost = await self.without_heartbeat(suspects)
        placed |= {name: suspects[name] for name in lost}
        found: dict[FleetLabel, dict[str, Displaced]] = {}
        for name, pods in placed.items():
            for pod in newest(pods):
                labels = pod["metadata"].get("labels") or {}
                place = displaced(nodes[name], pod, lost=name in lost)
                if place and LABEL_SHARD in labels:
                    fleet = pod["metadata"]["namespace"], labels.get(LABEL_FLEET, "")
                    found.setdefault(fleet, {})[labels[LABEL_SHARD]] = place
        waiting: dict[FleetLabel, dict[str, str]] = {}
        for (namespace, shard), pod in {_shard(pod): pod for pod in newest(unheard)}.items():
            if why := why_pod_waits(pod, FLEET):
                fleet = namespace, pod["metadata"]["labels"].get(LABEL_FLEET, "")
                waiting.setdefault(fleet, {})[shard] = why
        changed = _changed(self.displaced, found) | _changed(self.waiting, waiting)
        self.displaced, self.waiting = found, waiting
        return changed

    async def without_heartbeat(self, suspects: Collection[str]) -> set[str]:
        """Those of `suspects` whose kubelet has stopped, whatever the control plane still thinks of the node."""
        stale = set()
        for name in suspects:
            if self._nodes.get(name, Node(name, (), lost=False)).lost:
                stale.add(name)
                continue
            try:
                lease = await self._client.get(LEASES, name, namespace=HEARTBEATS)
            except ApiError as error:
                if error.status.code in {403, 404}:  # the control plane's own word, then, which comes later
                    if str(error) != self._refused:
                        logger.warning("cannot see the heartbeat of node %s: %s", name, error.status.message)
                    self._refused = str(error)
                    continue
                raise
            renewed = str((lease.get("spec") or {}).get("renewTime") or "")
            if self._heartbeats.stale(name, renewed, self._clock()):
                stale.add(name)
        return stale

    async def _silent_pods(self, silent: Collection[Shard]) -> Sequence[Manifest]:
        if len(silent) > SILENT_LISTED:
            return [pod for pod in await self._shards_pods() if _shard(pod) in silent]
        return [pod for namespace, name in silent for pod in await self._shards_pods((namespace,), {LABEL_SHARD: name})]

    async def _shards_pods(
        self, namespaces: Sequence[str] = (), labels: Mapping[str, str] = {}, *, fields: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """The pods of shards with these labels, in `namespaces` or in all that are watched, as far as they are seen."""
        found: list[Manifest] = []
        for namespace in namespaces or self._namespaces:
            try:
                found += await self.pods(namespace, {LABEL_MANAGED_BY: MANAGED_BY, **labels}, fields)
            except ApiError as error:
                if error.status.code not in {403, 404}:
                    raise
                if namespace not in self._unseen:
                    logger.warning("pods in namespace %s cannot be seen: %s", namespace, error.status.message)
                self._unseen.add(namespace)
                if self._unseen.issuperset(self._namespaces):
                    raise
            else:
                self._unseen.discard(namespace)
        return found

    async def pods(
        self, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """The pods of a namespace with these labels."""
        wanted: Any = labels
        places: Any = fields
        listed: Any = self._client.list(PODS, namespace=namespace, labels=wanted, fields=places, chunk_size=CHUNK)
        return [pod async for pod in listed]

    async def delete_pod(self, namespace: str, name: str) -> None:
        """Ask for a pod to be deleted; no error where it is gone."""
        try:
            await self._client.delete(PODS, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise


def _changed(before: Mapping[FleetLabel, Any], now: Mapping[FleetLabel, Any]) -> set[FleetLabel]:
    return {fleet for fleet in {*before, *now} if before.get(fleet) != now.get(fleet)}


def _shard(pod: Manifest) -> Shard:
    return pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(LABEL_SHARD, "")
