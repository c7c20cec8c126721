"""A pass over one fleet: read the state, decide, apply the differences, write the status.

The controller and `embereye up` call `reconcile` again and again with the same memory. Its steps have a fixed order:
one `Snapshot` is read, `decide/` chooses the shards and the intent, the `Applier` writes and assigns, shards are
scaled, and the status is built from the facts of the pass. A refused object becomes a problem in the status and does
not stop the rest; other errors end the pass, and its caller tries again. No step waits for an effect: an unsafe change
is left to the next pass, and a paused fleet changes only where its pods would be evicted anyway.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.status import FleetStatus, HoldingOperator, LastScale, LoadSummary
from embereye_operator.decide.claims import claims_of
from embereye_operator.decide.exposure import Exposure
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.intent import (
    Change,
    Intent,
    build_change,
    choose_wanted,
    inputs_fingerprint,
    intend,
    keep_placement,
    leaving_names,
    stuck_problems,
)
from embereye_operator.decide.manifests.config_map import placement_size
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.rollout.rollout import Rollout
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.decide.status import Facts, build_status, measured_load
from embereye_operator.errors import RefusedError, UnavailableError
from embereye_operator.reconcile.apply import Applier
from embereye_operator.reconcile.context import Children, Context, Problems
from embereye_operator.reconcile.read import read_exposed, read_snapshot
from embereye_operator.reconcile.report import report_roster, report_scaling, write_status
from embereye_operator.reconcile.scale import can_scale, judge_follower, scale_fleet
from embereye_operator.runtime.interface import Links, Runtime

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
    load: LoadSummary | None = None  # as measured; the status has it rounded to a factor


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
    missing = runtime.cluster.missing_rights(fleet) if runtime.cluster else ""
    problems = {"RightsMissing": missing} if missing else {}
    problems |= {**snapshot.problems, **await _identify(snapshot, wanted, runtime.links)}
    if snapshot.frozen:
        applied = Applied(keep_placement(snapshot, wanted))
        if settings.turns:
            settings.turns.release(fleet.key)
        await applier.leave_nodes()
    else:
        applied = await _apply_intent(snapshot, wanted, exposure, applier, context, healthy=not problems)
    problems |= {**applied.problems, **applier.problems, **_compare_fleets(snapshot, settings, memory)}
    memory.note_leaving(leaving_names(snapshot, applied.intent, applier.gone), snapshot.now)
    problems |= stuck_problems(snapshot, applied.intent, applier.statuses, memory.leaving, applier.gone)
    ledger, unreachable = await report_roster(snapshot, applied.intent.epoch, context)
    scaling = await scale_fleet(snapshot, applied.intent, applier.statuses, context)
    facts = Facts(
        snapshot=snapshot,
        intent=applied.intent,
        existing=applier.existing,
        statuses=applier.statuses,
        redeclared=memory.redeclared,
        decision=scaling.decision,
        scaled=scaling.scaled,
        lead=memory.lead,
        ledger=ledger,
        operator=HoldingOperator(settings.operator, settings.image) if settings.operator else None,
        scaler=await judge_follower(snapshot, context),
        exposure=exposure,
        rollout=applied.rollout,
        problems={**problems, **unreachable, **scaling.problems},
        device_lists=memory.lists[2],
        heard=memory.heard,
    )
    status, news = await write_status(snapshot, build_status(facts, snapshot.previous), context)
    await report_scaling(facts, status, context)
    return _outcome(facts, status, _actions(applier.actions, scaling.scaled, news), memory)


def _compare_fleets(snapshot: Snapshot, settings: Settings, memory: FleetMemory) -> Problems:
    """Return which devices and ports other fleets declare as well."""
    if settings.claims is None:
        return {}
    inputs = (*snapshot.declared_by, len(snapshot.existing)) if snapshot.declared_by else ()
    if not inputs or memory.claims[0] != inputs:
        devices = {device.id for device in (*snapshot.devices, *snapshot.incomplete)}
        memory.claims = inputs, claims_of(snapshot.fleet, devices, len(snapshot.existing))
    return settings.claims.note(snapshot.fleet.key, memory.claims[1])


async def _identify(snapshot: Snapshot, wanted: Sequence[str], links: Links) -> Problems:
    """Issue the shards' certificates."""
    try:
        await links.identify(snapshot.fleet, {*wanted, *snapshot.existing})
    except (UnavailableError, RefusedError) as error:
        return {"IdentityMissing": str(error)}
    return {}


