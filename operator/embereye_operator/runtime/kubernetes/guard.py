"""The owner of disruption budgets, which deletes them with the release, or some time after the operator stops.

A budget refuses every eviction, because the operator moves shards itself. Without an operator a budget would block
drains forever. Budgets are therefore owned by a Job in their namespace that Kubernetes deletes automatically: the Job
runs nothing and is complete at once, and the operator keeps raising its ttlSecondsAfterFinished. That is the time for
which budgets outlive the operator. A role of the release owns the Job, so `helm uninstall` deletes all of them.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.condition import Condition
from embereye.process.timing.clock import lease_seconds
from embereye_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.runtime.kubernetes.client.answers import find
from embereye_operator.runtime.kubernetes.client.resources import CLUSTER_ROLES, JOBS, RBAC, ROLES

logger = logging.getLogger(__name__)
HOLD = 1800  # seconds for which budgets outlive the operator
RENEW = 600  # seconds between renewals of the Job's time
RESOURCES = {"cpu": "10m", "memory": "16Mi"}  # of the container that is never started
BELIEVED = 5.0  # seconds after reading a Job in which it counts as existing


def build_timer(namespace: str, owner: Manifest, image: str, seconds: int) -> Manifest:
    """Build the Job that owns a namespace's budgets, to be deleted `seconds` after its completion. It runs nothing.

    Its pod template still satisfies common policies: a full image name, and resources.
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
    """Return the name of the Job for the release whose role is `owner`."""
    return f"{owner['name']}-budgets"


def seconds_to_hold(job: Mapping[str, Any] | None, now: float) -> int:
    """Return the ttlSecondsAfterFinished that ends HOLD seconds after `now`, in seconds since the Unix epoch."""
    completed = ((job or {}).get("status") or {}).get("completionTime")
    if not completed:
        return HOLD
    since = datetime.fromisoformat(completed).timestamp()
    return max(HOLD, int(now - since) + HOLD)


@dataclass(eq=False)
class Guard:
    """Creates and renews the Jobs."""

    client: AsyncClient
    role: str  # the owner of the Jobs: a ClusterRole, or a Role in each namespace; "": fleets own their budgets
    image: str  # appears in the Jobs and never runs
    cluster_wide: bool
    # Namespace → reference to its Job, `lease_seconds` when it was seen.
    _known: dict[str, tuple[Manifest, float]] = field(default_factory=dict)
    _renewed: dict[str, float] = field(default_factory=dict)  # namespace → `lease_seconds` of the latest renewal
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Namespaces without a Job.
    _refused: dict[str, Condition] = field(default_factory=lambda: defaultdict(lambda: Condition(logger)))

    async def reference(self, namespace: str) -> Manifest | None:
        """Return the owner of budgets in `namespace`; None: their fleets own them."""
        if not self.role:
            return None
        async with self._lock:
            reference, seen = self._known.get(namespace, (None, 0.0))
            if reference and lease_seconds() - seen < BELIEVED:
                return reference
            return await self._ensure_job(namespace)

    def is_owner_of(self, budget: Mapping[str, Any]) -> bool:
        """True if this release's Job owns `budget`, so that only the operator deletes it with its fleet."""
        owners = budget["metadata"].get("ownerReferences") or ()
        return any((owner["kind"], owner["name"]) == ("Job", f"{self.role}-budgets") for owner in owners)

    async def renew(self, namespaces: Collection[str]) -> None:
        """Renew the Jobs in `namespaces` that were used and are due."""
        for namespace in [namespace for namespace in self._known if namespace in namespaces]:
            async with self._lock:
                if lease_seconds() - self._renewed.get(namespace, -RENEW) >= RENEW:
                    await self._ensure_job(namespace)

    async def _ensure_job(self, namespace: str) -> Manifest | None:
        try:
            owner = await self._owner(namespace)
            job = await find(self.client, JOBS, timer_name(owner), namespace)
            now = lease_seconds()
            due = now - self._renewed.get(namespace, -RENEW) >= RENEW
            seconds = seconds_to_hold(job, time.time())
            if job is None:
                manifest = build_timer(namespace, owner, self.image, seconds)
                job = await self._write(manifest, namespace, PatchType.APPLY)
                self._renewed[namespace] = now
            elif due:
                # Its template is immutable, and may be an earlier version's. A Job that is being deleted is not created
                # again.
                metadata = {"name": timer_name(owner), "ownerReferences": [owner]}
                renewed = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": seconds}}
                job = await self._write(renewed, namespace, PatchType.MERGE)
                self._renewed[namespace] = now
        except ApiError as error:
            if error.status.code in {429, 503}:
                raise  # the server is busy: other writes of the pass would fail as well
            # Any refusal of the Job, such as a policy's webhook with 400, only affects budgets, and must not stop a
            # fleet's shards.
            sentence = "cannot create the job that deletes budgets in %s: %s"
            self._refused[namespace].fail(str(error), sentence, namespace, error.status.message)
            self._known.pop(namespace, None)
            return None
        self._refused.pop(namespace, None)
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": timer_name(owner), "uid": job["metadata"]["uid"]}
        self._known[namespace] = reference, now
        return reference

    async def _write(self, manifest: Manifest, namespace: str, patch_type: PatchType) -> Manifest:
        job: Manifest = await self.client.patch(
            JOBS, manifest["metadata"]["name"], manifest, namespace=namespace, patch_type=patch_type,
            force=True, field_manager=MANAGED_BY,
        )  # fmt: skip
        return job

    async def _owner(self, namespace: str) -> Manifest:
        if self.cluster_wide:
            role = await self.client.get(CLUSTER_ROLES, self.role)
        else:
            role = await self.client.get(ROLES, self.role, namespace=namespace)
        kind = "ClusterRole" if self.cluster_wide else "Role"
        return {"apiVersion": f"{RBAC}/v1", "kind": kind, "name": self.role, "uid": role["metadata"]["uid"]}
