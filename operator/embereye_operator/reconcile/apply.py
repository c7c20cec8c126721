"""The changes of a pass: write objects, then assign devices to shards, and last delete unwanted objects.

`reconcile` creates one `Applier` for a pass. The order is the invariant: first the placement record, so that the next
leader knows the epoch; then shards that gain devices, and unless one of them refuses, the others; then the other
objects; deletions last, and a leaving shard only once nothing depends on it. An object is written only if it deviates
from its manifest. What the API server refuses becomes a problem and is tried again later, with growing intervals.
"""

import asyncio
from collections.abc import Mapping, Sequence

from embereye.units import counted
from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye_operator.api.names import LABEL_SHARD
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.intent import Change, Intent, can_delete, replaced_pod
from embereye_operator.decide.manifests.compare import Deviation, deviations
from embereye_operator.decide.manifests.deployment import ANNOTATION_REPLACES
from embereye_operator.decide.manifests.disruption_budget import build_disruption_budget
from embereye_operator.decide.ownership.applied import hashed, marked
from embereye_operator.decide.placement.assignments import located
from embereye_operator.decide.rollout.rollout import with_pod
from embereye_operator.decide.snapshot import Identity, Snapshot, identity
from embereye_operator.errors import RefusedError, TakenError
from embereye_operator.reconcile.context import Context
from embereye_operator.reconcile.read import ask_shards


