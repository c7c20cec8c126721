"""One fleet, one pass: read the world, decide, apply what differs, write what is true now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus, HoldingOperator
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.intent import (
    Intent,
    basis_of,
    build_change,
    choose_wanted,
    intend,
    keep,
    tell_stuck,
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
from embereye_operator.reconcile.scale import judge_follower, may_scale, scale_fleet
from embereye_operator.reconcile.tell import tell_hub, tell_scaling, tell_status
from embereye_operator.runtime.interface import Runtime

MAX_PLACEMENT = 1_000_000  # bytes; etcd refuses a ConfigMap of more than 1 MiB
BUSY = 0.3  # of a core; with less a fleet is far from needing another shard
Clock = Callable[[], int]  # nanoseconds since the Unix epoch


@dataclass(frozen=True)
class Outcome:
    """What one pass found and did."""

    status: FleetStatus
    actions: tuple[str, ...]  # for the log: "apply Deployment hall-sensors-1"
    settled: bool  # nothing is on its way: the next pass may wait for an event or the clock
    at_rest: bool = False  # settled, well, and far from any decision


async def reconcile(
    fleet: Fleet,
    runtime: Runtime,
    clock: Clock,
    settings: Settings,
    memory: FleetMemory | None = None,
    stepped: Clock = lambda: 0,
) -> Outcome:
    """Bring what exists closer to what `fleet` declares; repeat until `Outcome.settled`, then on every change.

    Idempotent: with nothing to change it writes nothing. What is not safe yet is left to a later pass: a shard gets
    devices only once it answers, lets go of one only once its next owner covers it, and goes only once the others
    have taken over. `memory` is what earlier passes over the same fleet left there. Time passes by
    `clock`; `stepped` is how far the wall clock, which people read, is ahead of it.
    """
    memory = memory or FleetMemory()
    context = Context(runtime, settings, memory, Children(fleet, runtime))
    snapshot = replace(await read_snapshot(fleet, clock(), context), stepped=stepped())
    wanted = choose_wanted(snapshot, memory)
    exposure = await read_exposed(snapshot, wanted, context)
    applier = Applier(snapshot, context)
    try:
        await runtime.identify(fleet, {*wanted, *snapshot.existing})
    except (UnavailableError, RefusedError) as error:
        context.problems["IdentityMissing"] = str(error)
    if snapshot.held:
        intent = keep(snapshot, wanted)
        if settings.turns:
            settings.turns.release(fleet.key)
        await applier.leave_nodes()
    else:
        intent = await _change(snapshot, wanted, exposure, applier, context)
    context.problems |= tell_stuck(snapshot, intent, applier.statuses, memory, applier.gone)
    ledger = await tell_hub(snapshot, intent.epoch, context)
    decision, scaled = await scale_fleet(snapshot, intent, applier.statuses, context)
    facts = Facts(
        fleet=fleet,
        now_ns=snapshot.now,
        label_ns=snapshot.label,
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
    )
    status = await tell_status(snapshot, build_status(facts, snapshot.previous), context)
    await tell_scaling(facts, status, context)
    settled = _says(status, "Progressing", "False")
    at_rest = (
        settled
        and not memory.rollout.is_on
        and not context.actions
        and _says(status, "Covered", "True")
        and _is_far_from_scaling(snapshot, facts)
    )
    return Outcome(status, tuple(context.actions), settled, at_rest)


async def _change(
    snapshot: Snapshot, wanted: Sequence[str], exposure: Exposure | None, applier: Applier, context: Context
) -> Intent:
    """Work towards what there is to be; returns what is in force then."""
    memory = context.memory
    intent = intend(snapshot, wanted, memory)
    basis = basis_of(snapshot, intent, context.settings)
    if basis is not None and basis == memory.applied:
        return intent
    memory.applied = None
    told = (await context.children.record()).assignments
    change = build_change(
        snapshot,
        intent,
        context.settings,
        children=await context.children.objects(),
        told=told,
        addresses={
            shard: exposure.advertise(address) if exposure else address
            for shard in intent.plan.members
            for address in [context.runtime.address(snapshot.fleet, shard)]
        },
        budget_owner=await context.runtime.budget_owner(snapshot.fleet),
        memory=memory.rollout,
    )
    context.rollout = change.rollout
    if change.rollout.failed:
        context.problems["RolloutFailed"] = (
            f"{change.rollout.failed}: {len(change.rollout.held)} of its shards keep what they run "
            f"(kubectl embereye rollout status {snapshot.fleet.name})"
        )
    if change.epoch != snapshot.record.epoch:
        memory.redeclares(told, change.assignments, change.epoch)
    if (size := placement_size(change.manifests[0])) > MAX_PLACEMENT:
        context.problems["PlacementTooLarge"] = (
            f"the placement takes {size} bytes, a ConfigMap {MAX_PLACEMENT}: split the fleet, or use fewer shards"
        )
        return keep(snapshot, wanted)
    intent = replace(intent, epoch=change.epoch)
    if not await applier.apply_change(intent, change):
        return keep(snapshot, wanted)
    if not context.actions and not context.problems and not memory.rollout.is_on:
        memory.applied = basis
    return intent


def _says(status: FleetStatus, type_: str, answer: str) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == answer


def _is_far_from_scaling(snapshot: Snapshot, facts: Facts) -> bool:
    decision, shards = facts.decision, facts.fleet.spec.shards
    calm = all(told is not None and told.load.utilization < BUSY for told in facts.statuses.values())
    # One that may lose shards is watched closely until it has: what nobody saw was not watched.
    idle = decision.required < shards and may_scale(snapshot)
    return calm and decision.known and decision.required <= shards and not idle
