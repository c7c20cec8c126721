"""Explain why a hub does not answer, from its pods and volume claims, with the remedy.

The operator and `kubectl embereye` read the pods, claims and Secrets, and call `why_hub_is_away`. It looks at the
newest pod that has not ended, in the order in which a start can get stuck: no pod, a claim without volume, a missing
Secret, the container itself. The first reason found is returned as one sentence.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from embereye_operator.decide.cluster.nodes import newest
from embereye_operator.decide.cluster.pods import name_of, why_pod_waits


def why_hub_is_away(
    pods: Sequence[dict[str, Any]],
    claims: Sequence[Mapping[str, Any]],
    secrets: Mapping[str, Collection[str] | None] = MappingProxyType({}),
) -> str:
    """Return the reason in one sentence; '' if everything visible here is in order.

    `pods` are the hub's, `claims` the PersistentVolumeClaims of its namespace. `secrets` has the keys of each of the
    `needed_secrets`, None if it does not exist; unknown ones are left out.
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
        if why := why_secrets_delay(needed_secrets(pod), secrets):
            return f"its pod {name_of(pod)} is Pending: {why}"
    return why_pod_waits(pod)


def needed_secrets(pod: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the Secrets without which `pod` cannot start, each with the keys that must be in it."""
    needed: dict[str, set[str]] = {}
    for volume in pod["spec"].get("volumes") or ():
        projected = [source.get("secret") for source in (volume.get("projected") or {}).get("sources") or ()]
        for source in (volume.get("secret"), *projected):
            name = (source or {}).get("secretName") or (source or {}).get("name")
            if source and name and not source.get("optional"):
                needed.setdefault(name, set()).update(item["key"] for item in source.get("items") or ())
    containers = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
    for container in containers:
        variables = [(entry.get("valueFrom") or {}).get("secretKeyRef") for entry in container.get("env") or ()]
        for source in (*variables, *(entry.get("secretRef") for entry in container.get("envFrom") or ())):
            if source and not source.get("optional"):
                needed.setdefault(source["name"], set()).update({source["key"]} if "key" in source else ())
    return needed


def why_secrets_delay(needed: Mapping[str, Collection[str]], secrets: Mapping[str, Collection[str] | None]) -> str:
    """Name each of the `needed` Secrets that does not exist or lacks a key, with the remedy; '' if all are complete."""
    reasons = []
    for name, keys in sorted(needed.items()):
        if name not in secrets:
            continue
        known = secrets[name]
        if known is None:
            reasons.append(f"Secret {name} does not exist")
        elif missing := sorted(set(keys) - set(known)):
            reasons.append(f"Secret {name} has no key {', '.join(missing)}")
    if not reasons:
        return ""
    return (
        f"{'; '.join(reasons)}. The operator creates Secrets whose names end in -identity, and helm upgrade those of "
        "the chart. Create others yourself"
    )


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