@dataclass(frozen=True)
class Applied:
    """The intent that is in force after the changes of a pass."""

    intent: Intent
    rollout: Rollout | None = None  # None: this pass planned none
    problems: Problems = field(default_factory=dict)


async def _apply_intent(
    snapshot: Snapshot,
    wanted: Sequence[str],
    exposure: Exposure | None,
    applier: Applier,
    context: Context,
    *,
    healthy: bool,
) -> Applied:
    """Apply the new intent, unless its inputs are those of the last pass without problems; `healthy`: none so far."""
    memory = context.memory
    intent = intend(snapshot, wanted, memory)
    memory.note_intent(intent.uneven_since, intent.waiting)
    fingerprint = inputs_fingerprint(snapshot, intent, context.settings)
    if fingerprint is not None and fingerprint == memory.applied:
        return Applied(intent)
    memory.applied = None
    change = await _build_change(snapshot, intent, exposure, context)
    memory.rollout = change.rollout.memory
    if context.settings.turns and change.rollout.turns:
        context.settings.turns.adopt(change.rollout.turns)
    problems = {}
    if change.rollout.failed:
        problems["RolloutFailed"] = (
            f"{change.rollout.failed}: {len(change.rollout.pending)} of its shards stay on the previous version "
            f"(kubectl embereye rollout status {snapshot.fleet.name})"
        )
    if change.epoch != snapshot.record.epoch:
        published = (await context.children.record()).assignments
        memory.note_redeclared(published, change.assignments, change.epoch)
    if (size := placement_size(change.manifests[0])) > MAX_PLACEMENT:
        problems["PlacementTooLarge"] = (
            f"the placement has {size} bytes, and a ConfigMap at most {MAX_PLACEMENT}: split the fleet, or use fewer "
            "shards"
        )
        return Applied(keep_placement(snapshot, wanted), change.rollout, problems)
    intent = replace(intent, epoch=change.epoch)
    if not await applier.apply_change(intent, change):
        return Applied(keep_placement(snapshot, wanted), change.rollout, problems)
    memory.rollout.fenced = change.fenced
    if healthy and not (problems or applier.problems or applier.actions or memory.rollout.is_active):
        memory.applied = fingerprint
    return Applied(intent, change.rollout, problems)


async def _build_change(snapshot: Snapshot, intent: Intent, exposure: Exposure | None, context: Context) -> Change:
    fleet, cluster = snapshot.fleet, context.runtime.cluster
    addresses = {shard: context.runtime.world.address(fleet, shard) for shard in intent.plan.members}
    if exposure:
        addresses = {shard: exposure.advertise(address) for shard, address in addresses.items()}
    return build_change(
        snapshot,
        intent,
        context.settings,
        children=await context.children.objects(),
        published=(await context.children.record()).assignments,
        addresses=addresses,
        budget_owner=await cluster.budget_owner(fleet) if cluster else None,
        memory=context.memory.rollout,
    )


def _actions(applied: Sequence[str], scaled: LastScale | None, news: str) -> tuple[str, ...]:
    scalings = (f"scale from {scaled.from_} to {scaled.to}",) if scaled else ()
    return (*applied, *scalings, *((f"status: {news}",) if news else ()))


def _outcome(facts: Facts, status: FleetStatus, actions: tuple[str, ...], memory: FleetMemory) -> Outcome:
    complete = _is_condition(status, "Progressing", "False")
    at_rest = (
        complete
        and not memory.rollout.is_active
        and not actions
        and not memory.differing_since
        and _is_condition(status, "Covered", "True")
        and _is_far_from_scaling(facts)
    )
    return Outcome(status, actions, complete, at_rest, measured_load(facts))


def _is_condition(status: FleetStatus, type_: str, answer: str) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == answer


def _is_far_from_scaling(facts: Facts) -> bool:
    decision, shards = facts.decision, facts.fleet.spec.shards
    calm = all(shard is not None and shard.load.utilization < BUSY for shard in facts.statuses.values())
    # A fleet that may lose shards gets frequent passes: the stabilization window needs continuous measurements.
    idle = decision.required < shards and can_scale(facts.snapshot)
    return calm and decision.known and decision.required <= shards and not idle
