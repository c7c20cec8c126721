"""Explain why a hub does not answer, from its pods and volume claims, with the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.decide.cluster.nodes import newest
from embereye_operator.decide.cluster.pods import name_of, why_pod_waits


def why_hub_is_away(pods: Sequence[dict[str, Any]], claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason in one sentence; '' if everything visible here is in order.

    `pods` are the hub's, `claims` the PersistentVolumeClaims of its namespace.
    """
    remaining = newest(pods)
    if not remaining:
        return "the hub has no pod: kubectl describe on its Deployment shows why"
    pod = remaining[-1]
    if (pod.get("status") or {}).get("phase") == "Pending":
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        for volume in pod["spec"].get("volumes") or ():
            wanted = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
            if wanted and (why := why_claim_waits(wanted, by_name.get(wanted))):
                return f"its pod {name_of(pod)} is Pending: {why}"
    return why_pod_waits(pod)


def why_claim_waits(name: str, claim: Mapping[str, Any] | None) -> str:
    """Explain why a pod that needs the claim `name` waits, with the remedy; '' if the claim has its volume."""
    if claim is None:
        return f"PersistentVolumeClaim {name} does not exist: helm upgrade creates it again"
    if (claim.get("status") or {}).get("phase") == "Bound":
        return ""
    storage_class = claim["spec"].get("storageClassName")
    if not storage_class:  # the API server fills in the default class, even later
        return (
            f"PersistentVolumeClaim {name} waits for a volume, and the cluster has no default storage class: set "
            "hub.persistence.storageClass to one that kubectl get storageclass lists, or hub.persistence.enabled=false"
        )
    return (
        f"PersistentVolumeClaim {name} waits for a volume of storage class {storage_class}: "
        f"kubectl describe pvc {name} shows why"
    )
