"""Why a hub does not answer, by its pods and the claims they wait for; says it with the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.decide.cluster.nodes import newest

WAITING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


def why_hub_is_away(pods: Sequence[dict[str, Any]], claims: Sequence[Mapping[str, Any]]) -> str:
    """One sentence of what is known; '' where everything that can be seen here is as it should be.

    `pods` are the hub's, `claims` the PersistentVolumeClaims of its namespace.
    """
    staying = newest(pods)
    if not staying:
        return "the hub has no pod: kubectl describe its Deployment says why"
    pod = staying[-1]
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    status = pod.get("status") or {}
    if status.get("phase") == "Pending":
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        for volume in pod["spec"].get("volumes") or ():
            wanted = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
            if wanted and (why := why_claim_waits(wanted, by_name.get(wanted))):
                return f"its pod {name} is Pending: {why}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in WAITING:
            return (
                f"its pod {name} waits for image {container.get('image')} ({waiting['reason']}): load it into the "
                "nodes, or push it to a registry and set image.repository and image.tag"
            )
        if waiting.get("reason") == "CrashLoopBackOff":
            return f"its pod {name} ends again and again: kubectl logs --previous says why"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its pod {name} cannot be placed: {condition.get('message') or condition.get('reason')}"
    if status.get("phase") == "Pending":
        return f"its pod {name} is being created on node {pod['spec'].get('nodeName') or 'none yet'}"
    return ""


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
