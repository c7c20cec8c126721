"""The nodes that pods must leave, and the nodes that are lost, as the API server reports them.

`runtime/kubernetes/nodes.py` watches nodes, and asks `displaced` about every pod on a node with taints or without a
heartbeat. A node is drained if a hard taint that the pod does not tolerate is on it, or one that announces the node's
removal. It is lost if the control plane says so, or earlier if the kubelet's lease stays unchanged for STALE seconds.
Only changes of a lease count, because clocks of other machines are not trusted. It is lost still earlier if two
witnesses (`witnesses.py`) hear none of its shards, while its kubelet reports none of them as stopped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

HEARTBEATS = "kube-node-lease"  # the namespace of the kubelets' leases, each named after its node
# Seconds without a renewal until a kubelet counts as stopped. It renews every 10 s; Kubernetes waits 50 s.
STALE = 15.0
HARD = ("NoSchedule", "NoExecute")
ENDED = ("Failed", "Succeeded")  # phases of a pod
CORDONED = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Conditions of a node, not requests to leave it: they come and go automatically, and kubelet or the control plane
# deletes the pods that must go. See `is_lost` for the first two.
CONDITIONS = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
# Their setter removes the node, pod by pod, even pods that tolerate the taint.
REMOVAL = frozenset(
    {
        CORDONED,
        OUT_OF_SERVICE,
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",  # before Karpenter 1.0
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint as in the Kubernetes API."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """The relevant properties of a node."""

    name: str
    taints: tuple[Taint, ...]  # hard taints that ask pods to leave, including a cordon
    lost: bool  # the control plane considers it lost


@dataclass(frozen=True, slots=True)
class Displaced:
    """A shard's pod that cannot stay on its node."""

    node: str
    pod: str  # its uid
    lost: bool = False  # the node has stopped, and so have its pods
    # Its tolerations let a new pod onto the same node: only an eviction ends it, a roll-out would repeat forever.
    comes_back: bool = False


def read_node(manifest: Mapping[str, Any]) -> Node:
    """Read the Node object `manifest`."""
    spec, name = manifest.get("spec") or {}, manifest["metadata"]["name"]
    taints = {
        Taint(entry["key"], entry.get("value") or "", entry["effect"])
        for entry in spec.get("taints") or ()
        if entry["effect"] in HARD and entry["key"] not in CONDITIONS
    }
    if spec.get("unschedulable"):
        taints.add(Taint(CORDONED, "", "NoSchedule"))
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    # "False" comes from kubelet, and a kubelet that reports proves that the node runs.
    silent = any(entry["type"] == "Ready" and entry["status"] == "Unknown" for entry in conditions)
    out_of_service = any(taint.key == OUT_OF_SERVICE for taint in taints)
    return Node(name, tuple(sorted(taints, key=lambda taint: (taint.key, taint.effect))), silent or out_of_service)


def is_tolerated(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """True if a pod with these `tolerations` can start and stay on a node with this taint."""
    return any(
        entry.get("effect") in (None, "", taint.effect)
        and (entry.get("key") or "") in ("", taint.key)
        and (entry.get("operator") == "Exists" or (entry.get("key") and (entry.get("value") or "") == taint.value))
        and (taint.effect != "NoExecute" or entry.get("tolerationSeconds") is None)
        for entry in tolerations
    )


def displaced(node: Node, pod: Mapping[str, Any], *, lost: bool = False) -> Displaced | None:
    """Return why `pod` cannot stay on `node`; None if it can. `lost`: the node is known to be lost."""
    metadata = pod["metadata"]
    if lost or node.lost:
        return Displaced(node.name, metadata["uid"], lost=True)
    tolerations = pod["spec"].get("tolerations") or ()
    if any(not is_tolerated(tolerations, taint) for taint in node.taints):
        return Displaced(node.name, metadata["uid"])
    if any(taint.key in REMOVAL for taint in node.taints):
        return Displaced(node.name, metadata["uid"], comes_back=True)
    return None


def newest(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that have neither ended nor are being deleted, the newest last."""
    staying = [
        pod
        for pod in pods
        # Evicted and rejected pods remain for long, next to the pods that replace them.
        if not pod["metadata"].get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in ENDED
    ]
    return sorted(staying, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """True if the kubelet has last reported `pod` as ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def unready(now: datetime) -> dict[str, str]:
    """Build the condition of a pod whose node is lost since `now`."""
    return {
        "type": "Ready",
        "status": "False",
        "reason": "NodeLost",
        "message": "neither the hub nor the operator hears a shard of this node",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@dataclass
class Heartbeats:
    """Detects kubelets that no longer renew their leases. Only changes count, because other clocks are not trusted."""

    _seen: dict[str, tuple[str, float, float]] = field(default_factory=dict)  # node → renewal, first and last seen

    def is_stale(self, node: str, renewed: str, now: float) -> bool:
        """True if the lease's `renewed`, read at `now` in monotonic seconds, has been unchanged for STALE.

        Gaps between calls do not count: an absent operator has not seen that no renewal arrived.
        """
        known, first, last = self._seen.get(node, ("", now, now))
        if known != renewed or now - last > STALE:
            first = now
        self._seen[node] = renewed, first, now
        return now - first >= STALE
