"""Which nodes pods have to leave, and which are lost, by what the API server tells of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEARTBEATS = "kube-node-lease"  # the namespace of kubelets' own leases, each named after its node
# Seconds without a renewal until a kubelet counts as stopped. It renews every 10 s; Kubernetes itself waits for 50.
STALE = 15.0
HARD = ("NoSchedule", "NoExecute")
ENDED = ("Failed", "Succeeded")  # phases of a pod
CORDONED = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# A condition of the node, not a wish that pods leave it: these come and go by themselves, and kubelet or the control
# plane deletes the pods that have to go. See `is_lost` for the first two.
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
# Whoever sets one of these removes the node, pod by pod, whatever those tolerate.
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
    """As Kubernetes has it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """What matters here of a node."""

    name: str
    taints: tuple[Taint, ...]  # hard ones that ask pods to leave; a cordon is one
    lost: bool  # the control plane has given it up


@dataclass(frozen=True, slots=True)
class Displaced:
    """A shard's pod that cannot stay where it is."""

    node: str
    pod: str  # its uid
    lost: bool = False  # the node does not run any more: its pods cannot either
    # Its tolerations let a new pod onto the same node: only an eviction ends it, a roll would go round in circles.
    comes_back: bool = False


def read_node(manifest: Mapping[str, Any]) -> Node:
    """`manifest` is a node's."""
    spec, name = manifest.get("spec") or {}, manifest["metadata"]["name"]
    taints = {
        Taint(entry["key"], entry.get("value") or "", entry["effect"])
        for entry in spec.get("taints") or ()
        if entry["effect"] in HARD and entry["key"] not in CONDITIONS
    }
    if spec.get("unschedulable"):
        taints.add(Taint(CORDONED, "", "NoSchedule"))
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    # "False" is kubelet's own word, and that it speaks says that the node runs.
    silent = any(entry["type"] == "Ready" and entry["status"] == "Unknown" for entry in conditions)
    given_up = any(taint.key == OUT_OF_SERVICE for taint in taints)
    return Node(name, tuple(sorted(taints, key=lambda taint: (taint.key, taint.effect))), silent or given_up)


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """Whether a pod with these `tolerations` may be, and stay, on a node with this taint."""
    return any(
        entry.get("effect") in (None, "", taint.effect)
        and (entry.get("key") or "") in ("", taint.key)
        and (entry.get("operator") == "Exists" or (entry.get("key") and (entry.get("value") or "") == taint.value))
        and (taint.effect != "NoExecute" or entry.get("tolerationSeconds") is None)
        for entry in tolerations
    )


def displaced(node: Node, pod: Mapping[str, Any], *, lost: bool = False) -> Displaced | None:
    """What is to be done about a `pod` that is on `node`; None: it may stay. `lost`: the node is known to be."""
    metadata = pod["metadata"]
    if lost or node.lost:
        return Displaced(node.name, metadata["uid"], lost=True)
    tolerations = pod["spec"].get("tolerations") or ()
    if any(not tolerates(tolerations, taint) for taint in node.taints):
        return Displaced(node.name, metadata["uid"])
    if any(taint.key in REMOVAL for taint in node.taints):
        return Displaced(node.name, metadata["uid"], comes_back=True)
    return None


def newest(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods that have neither ended nor are about to go, the newest last."""
    staying = [
        pod
        for pod in pods
        # One that was evicted, or that its node refused, is kept for long beside the pod that takes its place.
        if not pod["metadata"].get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in ENDED
    ]
    return sorted(staying, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))


@dataclass
class Heartbeats:
    """How long kubelets have not renewed their leases. Clocks of others are not trusted: only a change counts."""

    _seen: dict[str, tuple[str, float, float]] = field(default_factory=dict)  # node → renewal, first and last seen

    def stale(self, node: str, renewed: str, now: float) -> bool:
        """Take a lease's `renewed` as read at `now`, in monotonic seconds; whether it has been the same for STALE.

        Times during which nobody asked do not count: whoever was away has not seen that nothing came.
        """
        known, first, last = self._seen.get(node, ("", now, now))
        if known != renewed or now - last > STALE:
            first = now
        self._seen[node] = renewed, first, now
        return now - first >= STALE
