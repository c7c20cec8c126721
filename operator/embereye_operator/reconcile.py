"""One fleet, one pass: read the world, decide, apply what differs, write what is true now."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embereye.v1.roster_pb2 import FleetLedger
from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.fleets import Fleet, FleetError, parse_devices
from embereye_operator.api.schema import Manifest, to_manifest
from embereye_operator.api.status import FleetStatus, HoldingOperator, LastScale
from embereye_operator.decide.assignments import build_assignments, build_device, build_roster, located, next_epoch
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.fleet_memory import Memory
from embereye_operator.decide.handoff import Plan, choose_shards, plan
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.manifests.children import build_children
from embereye_operator.decide.manifests.compare import differences
from embereye_operator.decide.manifests.config_map import placement_size
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.decide.manifests.deployment import ANNOTATION_REPLACES, is_plain
from embereye_operator.decide.manifests.disruption_budget import build_disruption_budget
from embereye_operator.decide.manifests.names import (
    drained,
    fleet_name,
    placement_name,
    selector_text,
    shard_index,
    shard_name,
)
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.applied import marked
from embereye_operator.decide.placement import LIMIT, shard_loads, spread
from embereye_operator.decide.placement_record import Record, read_record, recover
from embereye_operator.decide.scaling.followers import SCALERS, Judgement, followed, judge
from embereye_operator.decide.scaling.law import Decision, Observed, measure
from embereye_operator.decide.status import Facts, build_status, read_status, timestamp
from embereye_operator.errors import RefusedError, TakenError, UnavailableError
from embereye_operator.runtime.interface import Runtime

logger = logging.getLogger(__name__)
SECOND = 1_000_000_000  # nanoseconds
MAX_PLACEMENT = 1_000_000  # bytes; etcd refuses a ConfigMap of more than 1 MiB
OFFERED = ("NetworkPolicy", "HorizontalPodAutoscaler", "ScaledObject", TOLERANCE)
BUSY = 0.3  # of a core; with less a fleet is far from needing another shard
DRAIN_LIMIT = 120 * SECOND  # for a shard to go, or to leave a node; then people are told
ANNOUNCED = ("Covered", "Ready")  # conditions besides Degraded whose changes people are told of
Clock = Callable[[], int]  # nanoseconds since the Unix epoch
Identity = tuple[str, str]  # kind, name


@dataclass(frozen=True)
class Outcome:
    """What one pass found and did."""

    status: FleetStatus
    actions: tuple[str, ...]  # for the log: "apply Deployment hall-sensors-1"
    settled: bool  # nothing is on its way: the next pass may wait for an event or the clock
    at_rest: bool = False  # settled, well, and far from any decision
    followed: int = 0  # shards, as autoscalers of others are told them


def identity(manifest: Mapping[str, Any]) -> Identity:
    """Kind and name: what tells a fleet's children apart."""
    return manifest["kind"], manifest["metadata"]["name"]


async def reconcile(
    fleet: Fleet, runtime: Runtime, clock: Clock, settings: Settings, memory: Memory | None = None
) -> Outcome:
    """Bring what exists closer to what `fleet` declares; repeat until `Outcome.settled`, then on every change.

    Idempotent: with nothing to change it writes nothing. What is not safe yet is left to a later pass: a shard gets
    devices only once it answers, lets go of one only once its next owner covers it, and goes only once the others
    have taken over. `memory` is what earlier passes over the same fleet left there.
    """
    return await _Pass(fleet, runtime, clock, settings, memory or Memory()).run()


