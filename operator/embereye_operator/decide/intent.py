"""The intent of a pass: a fleet's shards, the owners of its devices, and the manifests for both.

`reconcile` calls these functions in the order `choose_wanted`, `intend`, `build_change`: first the shards, then the
owner of each device, then all objects and assignments with their epoch. Everything comes from a `Snapshot` and the
fleet's memory; nothing is read or written here. If the inputs of the children are those of the last pass without
problems (`inputs_fingerprint`), the pass builds no objects at all. A leaving shard may be deleted only once no device
and no report depends on it, and all owners work under the new epoch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embereye.units import SECOND, counted
from embereye.v1.shard_pb2 import Assignment, Peer, ShardStatus
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.fleet_memory import UNEVEN, FleetMemory
from embereye_operator.decide.manifests.children import build_children
from embereye_operator.decide.manifests.deployment import ANNOTATION_REPLACES
from embereye_operator.decide.manifests.names import drained
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.placement.assignments import build_assignments, next_epoch
from embereye_operator.decide.placement.handoff import Plan, choose_shards, plan
from embereye_operator.decide.placement.placement import LIMIT, shard_loads, spread
from embereye_operator.decide.placement.record import PlacementRecord
from embereye_operator.decide.rollout.rollout import (
    Rollout,
    RolloutMemory,
    differing_reason,
    plan_rollout,
    target_image,
)
from embereye_operator.decide.snapshot import Identity, Snapshot

DRAIN_LIMIT = 120 * SECOND  # time for a shard to be deleted or to leave a node; then Degraded says so
Children = Mapping[Identity, Manifest]


@dataclass(frozen=True)
class Intent:
    """The shards and the placement that a pass works towards."""

    wanted: Sequence[str]  # shards that should exist, by index
    leaving: Sequence[str]  # shards that exist and should be deleted
    plan: Plan
    epoch: int  # of the placement in force
    uneven_since: int = 0  # when loads began to differ too much; 0: they are even
    waiting: Mapping[str, int] = field(default_factory=dict)  # device in hand-over → first seen by this operator


@dataclass(frozen=True)
class Change:
    """All children of an intent: the placement ConfigMap first."""

    epoch: int
    assignments: Mapping[str, Assignment]  # by shard, including leaving shards
    manifests: Sequence[Manifest]
    rollout: Rollout
    fenced: frozenset[str] = frozenset()  # uids of pods on lost nodes that worked under earlier epochs


def choose_wanted(snapshot: Snapshot, memory: FleetMemory) -> list[str]:
    """Choose the shards that should exist, by index."""
    fleet, record = snapshot.fleet, snapshot.record
    owners = {**record.devices, **record.holders}
    known = record.shards or snapshot.existing
    return choose_shards(
        fleet.spec.shards,
        record,
        snapshot.existing,
        up=set(known) - memory.lost_shards(known, snapshot.now, snapshot.dead),
        loads=shard_loads(owners, list(set(owners.values())), snapshot.weights),
        name=fleet.names.shard,
        index=lambda name: fleet.names.index(name) or 0,
        unwanted=drained(fleet),
    )


def keep_placement(snapshot: Snapshot, wanted: Sequence[str]) -> Intent:
    """Return the placement in force, unchanged."""
    record = snapshot.record
    return Intent(wanted, _leaving(snapshot, wanted), Plan(record.members, record.devices, record.moving), record.epoch)


def intend(snapshot: Snapshot, wanted: Sequence[str], memory: FleetMemory) -> Intent:
    """Plan the new placement; its epoch is the one in force until `build_change` chooses the next."""
    record, now = snapshot.record, snapshot.now
    members = _choose_members(snapshot, wanted, memory)
    ids = {device.id for device in snapshot.devices}
    remaining = {device: shard for device, shard in record.devices.items() if device in ids}
    uneven = bool(snapshot.weights) and spread(shard_loads(remaining, members, snapshot.weights)) > LIMIT
    uneven_since = (memory.uneven or now) if uneven else 0
    rebalance = bool(uneven_since) and now - uneven_since >= UNEVEN
    intent = Intent(
        wanted,
        _leaving(snapshot, wanted),
        Plan(record.members, record.devices),
        record.epoch,
        uneven_since,
        {device: min(now, memory.waiting.get(device, now)) for device in record.moving},
    )
    if not rebalance and not record.moving and members == list(record.members):
        # `plan` would find the same: every device has an owner, and none has to move.
        owners = set(record.devices.values())
        if ids == set(record.devices) and owners == set(members):
            return intent
    placement = plan(
        record,
        snapshot.devices,
        members,
        snapshot.statuses,
        weights=snapshot.weights,
        rebalance=rebalance,
        now=now,
        deadline=snapshot.fleet.spec.deadline,
        waiting=intent.waiting,
    )
    return replace(intent, plan=placement)


def _leaving(snapshot: Snapshot, wanted: Sequence[str]) -> list[str]:
    return [shard for shard in snapshot.existing if shard not in wanted]


def _choose_members(snapshot: Snapshot, wanted: Sequence[str], memory: FleetMemory) -> list[str]:
    """Choose the shards that can own devices: present owners that are not lost, and all that answer."""
    known = {*snapshot.record.members, *snapshot.record.devices.values()}
    up = {shard for shard, status in snapshot.statuses.items() if status and not status.draining}
    lost = memory.lost_shards([shard for shard in wanted if shard in known], snapshot.now, snapshot.dead)
    members = [shard for shard in wanted if (shard in known and shard not in lost) or shard in up]
    return members or [shard for shard in wanted if shard in known] or list(wanted)


def inputs_fingerprint(snapshot: Snapshot, intent: Intent, settings: Settings) -> Any:
    """Return everything that determines the children; None if that is unknown or a change is in progress."""
    record, placement = snapshot.record, intent.plan
    up_to_date = all(status and status.epoch == record.epoch for status in snapshot.statuses.values())
    up_to_date = up_to_date and snapshot.hub_epoch <= record.epoch
    quiet = up_to_date and not placement.moving and not intent.leaving and placement.placement == record.devices
    if not quiet or not all(snapshot.versions.values()) or not snapshot.declared_by:
        return None
    return (
        snapshot.declared_by,
        snapshot.fleet.annotations,
        settings,
        snapshot.versions,
        list(placement.members),
        intent.wanted,
        snapshot.displaced,
        snapshot.offered,
        snapshot.hub_address,
    )


def build_change(
    snapshot: Snapshot,
    intent: Intent,
    settings: Settings,
    *,
    children: Children,
    published: Mapping[str, Assignment | None],
    addresses: Mapping[str, Peer],
    budget_owner: Manifest | None,
    memory: RolloutMemory,
) -> Change:
    """Build all children.

    `children` are the existing objects, `published` each shard's assignment under the record's epoch, `addresses` the
    members' addresses, `budget_owner` the owner of the disruption budget, `memory` that of the roll-out.
    """
    placement, operators_image = intent.plan, settings.image
    hub = snapshot.hub.address if snapshot.hub else settings.hub
    settings = replace(settings, image=target_image(snapshot.fleet, settings.image), hub=hub)
    assignments = build_assignments(
        snapshot.fleet,
        snapshot.devices,
        placement.placement,
        members=addresses,
        others=[shard for shard in [*intent.wanted, *intent.leaving] if shard not in addresses],
        epoch=0,
        holders=placement.holders,
        hub=snapshot.hub_address,
    )
    # A lost node may return with a pod that has the name of its successor: a new epoch fences it.
    lost = frozenset(pod.pod for shard, pod in snapshot.leaving_nodes.items() if pod.lost and shard in intent.wanted)
    moved = placement.placement != snapshot.record.devices or not lost <= memory.fenced
    epoch = next_epoch(assignments, published, _epoch_floor(snapshot), moved=moved)
    for assignment in assignments.values():
        assignment.epoch = epoch
    intent = replace(intent, epoch=epoch)
    manifests = _build_manifests(snapshot, intent, settings, assignments, children, budget_owner)
    differs = differing_reason(snapshot.fleet, snapshot.previous, settings.turns)
    rollout = plan_rollout(
        snapshot.fleet,
        manifests,
        children,
        snapshot.statuses,
        replace(memory, waiting=snapshot.waiting, differs=differs),
        settings.turns,
        image=operators_image,
        now=snapshot.now,
    )
    for manifest in manifests:
        if manifest["kind"] == "Deployment" and (image := rollout.images.get(manifest["metadata"]["name"])):
            manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return Change(epoch, assignments, manifests, rollout, lost)


def _build_manifests(
    snapshot: Snapshot,
    intent: Intent,
    settings: Settings,
    assignments: Mapping[str, Assignment],
    children: Children,
    budget_owner: Manifest | None,
) -> list[Manifest]:
    plan, wanted = intent.plan, intent.wanted
    record = PlacementRecord(intent.epoch, plan.placement, tuple(plan.members), tuple(wanted), plan.moving)
    return build_children(
        snapshot.fleet,
        settings,
        assignments=assignments,
        record=record.to_manifest(),
        shards=wanted,
        is_offered=snapshot.offered.__contains__,
        replaces=_pods_to_replace(snapshot, wanted, children),
        lost=snapshot.dead,
        hosts=_listening_hosts(wanted, children, settings.image),
        evictable=snapshot.evictable,
        budget_owner=budget_owner,
    )


def _epoch_floor(snapshot: Snapshot) -> int:
    """Return the highest epoch that any process may have seen, in case the record was lost."""
    seen = [status.epoch for status in snapshot.statuses.values() if status]
    return max([snapshot.record.epoch, snapshot.previous.placement_epoch, snapshot.hub_epoch, *seen])


def _pods_to_replace(snapshot: Snapshot, wanted: Sequence[str], children: Children) -> dict[str, str]:
    """Map each shard to the uid of the pod that its new pod replaces: the current one if it cannot stay on its node."""
    leaving_nodes = snapshot.leaving_nodes
    replaced = {}
    for shard in wanted:
        deployment = children.get(("Deployment", shard), {})
        if pod := leaving_nodes[shard].pod if shard in leaving_nodes else replaced_pod(deployment):
            replaced[shard] = pod
    return replaced


def replaced_pod(deployment: Mapping[str, Any]) -> str:
    """Return the uid of the pod that the current one replaced; "" if none."""
    template = deployment.get("spec", {}).get("template", {})
    return str((template.get("metadata", {}).get("annotations") or {}).get(ANNOTATION_REPLACES, ""))


def _listening_hosts(wanted: Sequence[str], children: Children, image: str) -> dict[str, str]:
    """Return the address that each up-to-date shard listens on: a different default is no reason to roll it."""
    hosts = {}
    for shard in wanted:
        pod = children.get(("Deployment", shard), {}).get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers") or ():
            if container.get("name") == "shard" and container.get("image") == image:
                env = {entry["name"]: entry.get("value", "") for entry in container.get("env") or ()}
                hosts[shard] = env.get("EMBEREYE_HOST", "")
    return hosts


def can_delete(
    shard: str, intent: Intent, statuses: Mapping[str, ShardStatus | None], deployment: Mapping[str, Any]
) -> bool:
    """True if nothing depends on a leaving shard any more; `deployment` is empty if it does not exist."""
    running = (deployment.get("status") or {}).get("availableReplicas", 0)
    if statuses.get(shard) is None and not running:
        return True  # it serves no device
    if shard in intent.plan.holders.values() or _spooled(statuses.get(shard)):
        return False
    return all(_has_taken_over(statuses.get(name), intent.epoch) for name in intent.plan.members)


def _spooled(status: ShardStatus | None) -> int:
    """Return the number of reports that would be lost with its pod."""
    return status.evidence_spooled if status else 0


def _has_taken_over(status: ShardStatus | None, epoch: int) -> bool:
    return status is not None and status.epoch >= epoch


def leaving_names(snapshot: Snapshot, intent: Intent, gone: Collection[str]) -> list[str]:
    """Return the shards that should be deleted, and SHARD@NODE for each that should leave its node."""
    nodes = [f"{shard}@{pod.node}" for shard, pod in snapshot.leaving_nodes.items()]
    return [*_staying(snapshot, intent, gone), *nodes]


def _staying(snapshot: Snapshot, intent: Intent, gone: Collection[str]) -> list[str]:
    return [shard for shard in intent.leaving if shard not in gone and not snapshot.frozen]


def stuck_problems(
    snapshot: Snapshot,
    intent: Intent,
    statuses: Mapping[str, ShardStatus | None],
    since: Mapping[str, int],
    gone: Collection[str],
) -> dict[str, str]:
    """Return problems with leaving shards: reason → sentence; `since` has when each of `leaving_names` began to leave.

    `gone` are the shards that this pass has deleted.
    """
    leaving_nodes, staying = snapshot.leaving_nodes, _staying(snapshot, intent, gone)
    late = {name for name, began in since.items() if snapshot.now - began > DRAIN_LIMIT}
    reasons = []
    for shard in staying:
        if shard in late:
            owned = sum(holder == shard for holder in intent.plan.holders.values())
            waits = [name for name in intent.plan.members if not _has_taken_over(statuses.get(name), intent.epoch)]
            why = f"{', '.join(waits) or 'no shard'} has not taken over"
            if owned:
                why = f"it still watches {counted(owned, 'device')}"
            elif not waits and (spooled := _spooled(statuses.get(shard))):
                waiting = counted(spooled, "of its reports waits", "of its reports wait")
                why = f"{waiting} for the hub, which does not accept them"
            reasons.append(f"{shard} should have been deleted: {why}")
    for shard, pod in leaving_nodes.items():
        if f"{shard}@{pod.node}" in late:
            reasons.append(f"{shard} should have left node {pod.node}: its new pod is not ready on another node")
    problems = {}
    if lost := sorted(f"{shard} was on {leaving_nodes[shard].node}" for shard in snapshot.dead & set(leaving_nodes)):
        problems["NodeLost"] = f"nodes are lost, shards start on others: {', '.join(lost)}"
    if reasons:
        problems["DrainStuck"] = f"for more than {DRAIN_LIMIT // SECOND} s {'; '.join(reasons)}"
    return problems