class Applier:
    """Changes a fleet's objects towards the intent; anything that is not safe yet is left to a later pass."""

    def __init__(self, snapshot: Snapshot, context: Context) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._children = context.children
        self._writer = context.runtime.writer
        self._links = context.runtime.links
        self._cluster = context.runtime.cluster
        self._memory = context.memory
        self.statuses: dict[str, ShardStatus | None] = dict(
            snapshot.statuses
        )  # updated for shards that got an assignment
        self.existing: Sequence[str] = snapshot.existing  # existing shards, by index
        self.gone: set[str] = set()  # shards that were deleted
        self.actions: list[str] = []  # for the log: "apply Deployment hall-sensors-1"
        self.problems: dict[str, str] = {}  # reason → sentence

    async def leave_nodes(self) -> None:
        """Roll a paused fleet's shards away from nodes that are drained, because their pods would be evicted anyway.

        The roll-out leaves no gap, and changes neither the image nor anything else of the pod.
        """
        leaving, evictable = self._snapshot.leaving_nodes, self._snapshot.evictable
        if self._memory.vacated == (leaving, evictable):
            return
        objects = await self._children.objects()
        for shard in leaving:
            await self._leave_node(shard, objects)
        owner = await self._cluster.budget_owner(self._fleet) if self._cluster else None
        await self._apply(build_disruption_budget(self._fleet, evictable=evictable, owner=owner), objects)
        self._memory.vacated = leaving, evictable

    async def _leave_node(self, shard: str, objects: Mapping[Identity, Manifest]) -> None:
        """Roll the running version of `shard` away from a node that it must leave; do nothing if it may stay."""
        pod, deployment = self._snapshot.leaving_nodes.get(shard), objects.get(("Deployment", shard))
        if self._cluster and pod and deployment and replaced_pod(deployment) != pod.pod:
            self.actions.append(f"roll {shard}, away from node {pod.node}")
            await self._cluster.roll(deployment, {"metadata": {"annotations": {ANNOTATION_REPLACES: pod.pod}}})

    async def apply_change(self, intent: Intent, change: Change) -> bool:
        """Apply all of `change`; False if its first object, the record, was refused: then nothing else may change.

        `intent` has the epoch of the change.
        """
        objects = await self._children.objects()
        # The record first: the next leader must know every epoch that a shard may have seen.
        if not await self._apply(change.manifests[0], objects, fenced=True):
            return False
        if overdue := intent.plan.overdue:
            self.actions.append(f"release {counted(len(overdue), 'device')} that new owners have not received")
        await self._assign_shards(intent, change.assignments)
        for manifest in change.manifests[1:]:
            if manifest["kind"] == "Deployment" and manifest["metadata"]["name"] in change.rollout.pending:
                await self._leave_node(manifest["metadata"]["name"], objects)
            else:
                await self._apply(manifest, objects)
        created = [shard for shard in intent.wanted if shard not in self._snapshot.existing]
        self._memory.note_created(created, self._snapshot.now)
        await self._prune(intent, change.manifests, objects)
        self.existing = sorted(
            {*self.existing, *intent.wanted} - self.gone, key=lambda name: self._fleet.names.index(name) or 0
        )
        return True

    async def _apply(self, manifest: Manifest, objects: Mapping[Identity, Manifest], *, fenced: bool = False) -> bool:
        """Write the object if it differs from `manifest`; False if that is refused.

        `fenced`: only if nobody has written it since it was read.
        """
        name, generation, now = identity(manifest), self._fleet.generation, self._snapshot.now
        shard = manifest["kind"] == "Deployment"
        manifest, observed = marked(with_pod(manifest) if shard else manifest), objects.get(name)
        rollout = self._memory.rollout
        expected, request = rollout.expected(manifest) if shard else manifest, hashed(manifest)
        if observed is not None and self._memory.is_known(name, request, _deviations(expected, observed)):
            return True
        if fenced and observed is not None and (version := self._snapshot.versions.get(name)):
            # A pass that decided on an outdated record must read again: the API server then refuses this write.
            manifest = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
        if refusal := self._memory.refusal(name, generation, now):
            self.problems["ApplyRefused"] = refusal
            return False
        try:
            stored = await self._writer.apply(manifest, new=observed is None)
        except TakenError as error:
            earlier = [self.problems["NameTaken"]] if "NameTaken" in self.problems else []
            self.problems["NameTaken"] = "; ".join([*earlier, str(error)])
            return False
        except RefusedError as error:
            await self._note_refusal(name, error)
            return False
        if shard:
            rollout.note_admitted(manifest, stored)
            expected = rollout.expected(manifest)
        self._memory.note_admitted(name, request, _deviations(expected, stored))
        self._memory.refused.pop(name, None)
        self.actions.append(f"apply {' '.join(name)}")
        return True

    async def _assign_shards(self, intent: Intent, assignments: Mapping[str, Assignment]) -> None:
        """Send shards their assignments: first to those that gain devices, so that each device always has an owner."""
        before = (await self._children.record()).assignments
        behind = [
            shard for shard in assignments if (status := self.statuses.get(shard)) and status.epoch < intent.epoch
        ]
        gaining = [shard for shard in behind if _has_new_devices(before.get(shard), assignments[shard])]
        if await self._assign(gaining, intent, assignments):
            await self._assign([shard for shard in behind if shard not in gaining], intent, assignments)

    async def _assign(self, shards: Sequence[str], intent: Intent, assignments: Mapping[str, Assignment]) -> bool:
        """Send `shards` their assignments and query their status; False if one refuses."""
        placement = intent.plan.placement
        answers = await asyncio.gather(
            *(self._links.assign(self._fleet, shard, located(assignments[shard], placement)) for shard in shards)
        )
        accepted = True
        for shard, answer in zip(shards, answers, strict=True):
            self.actions.append(f"assign {shard} epoch {intent.epoch}")
            if answer is not None and not answer.accepted:
                accepted = False
                self.problems["AssignmentRefused"] = f"{shard} refused its assignment: {answer.reason}"
        self.statuses |= await ask_shards(self._fleet, self._links, shards)
        return accepted

    async def _prune(self, intent: Intent, desired: Sequence[Manifest], objects: Mapping[Identity, Manifest]) -> None:
        """Delete unwanted objects, and a leaving shard only once nothing depends on it."""
        wanted = {identity(manifest) for manifest in desired}
        staying = {
            shard
            for shard in intent.leaving
            if not can_delete(shard, intent, self.statuses, objects.get(("Deployment", shard), {}))
        }
        # Deployments first: a draining shard still needs its Service.
        for child in sorted(objects.values(), key=lambda child: (child["kind"] != "Deployment", identity(child))):
            name = identity(child)[1]
            if identity(child) in wanted or _shard_of(child) in staying or self._is_reserved_service(child):
                continue
            waits = child["metadata"].get("deletionTimestamp")  # for somebody's finalizer
            if (waits or await self._delete(child)) and child["kind"] == "Deployment":
                self.gone.add(name)

    async def _delete(self, child: Manifest) -> bool:
        """Delete `child`; False if that is refused, which becomes a problem of the pass."""
        name = identity(child)
        if refusal := self._memory.refusal(name, self._fleet.generation, self._snapshot.now):
            self.problems["ApplyRefused"] = refusal
            return False
        try:
            await self._writer.delete(child)
        except RefusedError as error:
            await self._note_refusal(name, error)
            return False
        self._memory.refused.pop(name, None)
        self.actions.append(f"delete {' '.join(name)}")
        return True

    async def _note_refusal(self, name: Identity, error: RefusedError) -> None:
        self.problems["ApplyRefused"] = str(error)
        self._memory.note_refusal(name, str(error), self._fleet.generation, self._snapshot.now)
        await self._writer.event(self._fleet, "Warning", "ApplyRefused", str(error))

    def _is_reserved_service(self, child: Manifest) -> bool:
        """True if it is the Service of a shard that scaling may create again: a new one would have another address.

        Clients that cache the address would use the old one for up to a minute.
        """
        index = self._fleet.names.index(child["metadata"]["name"])
        return child["kind"] == "Service" and index is not None and index < self._fleet.spec.autoscaling.max_shards


def _shard_of(child: Manifest) -> str:
    return str((child["metadata"].get("labels") or {}).get(LABEL_SHARD, child["metadata"]["name"]))


def _has_new_devices(before: Assignment | None, after: Assignment) -> bool:
    known = {device.id for device in before.devices} if before else set()
    return any(device.id not in known for device in after.devices)


def _deviations(desired: Manifest, observed: Manifest) -> list[Deviation]:
    result = deviations(
        {key: value for key, value in desired.items() if key != "apiVersion"},
        observed,
    )
    if desired["kind"] == "ConfigMap":
        # Only the operator writes the record: unwanted keys must be removed.
        result += [
            (f".{field}.{key}", "")
            for field in ("data", "binaryData")
            for key in observed.get(field) or {}
            if key not in (desired.get(field) or {})
        ]
    return result