class _Pass:
    """The state of one reconcile, so that its steps fit on a screen each."""

    def __init__(self, fleet: Fleet, runtime: Runtime, clock: Clock, settings: Settings, memory: Memory) -> None:
        self.fleet = fleet
        self.runtime = runtime
        self.now = clock()
        self.settings = settings
        self.memory = memory
        self.actions: list[str] = []
        self.problems: dict[str, str] = {}
        self.statuses: dict[str, ShardStatus | None] = {}
        self.plan = Plan()
        self.gone: set[str] = set()
        self.ledger: FleetLedger | None = None
        self._read: dict[Identity, Manifest] | None = None

    async def run(self) -> Outcome:
        self.versions = await self.runtime.versions(self.fleet)
        self.previous = self._previous()
        self.record, self.existing = await self._found()
        self.devices = await self._declared()
        await self._ask(list(dict.fromkeys([*self.existing, *self.record.shards])))
        self.record = recover(self.record, self.statuses)
        self.memory.heard(self.statuses, self.now)
        self.weights = self.memory.weights({device.id for device in self.devices})
        self.wanted = self._wanted()
        self.leaving = [shard for shard in self.existing if shard not in self.wanted]
        if self.fleet.spec.paused:
            self._keep()
            await self._leave_nodes()
        else:
            await self._change()
        await self._tell_hub()
        return await self._finish()

    # --- what there is ---

    async def _found(self) -> tuple[Record, list[str]]:
        """The record and the shards that exist. Without the assignments where nothing has changed: nobody asks then."""
        if self.memory.found and self.memory.found[0] == self.versions and all(self.versions.values()):
            return self.memory.found[1:]
        children = await self._children()
        record = read_record(self.fleet, children.get(("ConfigMap", placement_name(self.fleet))))
        existing = _shards_of(self.fleet, children)
        self.memory.found = self.versions, replace(record, assignments={}), existing
        return record, existing

    async def _children(self) -> Mapping[Identity, Manifest]:
        if self._read is None:
            self._read = {identity(child): child for child in await self.runtime.children(self.fleet)}
        return self._read

    async def _assigned(self) -> Mapping[str, Assignment | None]:
        """What each shard was told under the record's epoch."""
        if not self.record.assignments:
            children = await self._children()
            stored = read_record(self.fleet, children.get(("ConfigMap", placement_name(self.fleet))))
            self.record = replace(self.record, assignments=stored.assignments)
        return self.record.assignments

    def _previous(self) -> FleetStatus:
        """What the status says; a manifest without one says that it is what it was at the last pass."""
        if stored := self.fleet.status:
            self.memory.status = read_status(stored)
        elif "status" in self.fleet.manifest:
            self.memory.status = None
        return self.memory.status or FleetStatus()

    async def _declared(self) -> list[Device]:
        """All devices: the manifest's, then those of the ConfigMaps it names.

        A list that is missing or wrong takes no device out of sight: those it declared before are kept.
        """
        names = {reference.config_map_ref.name for reference in self.fleet.devices_from}
        versions = {name: self.versions.get(("ConfigMap", name)) for name in names}
        known_from, known = self.memory.declared
        if known_from == (self.fleet.uid, self.fleet.generation, versions):
            return known
        maps = await self.runtime.config_maps(self.fleet) if names else {}
        devices = {device.id: build_device(device, self.fleet) for device in self.fleet.devices}
        problems = []
        for reference in self.fleet.devices_from:
            source = reference.config_map_ref
            data = maps.get(source.name)
            where = f"ConfigMap {source.name}"
            if data is None or (source.key and source.key not in data):
                problems.append(f"{where} {f'has no key {source.key}' if data is not None else 'does not exist'}")
                continue
            for key in [source.key] if source.key else sorted(data):
                try:
                    parsed = parse_devices(self.fleet.kind, data[key], f"{where}, key {key}")
                except FleetError as error:
                    problems.append(str(error))
                    continue
                if twice := [device.id for device in parsed if device.id in devices]:
                    problems.append(f"{where}, key {key}: {', '.join(twice[:5])} declared before: the first counts")
                for device in parsed:
                    devices.setdefault(device.id, build_device(device, self.fleet))
        if problems:
            self.problems["DeviceListInvalid"] = "; ".join(problems)
            for assignment in (await self._assigned()).values():
                for device_before in assignment.devices if assignment else ():
                    devices.setdefault(device_before.id, device_before)
        found = [devices[name] for name in sorted(devices)]
        self.memory.declared = ((), []) if problems else ((self.fleet.uid, self.fleet.generation, versions), found)
        return found

    async def _ask(self, shards: Sequence[str]) -> None:
        answers = await asyncio.gather(*(self.runtime.shard_status(self.fleet, shard) for shard in shards))
        self.statuses.update(zip(shards, answers, strict=True))

    # --- what there is to be ---

    def _wanted(self) -> list[str]:
        held = {**self.record.devices, **self.record.holders}
        known = self.record.shards or self.existing
        return choose_shards(
            self.fleet.spec.shards,
            self.record,
            self.existing,
            up=set(known) - self.memory.lost(known, self.now, self._dead()),
            loads=shard_loads(held, list(set(held.values())), self.weights),
            name=lambda number: shard_name(self.fleet, number),
            index=lambda name: shard_index(self.fleet, name) or 0,
            unwanted=drained(self.fleet),
        )

    def _keep(self) -> None:
        """Leave the placement as it is."""
        self.epoch = self.record.epoch
        self.plan = Plan(self.record.members, self.record.devices, self.record.moving)

    async def _change(self) -> None:
        self.plan = self._plan()
        if (basis := self._basis()) == self.memory.applied and basis is not None:
            self.epoch = self.record.epoch
            self._tell_what_is_stuck()
            return
        self.memory.applied = None
        children = await self._children()
        assignments = self._assignments()
        moved = self.plan.placement != self.record.devices
        self.epoch = next_epoch(assignments, await self._assigned(), self._epoch_floor(), moved=moved)
        for assignment in assignments.values():
            assignment.epoch = self.epoch
        if self.epoch != self.record.epoch:
            self.memory.redeclares(await self._assigned(), assignments, self.epoch)
        plan = self.plan
        record = Record(self.epoch, plan.placement, tuple(plan.members), tuple(self.wanted), plan.moving)
        desired = build_children(
            self.fleet,
            self.settings,
            assignments=assignments,
            record=record.to_manifest(),
            shards=self.wanted,
            offers=self.runtime.offers,
            replaces=self._replaces(children),
            hosts=self._hosts(children),
            plain=self._plain(children),
            evictable=self._evictable(),
            budget_owner=await self.runtime.budget_owner(self.fleet),
        )
        if (size := placement_size(desired[0])) > MAX_PLACEMENT:
            sentence = (
                f"the placement takes {size} bytes, a ConfigMap {MAX_PLACEMENT}: split the fleet, or use fewer shards"
            )
            self.problems["PlacementTooLarge"] = sentence
            self._keep()
            return
        # The record first: whoever leads next must know of every epoch that a shard may have seen.
        if not await self._apply(desired[0], children, fenced=True):
            self._keep()  # without a record nothing else may happen
            return
        if plan.overdue:
            self.actions.append(f"let go of {len(plan.overdue)} devices that their new owners have not heard")
        await self._hand_over(assignments)
        for manifest in desired[1:]:
            await self._apply(manifest, children)
        self.memory.made([shard for shard in self.wanted if shard not in self.existing], self.now)
        await self._prune(desired, children)
        if not self.actions and not self.problems:
            self.memory.applied = basis
        self._tell_what_is_stuck()
        self.existing = sorted(
            {*self.existing, *self.wanted} - self.gone, key=lambda name: shard_index(self.fleet, name) or 0
        )

    def _basis(self) -> Any:
        """All that what there is to be follows from; None where that cannot be told, or something is on its way."""
        told = all(status and status.epoch == self.record.epoch for status in self.statuses.values())
        quiet = told and not self.plan.moving and not self.leaving and self.plan.placement == self.record.devices
        if not quiet or not all(self.versions.values()) or not self.memory.declared[0]:
            return None
        return (
            self.memory.declared[0],
            self.fleet.annotations,
            self.settings,
            self.versions,
            list(self.plan.members),
            self.wanted,
            self.runtime.displaced(self.fleet),
            [kind for kind in OFFERED if self.runtime.offers(kind)],
        )

    def _replaces(self, children: Mapping[Identity, Manifest]) -> dict[str, str]:
        """For each shard the pod that its present one replaces; a pod that cannot stay on its node is the next."""
        moving = self._displaced()
        found = {}
        for shard in self.wanted:
            deployment = children.get(("Deployment", shard), {})
            if pod := moving[shard].pod if shard in moving else _replaced(deployment):
                found[shard] = pod
        return found

    def _displaced(self) -> dict[str, Displaced]:
        """Shards that a roll moves to another node."""
        return {shard: it for shard, it in self.runtime.displaced(self.fleet).items() if not it.comes_back}

    def _dead(self) -> set[str]:
        """Shards whose node does not run any more: they are not merely out of the operator's reach."""
        return {shard for shard, it in self.runtime.displaced(self.fleet).items() if it.lost}

    def _evictable(self) -> bool:
        """Whether evictions have to be let through, since no roll can take their place."""
        return not self.runtime.sees_nodes or any(it.comes_back for it in self.runtime.displaced(self.fleet).values())

    async def _leave_nodes(self) -> None:
        """Of a paused fleet: a node is emptied whatever people think of the fleet, and no pod survives that.

        A roll of what runs leaves no gap, and changes neither the image nor anything else of the pod.
        """
        self._tell_what_is_stuck()
        moving = self._displaced()
        if self.memory.left == (moving, self._evictable()):
            return
        children = await self._children()
        for shard, it in moving.items():
            deployment = children.get(("Deployment", shard))
            if deployment is not None and _replaced(deployment) != it.pod:
                self.actions.append(f"roll {shard}, away from node {it.node}")
                await self.runtime.roll(deployment, {"metadata": {"annotations": {ANNOTATION_REPLACES: it.pod}}})
        owner = await self.runtime.budget_owner(self.fleet)
        await self._apply(build_disruption_budget(self.fleet, evictable=self._evictable(), owner=owner), children)
        self.memory.left = moving, self._evictable()

    def _plain(self, children: Mapping[Identity, Manifest]) -> set[str]:
        """Shards that need not be rolled for what only matters when their node is lost: it comes with the next roll."""
        moving = self._displaced()
        return {
            shard
            for shard in self.wanted
            if shard not in moving and is_plain(children.get(("Deployment", shard), {}), self.settings.image)
        }

    def _hosts(self, children: Mapping[Identity, Manifest]) -> dict[str, str]:
        """The address that each shard of the present image listens on: another one is no reason to roll it."""
        hosts = {}
        for shard in self.wanted:
            pod = children.get(("Deployment", shard), {}).get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("containers") or ():
                if container.get("name") == "shard" and container.get("image") == self.settings.image:
                    told = {entry["name"]: entry.get("value", "") for entry in container.get("env") or ()}
                    hosts[shard] = told.get("EMBEREYE_HOST", "")
        return hosts

    def _tell_what_is_stuck(self) -> None:
        displaced = self._displaced()
        staying = [shard for shard in self.leaving if shard not in self.gone and not self.fleet.spec.paused]
        self.memory.leaves([*staying, *(f"{shard}@{it.node}" for shard, it in displaced.items())], self.now)
        late = {name for name, since in self.memory.leaving.items() if self.now - since > DRAIN_LIMIT}
        reasons = []
        for shard in staying:
            if shard in late:
                held = sum(holder == shard for holder in self.plan.holders.values())
                waits = [name for name in self.plan.members if not self._has_taken_over(name)]
                why = f"it holds {held} devices" if held else f"{', '.join(waits) or 'nobody'} has not taken over"
                reasons.append(f"{shard} should have gone: {why}")
        for shard, it in displaced.items():
            if f"{shard}@{it.node}" in late:
                reasons.append(f"{shard} should have left node {it.node}: its new pod does not become ready elsewhere")
        if gone := sorted(f"{shard} was on {displaced[shard].node}" for shard in self._dead() & set(displaced)):
            self.problems["NodeLost"] = f"nodes do not run any more, shards start elsewhere: {', '.join(gone)}"
        if reasons:
            self.problems["DrainStuck"] = f"for more than {DRAIN_LIMIT // SECOND} s {'; '.join(reasons)}"

    def _has_taken_over(self, shard: str) -> bool:
        status = self.statuses.get(shard)
        return status is not None and status.epoch >= self.epoch

    def _plan(self) -> Plan:
        members = self._members()
        ids = {device.id for device in self.devices}
        kept = {device: shard for device, shard in self.record.devices.items() if device in ids}
        uneven = bool(self.weights) and spread(shard_loads(kept, members, self.weights)) > LIMIT
        rebalance = self.memory.uneven_for_long(uneven, self.now)
        if not rebalance and not self.record.moving and members == list(self.record.members):
            # What `plan` would find out, too: everybody has an owner, and nobody has to move.
            owners = set(self.record.devices.values())
            if ids == set(self.record.devices) and owners == set(members):
                return Plan(self.record.members, self.record.devices)
        return plan(
            self.record,
            self.devices,
            members,
            self.statuses,
            weights=self.weights,
            rebalance=rebalance,
            now=self.now,
            deadline=self.fleet.spec.deadline,
            waiting=self.memory.waits(self.record.moving, self.now),
        )

    def _members(self) -> list[str]:
        """The shards that may own devices: those that do already and are not lost, and whoever answers."""
        known = {*self.record.members, *self.record.devices.values()}
        up = {shard for shard, status in self.statuses.items() if status and not status.draining}
        lost = self.memory.lost([shard for shard in self.wanted if shard in known], self.now, self._dead())
        members = [shard for shard in self.wanted if (shard in known and shard not in lost) or shard in up]
        return members or [shard for shard in self.wanted if shard in known] or list(self.wanted)

    def _assignments(self) -> dict[str, Assignment]:
        members = {shard: self.runtime.address(self.fleet, shard) for shard in self.plan.members}
        others = [shard for shard in [*self.wanted, *self.leaving] if shard not in members]
        return build_assignments(
            self.fleet,
            self.devices,
            self.plan.placement,
            members=members,
            others=others,
            epoch=0,
            holders=self.plan.holders,
        )

    def _epoch_floor(self) -> int:
        """The highest epoch that anyone may have seen, should the record be lost."""
        seen = [status.epoch for status in self.statuses.values() if status]
        return max([self.record.epoch, self.previous.placement_epoch, *seen])

    # --- making it so ---

    async def _apply(self, manifest: Manifest, children: Mapping[Identity, Manifest], *, fenced: bool = False) -> bool:
        """Make the object as `manifest` says where it is not; False where that is refused."""
        manifest, observed = marked(manifest), children.get(identity(manifest))
        if observed is not None and not _differs(manifest, observed):
            return True
        if fenced and observed is not None and (version := self.versions.get(identity(manifest))):
            # Whoever decided on an older record than there is must read again: the API server refuses this then.
            manifest = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
        if refusal := self.memory.refusal(identity(manifest), self.fleet.generation, self.now):
            self.problems["ApplyRefused"] = refusal
            return False
        try:
            await self.runtime.apply(manifest, new=observed is None)
        except TakenError as error:
            taken = [self.problems["NameTaken"]] if "NameTaken" in self.problems else []
            self.problems["NameTaken"] = "; ".join([*taken, str(error)])
            return False
        except RefusedError as error:
            self.problems["ApplyRefused"] = str(error)
            self.memory.refuses(identity(manifest), str(error), self.fleet.generation, self.now)
            await self.runtime.event(self.fleet, "Warning", "ApplyRefused", str(error))
            return False
        self.memory.refused.pop(identity(manifest), None)
        self.actions.append(f"apply {' '.join(identity(manifest))}")
        return True

    async def _hand_over(self, assignments: Mapping[str, Assignment]) -> None:
        """Give shards their assignments: first to those that gain devices, so that each has an owner throughout."""
        behind = [shard for shard in assignments if (status := self.statuses.get(shard)) and status.epoch < self.epoch]
        gaining = [shard for shard in behind if self._gains(shard, assignments[shard])]
        accepted = await self._assign(gaining, assignments)
        if accepted:
            await self._assign([shard for shard in behind if shard not in gaining], assignments)

    def _gains(self, shard: str, assignment: Assignment) -> bool:
        before = self.record.assignments.get(shard)
        had = {device.id for device in before.devices} if before else set()
        return any(device.id not in had for device in assignment.devices)

    async def _assign(self, shards: Sequence[str], assignments: Mapping[str, Assignment]) -> bool:
        answers = await asyncio.gather(
            *(
                self.runtime.assign(self.fleet, shard, located(assignments[shard], self.plan.placement))
                for shard in shards
            )
        )
        accepted = True
        for shard, answer in zip(shards, answers, strict=True):
            self.actions.append(f"assign {shard} epoch {self.epoch}")
            if answer is not None and not answer.accepted:
                accepted = False
                self.problems["AssignmentRefused"] = f"{shard} refused its assignment: {answer.reason}"
        if shards:
            await self._ask(shards)
        return accepted

    async def _prune(self, desired: Sequence[Manifest], children: Mapping[Identity, Manifest]) -> None:
        """Delete what is no longer wanted, and a leaving shard only when nothing depends on it any more."""
        keep = {identity(manifest) for manifest in desired}
        staying = {shard for shard in self.leaving if not self._may_go(shard, children)}
        # Deployments first: a shard that drains still wants its Service.
        for child in sorted(children.values(), key=lambda child: (child["kind"] != "Deployment", identity(child))):
            name = identity(child)[1]
            if identity(child) in keep or name in staying or self._waits_for_its_shard(child):
                continue
            self.actions.append(f"delete {' '.join(identity(child))}")
            await self.runtime.delete(child)
            if child["kind"] == "Deployment":
                self.gone.add(name)

    def _waits_for_its_shard(self, child: Manifest) -> bool:
        """Whether it is the Service of a shard that scaling may bring back: a new one would have another address.

        Whoever looked the name up goes on with the old address for as long as it believes the answer, up to a minute.
        """
        index = shard_index(self.fleet, child["metadata"]["name"])
        return child["kind"] == "Service" and index is not None and index < self.fleet.spec.autoscaling.max_shards

    def _may_go(self, shard: str, children: Mapping[Identity, Manifest]) -> bool:
        deployment = children.get(("Deployment", shard), {})
        running = (deployment.get("status") or {}).get("availableReplicas", 0)
        if self.statuses.get(shard) is None and not running:
            return True  # it serves nobody
        if shard in self.plan.holders.values():
            return False
        return all(self._has_taken_over(name) for name in self.plan.members)

    # --- telling ---

    async def _tell_hub(self) -> None:
        if not self.epoch or self.fleet.spec.paused:
            return
        basis = (*self.memory.declared[0], self.epoch)
        if not self.memory.declared[0] or basis != self.memory.roster[0]:
            self.memory.roster = basis, build_roster(self.fleet, self.devices, self.epoch)
        try:
            self.ledger = await self.runtime.set_roster(self.memory.roster[1])
        except UnavailableError as error:
            self.problems["HubUnreachable"] = str(error)

    async def _scale(self) -> tuple[Decision, LastScale | None]:
        """Decide how many shards there are to be, and scale where that is ours to do."""
        spec = self.fleet.spec
        limits = spec.autoscaling
        told = {shard: status for shard, status in self.statuses.items() if status and status.epoch}
        owners = set(self.plan.placement.values())
        observed = Observed(
            time=self.now,
            shards=spec.shards,
            measured=measure([status.load for status in told.values()]),
            missing=tuple(sorted(owner for owner in owners if owner not in told)),
            lead=self.memory.lead,
            capacity=shard_capacity(self.fleet),
        )
        decision = self.memory.scaler.decide(limits, observed, spec.deadline / SECOND)
        if self.settings.trace:
            self.settings.trace(self.fleet, observed)
        for mode, kind in SCALERS.items():
            if limits.mode == mode and not self.runtime.offers(kind):
                self.problems["ScalerMissing"] = (
                    f"autoscaling.mode is {mode}, and there is no {kind} here: use embedded"
                )
        rivals = self.runtime.rivals(self.fleet)
        if rivals and (limits.mode != "keda" or len(rivals) > 1):
            self.problems["TwoScalers"] = f"{', '.join(rivals)} would scale it, too: delete it, or set mode: none"
        if not self._may_scale() or decision.shards == spec.shards or not self.record.epoch:
            return decision, None
        await self.runtime.scale(self.fleet, decision.shards)
        self.actions.append(f"scale from {spec.shards} to {decision.shards}")
        change = LastScale(
            timestamp(self.now), spec.shards, decision.shards, decision.reason[:1024], dict(decision.inputs)
        )
        message = f"from {spec.shards} to {decision.shards} shards: {decision.reason}"
        await self.runtime.event(self.fleet, "Normal", "Scaled", message)
        return decision, change

    async def _judge_scaler(self) -> Judgement | None:
        """Whether the autoscaler that the fleet asks for works; None where it asks for none."""
        limits = self.fleet.spec.autoscaling
        if limits.mode not in SCALERS or limits.observe:
            return None
        key = SCALERS[limits.mode], fleet_name(self.fleet)
        version = limits.mode, self.versions.get(key, "")
        if version != self.memory.judged[0] or not version[1]:
            self.memory.judged = version, judge(limits.mode, (await self._children()).get(key))
        return self.memory.judged[1]

    def _followed(self, decision: Decision) -> int:
        mode = self.fleet.spec.autoscaling.mode
        steady = mode not in SCALERS or (mode == "hpa" and self.runtime.offers(TOLERANCE))
        return decision.required if steady else followed(decision.required, len(self.existing))

    def _may_scale(self) -> bool:
        """Whether the number of shards is ours to change."""
        limits = self.fleet.spec.autoscaling
        ours = limits.mode == "embedded" and not limits.observe and not self.fleet.spec.paused
        return ours and not self.runtime.rivals(self.fleet)

    async def _finish(self) -> Outcome:
        decision, scaled = await self._scale()
        facts = Facts(
            fleet=self.fleet,
            now_ns=self.now,
            devices=self.devices,
            epoch=self.epoch,
            placement=self.plan.placement,
            moving=self.plan.moving,
            redeclared=self.memory.redeclared,
            members=self.plan.members,
            wanted=self.wanted,
            existing=self.existing,
            statuses=self.statuses,
            decision=decision,
            scaled=scaled,
            lead=self.memory.lead,
            ledger=self.ledger,
            selector=selector_text(self.fleet),
            operator=HoldingOperator(self.settings.operator, self.settings.image) if self.settings.operator else None,
            scaler=await self._judge_scaler(),
            problems=self.problems,
        )
        status = build_status(facts, self.previous)
        if status == self.previous:
            status = self.previous  # one of them is enough to keep
        if status is not self.memory.status:
            await self.runtime.write_status(self.fleet, to_manifest(status))
            self.memory.status = status
            self.actions.append("write status")
            await self._announce(status)
        progressing = status.condition("Progressing")
        settled = progressing is not None and progressing.status == "False"
        covered = status.condition("Covered")
        calm = all(told is not None and told.load.utilization < BUSY for told in self.statuses.values())
        # One that may lose shards is watched closely until it has: what nobody saw was not watched.
        idle = decision.required < self.fleet.spec.shards and self._may_scale()
        far = decision.known and decision.required <= self.fleet.spec.shards and not idle
        at_rest = settled and calm and far and not self.actions and covered is not None and covered.status == "True"
        return Outcome(status, tuple(self.actions), settled, at_rest, self._followed(decision))

    async def _announce(self, status: FleetStatus) -> None:
        for type_ in ANNOUNCED:
            before, now = self.previous.condition(type_), status.condition(type_)
            if now is not None and (before is None or before.status != now.status):
                good = now.status == "True"
                reason = type_ if good else f"Not{type_}"
                await self.runtime.event(self.fleet, "Normal" if good else "Warning", reason, now.message)
        before, now = self.previous.condition("Degraded"), status.condition("Degraded")
        if (
            now
            and now.status == "True"
            and (before is None or (before.status, before.reason) != (now.status, now.reason))
        ):
            logger.warning("%s: %s: %s", self.fleet.key, now.reason, now.message)
            if now.reason != "ApplyRefused":  # told each time
                await self.runtime.event(self.fleet, "Warning", now.reason, now.message)


def _differs(desired: Manifest, observed: Manifest) -> list[str]:
    found = differences(
        {key: value for key, value in desired.items() if key != "apiVersion"},
        observed,
    )
    if desired["kind"] == "ConfigMap":
        # The record is ours alone: a key that is no longer wanted must go.
        found += [
            f".{field}.{key}"
            for field in ("data", "binaryData")
            for key in observed.get(field) or {}
            if key not in (desired.get(field) or {})
        ]
    return found


def _replaced(deployment: Mapping[str, Any]) -> str:
    """The uid of the pod that the present one was made to replace; "": none."""
    template = deployment.get("spec", {}).get("template", {})
    return str((template.get("metadata", {}).get("annotations") or {}).get(ANNOTATION_REPLACES, ""))


def _shards_of(fleet: Fleet, children: Mapping[Identity, Manifest]) -> list[str]:
    names = [name for kind, name in children if kind == "Deployment"]
    indexes = sorted(index for name in names if (index := shard_index(fleet, name)) is not None)
    return [shard_name(fleet, index) for index in indexes]
