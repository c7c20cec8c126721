"""A pass over one fleet: read the state, decide, apply the differences, write the status."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus, HoldingOperator
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.intent import (
    Intent,
    build_change,
    choose_wanted,
    inputs_fingerprint,
    intend,
    keep_placement,
    stuck_problems,
)
from embereye_operator.decide.manifests.config_map import placement_size
from embereye_operator.decide.manifests.names import selector_text
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.decide.status import Facts, build_status
from embereye_operator.errors import RefusedError, UnavailableError
from embereye_operator.reconcile.apply import Applier
from embereye_operator.reconcile.context import Children, Context
from embereye_operator.reconcile.read import read_exposed, read_snapshot
from embereye_operator.reconcile.report import report_roster, report_scaling, write_status
from embereye_operator.reconcile.scale import can_scale, judge_follower, scale_fleet
from embereye_operator.runtime.interface import Runtime

MAX_PLACEMENT = 1_000_000  # bytes; etcd refuses a ConfigMap of more than 1 MiB
BUSY = 0.3  # cores; a fleet whose shards are all below it is far from scaling
Clock = Callable[[], int]  # nanoseconds since the Unix epoch


@dataclass(frozen=True)
class Outcome:
    """The results of one pass."""

    status: FleetStatus
    actions: tuple[str, ...]  # for the log: "apply Deployment hall-sensors-1"
    complete: bool  # no change is in progress: the next pass may wait for an event or the clock
    at_rest: bool = False  # complete, healthy, and far from any decision


async def reconcile(
    fleet: Fleet,
    runtime: Runtime,
    clock: Clock,
    settings: Settings,
    memory: FleetMemory | None = None,
    stepped: Clock = lambda: 0,
) -> Outcome:
    """Move the cluster closer to what `fleet` declares; repeat until `Outcome.complete`, then after every change.

    Idempotent: without differences it writes nothing. Unsafe steps are left to a later pass. A shard gets devices once
    it answers. It releases a device once the next owner covers it. It is deleted once the others have taken over.
    `memory` contains the results of earlier passes over the fleet. `clock` measures time; `stepped` is the wall clock,
    which people read, minus `clock`.
    """
    memory = memory or FleetMemory()
    context = Context(runtime, settings, memory, Children(fleet, runtime.world))
    snapshot = replace(await read_snapshot(fleet, clock(), context), stepped=stepped())
    wanted = choose_wanted(snapshot, memory)
    exposure = await read_exposed(snapshot, wanted, context)
    applier = Applier(snapshot, context)
    try:
        await runtime.links.identify(fleet, {*wanted, *snapshot.existing})
    except (UnavailableError, RefusedError) as error:
        context.problems["IdentityMissing"] = str(error)
    if snapshot.frozen:
        intent = keep_placement(snapshot, wanted)
        if settings.turns:
            settings.turns.release(fleet.key)
        await applier.leave_nodes()
    else:
        intent = await _change(snapshot, wanted, exposure, applier, context)
    context.problems |= stuck_problems(snapshot, intent, applier.statuses, memory, applier.gone)
    ledger = await report_roster(snapshot, intent.epoch, context)
    decision, scaled = await scale_fleet(snapshot, intent, applier.statuses, context)
    facts = Facts(
        fleet=fleet,
        now_ns=snapshot.now,
        wall_time_ns=snapshot.wall_time_ns,
        devices=snapshot.devices,
        epoch=intent.epoch,
        placement=intent.plan.placement,
        moving=intent.plan.moving,
        redeclared=memory.redeclared,
        members=intent.plan.members,
        wanted=wanted,
        existing=applier.existing,
        statuses=applier.statuses,
        waiting=snapshot.waiting,
        decision=decision,
        scaled=scaled,
        lead=memory.lead,
        ledger=ledger,
        selector=selector_text(fleet),
        operator=HoldingOperator(settings.operator, settings.image) if settings.operator else None,
        scaler=await judge_follower(snapshot, context),
        exposure=exposure,
        rollout=context.rollout,
        problems=context.problems,
        incomplete=snapshot.incomplete,
        unknown_lists=snapshot.unknown_lists,
        device_lists=memory.lists[2],
    )
    status = await write_status(snapshot, build_status(facts, snapshot.previous), context)
    await report_scaling(facts, status, context)
    complete = _is_condition(status, "Progressing", "False")
    at_rest = (
        complete
        and not memory.rollout.is_active
        and not context.actions
        and _is_condition(status, "Covered", "True")
        and _is_far_from_scaling(snapshot, facts)
    )
    return Outcome(status, tuple(context.actions), complete, at_rest)


async def _change(
    snapshot: Snapshot, wanted: Sequence[str], exposure: Exposure | None, applier: Applier, context: Context
) -> Intent:
    """Apply the new intent; return the one that is in force afterwards."""
    memory = context.memory
    intent = intend(snapshot, wanted, memory)
    fingerprint = inputs_fingerprint(snapshot, intent, context.settings)
    if fingerprint is not None and fingerprint == memory.applied:
        return intent
    memory.applied = None
    cluster = context.runtime.cluster
    published = (await context.children.record()).assignments
    change = build_change(
        snapshot,
        intent,
        context.settings,
        children=await context.children.objects(),
        published=published,
        addresses={
            shard: exposure.advertise(address) if exposure else address
            for shard in intent.plan.members
            for address in [context.runtime.world.address(snapshot.fleet, shard)]
        },
        budget_owner=await cluster.budget_owner(snapshot.fleet) if cluster else None,
        memory=memory.rollout,
    )
    context.rollout = change.rollout
    if change.rollout.failed:
        context.problems["RolloutFailed"] = (
            f"{change.rollout.failed}: {len(change.rollout.pending)} of its shards stay on the previous version "
            f"(kubectl embereye rollout status {snapshot.fleet.name})"
        )
    if change.epoch != snapshot.record.epoch:
        memory.note_redeclared(published, change.assignments, change.epoch)
    if (size := placement_size(change.manifests[0])) > MAX_PLACEMENT:
        context.problems["PlacementTooLarge"] = (
            f"the placement has {size} bytes, and a ConfigMap at most {MAX_PLACEMENT}: split the fleet, or use fewer "
            "shards"
        )
        return keep_placement(snapshot, wanted)
    intent = replace(intent, epoch=change.epoch)
    if not await applier.apply_change(intent, change):
        return keep_placement(snapshot, wanted)
    if not context.actions and not context.problems and not memory.rollout.is_active:
        memory.applied = fingerprint
    return intent


def _is_condition(status: FleetStatus, type_: str, answer: str) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == answer


def _is_far_from_scaling(snapshot: Snapshot, facts: Facts) -> bool:
    decision, shards = facts.decision, facts.fleet.spec.shards
    calm = all(shard is not None and shard.load.utilization < BUSY for shard in facts.statuses.values())
    # A fleet that may lose shards gets frequent passes: the stabilization window needs continuous measurements.
    idle = decision.required < shards and can_scale(snapshot)
    return calm and decision.known and decision.required <= shards and not idle
