"""Who holds the disruption budgets: with the release they go at once, without an operator after a while.

A budget refuses every eviction, for the operator moves shards by itself. Where no operator does that, a budget would
make drains hang for ever. Budgets are therefore owned by a Job of their namespace, which Kubernetes deletes by itself:
it has nothing to run, is complete at once, and its ttlSecondsAfterFinished, which the operator puts off again and
again, is the time that budgets outlive the operator. The Job in turn is owned by a role of the release, so that
`helm uninstall` takes all of them away.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.timing.clock import lease_seconds
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.manifests.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.runtime.kubernetes.client.resources import CLUSTER_ROLES, JOBS, RBAC, ROLES

logger = logging.getLogger(__name__)
HOLD = 1800  # seconds that budgets outlive the operator
RENEW = 600  # seconds after which they are held anew
RESOURCES = {"cpu": "10m", "memory": "16Mi"}  # of the container that is never started
BELIEVED = 5.0  # seconds for which a Job that was seen counts as there


def build_timer(namespace: str, owner: Manifest, image: str, seconds: int) -> Manifest:
    """The Job that holds a namespace's budgets, to be deleted `seconds` after its completion. It runs nothing.

    Its pod is one that the cluster's policies may ask for all the same: with a full name of an image, and resources.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": timer_name(owner),
            "namespace": namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [owner],
        },
        "spec": {
            "parallelism": 0,
            "completions": 0,
            "ttlSecondsAfterFinished": seconds,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "nothing",
                            "image": image,
                            "resources": {"requests": RESOURCES, "limits": RESOURCES},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                }
            },
        },
    }


def timer_name(owner: Manifest) -> str:
    """Name of the Job of the release whose role `owner` refers to."""
    return f"{owner['name']}-budgets"


def seconds_to_hold(job: Mapping[str, Any] | None, now: float) -> int:
    """The ttlSecondsAfterFinished that ends HOLD seconds from `now`, in seconds since the Unix epoch."""
    completed = ((job or {}).get("status") or {}).get("completionTime")
    if not completed:
        return HOLD
    since = datetime.fromisoformat(completed).timestamp()
    return max(HOLD, int(now - since) + HOLD)


class Guard:
    """Makes and holds the Jobs."""

    def __init__(self, client: AsyncClient, role: str, image: str, *, cluster_wide: bool) -> None:
        """`role` is a ClusterRole, or a Role of each namespace; "": budgets stay with their fleets.

        `image` is the one that Jobs name and never run.
        """
        self._client = client
        self._role = role
        self._image = image
        self._cluster_wide = cluster_wide
        self._known: dict[str, tuple[Manifest, float]] = {}  # namespace → reference to its Job, `lease_seconds`
        self._held: dict[str, float] = {}  # namespace → `lease_seconds`
        self._lock = asyncio.Lock()
        self._refused: dict[str, str] = {}  # namespace → why it has no Job

    async def reference(self, namespace: str) -> Manifest | None:
        """What owns the budgets of `namespace`; None: their fleets do."""
        if not self._role:
            return None
        async with self._lock:
            reference, seen = self._known.get(namespace, (None, 0.0))
            if reference and lease_seconds() - seen < BELIEVED:
                return reference
            return await self._hold(namespace)

    def holds(self, budget: Mapping[str, Any]) -> bool:
        """Whether this release's Job owns `budget`: with no fleet to own it, nothing else takes it away."""
        owners = budget["metadata"].get("ownerReferences") or ()
        return any((owner["kind"], owner["name"]) == ("Job", f"{self._role}-budgets") for owner in owners)

    async def renew(self, namespaces: Collection[str]) -> None:
        """Hold the budgets that were asked for, of `namespaces`, for another while, where that is due."""
        for namespace in [namespace for namespace in self._known if namespace in namespaces]:
            async with self._lock:
                if lease_seconds() - self._held.get(namespace, -RENEW) >= RENEW:
                    await self._hold(namespace)

    async def _hold(self, namespace: str) -> Manifest | None:
        try:
            owner = await self._owner(namespace)
            job = await self._read(timer_name(owner), namespace)
            now = lease_seconds()
            due = now - self._held.get(namespace, -RENEW) >= RENEW
            seconds = seconds_to_hold(job, time.time())
            if job is None:
                manifest = build_timer(namespace, owner, self._image, seconds)
                job = await self._write(manifest, namespace, PatchType.APPLY)
                self._held[namespace] = now
            elif due:
                # Its template cannot be changed, and may be an earlier version's. One that is about to go does not
                # come back.
                metadata = {"name": timer_name(owner), "ownerReferences": [owner]}
                renewed = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": seconds}}
                job = await self._write(renewed, namespace, PatchType.MERGE)
                self._held[namespace] = now
        except ApiError as error:
            if error.status.code in {429, 503}:
                raise  # not now: what else a pass writes fares no better
            # Whatever refuses the Job, as a policy's webhook does with 400: budgets alone depend on it, and a fleet's
            # shards do not wait for those.
            if str(error) != self._refused.get(namespace):
                logger.warning("budgets in %s outlive the operator: %s", namespace, error.status.message)
            self._refused[namespace] = str(error)
            self._known.pop(namespace, None)
            return None
        self._refused.pop(namespace, None)
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": timer_name(owner), "uid": job["metadata"]["uid"]}
        self._known[namespace] = reference, now
        return reference

    async def _write(self, manifest: Manifest, namespace: str, patch_type: PatchType) -> Manifest:
        job: Manifest = await self._client.patch(
            JOBS, manifest["metadata"]["name"], manifest, namespace=namespace, patch_type=patch_type,
            force=True, field_manager=MANAGED_BY,
        )  # fmt: skip
        return job

    async def _read(self, name: str, namespace: str) -> Manifest | None:
        try:
            job: Manifest = await self._client.get(JOBS, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None
        return job

    async def _owner(self, namespace: str) -> Manifest:
        if self._cluster_wide:
            role = await self._client.get(CLUSTER_ROLES, self._role)
        else:
            role = await self._client.get(ROLES, self._role, namespace=namespace)
        kind = "ClusterRole" if self._cluster_wide else "Role"
        return {"apiVersion": f"{RBAC}/v1", "kind": kind, "name": self._role, "uid": role["metadata"]["uid"]}
