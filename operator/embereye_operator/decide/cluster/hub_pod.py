"""Why a hub does not answer, by its pods and the claims they wait for; says it with the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.decide.cluster.nodes import newest
from embereye_operator.decide.cluster.pods import name_of, why_pod_waits


def why_hub_is_away(pods: Sequence[dict[str, Any]], claims: Sequence[Mapping[str, Any]]) -> str:
    """One sentence of what is known; '' where everything that can be seen here is as it should be.

    `pods` are the hub's, `claims` the PersistentVolumeClaims of its namespace.
    """
    staying = newest(pods)
    if not staying:
        return "the hub has no pod: kubectl describe its Deployment says why"
    pod = staying[-1]
    if (pod.get("status") or {}).get("phase") == "Pending":
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        for volume in pod["spec"].get("volumes") or ():
            wanted = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
            if wanted and (why := why_claim_waits(wanted, by_name.get(wanted))):
                return f"its pod {name_of(pod)} is Pending: {why}"
    return why_pod_waits(pod)


def why_claim_waits(name: str, claim: Mapping[str, Any] | None) -> str:
    """Why a pod that wants the claim `name` has to wait, and what helps; '' where the claim has its volume."""
    if claim is None:
        return f"PersistentVolumeClaim {name} does not exist: helm upgrade makes it again"
    if (claim.get("status") or {}).get("phase") == "Bound":
        return ""
    storage_class = claim["spec"].get("storageClassName")
    if not storage_class:  # the API server enters the default class, also later
        return (
            f"PersistentVolumeClaim {name} waits for a volume, and the cluster has no default storage class: set "
            "hub.persistence.storageClass to one that kubectl get storageclass lists, or hub.persistence.enabled=false"
        )
    return (
        f"PersistentVolumeClaim {name} waits for a volume of storage class {storage_class}: "
        f"kubectl describe pvc {name} says why"
    )
