"""What a pass does about the number of shards: decide it, and change it where that is the operator's to do."""

from collections.abc import Mapping

from embereye.units import SECOND, counted
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.status import LastScale
from embereye_operator.decide.intent import Intent
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.decide.manifests.names import fleet_name
from embereye_operator.decide.scaling.followers import SCALERS, Judgement, judge
from embereye_operator.decide.scaling.law import Decision, Observed, measure
from embereye_operator.decide.scaling.writers import latest_write, remember, tell_fight
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.decide.status import timestamp
from embereye_operator.errors import RefusedError
from embereye_operator.reconcile.context import Context


def may_scale(snapshot: Snapshot) -> bool:
    """Whether the number of shards is the operator's to change."""
    limits = snapshot.fleet.spec.autoscaling
    ours = limits.mode == "embedded" and not limits.observe and not snapshot.held
    return ours and not snapshot.rivals


async def scale_fleet(
    snapshot: Snapshot, intent: Intent, statuses: Mapping[str, ShardStatus | None], context: Context
) -> tuple[Decision, LastScale | None]:
    """How many shards the fleet needs, and the change of their number that was made, if one was."""
    fleet = snapshot.fleet
    limits, deadline = fleet.spec.autoscaling, fleet.spec.deadline / SECOND
    observed = _observe(snapshot, intent, statuses, context.memory.lead)
    decision = context.memory.scaler.decide(limits, observed, deadline)
    if context.settings.trace:
        context.settings.trace(fleet, observed)
    kind = SCALERS.get(limits.mode)
    if kind and kind not in snapshot.offered:
        context.problems["ScalerMissing"] = (
            f"autoscaling.mode is {limits.mode}, and there is no {kind} here: use embedded"
        )
    ours = limits.mode != "none" and not limits.observe  # else whoever scales is alone
    # KEDA makes an autoscaler of its own.
    if ours and snapshot.rivals and (limits.mode != "keda" or len(snapshot.rivals) > 1):
        others = ", ".join(snapshot.rivals)
        context.problems["TwoScalers"] = f"{others} would scale it, too: delete it, or set mode: none"
    memory = context.memory
    memory.writes = remember(memory.writes, latest_write(fleet.manifest, fleet.spec.shards, snapshot.now))
    if fight := tell_fight(memory.writes, snapshot.now):
        context.problems["ShardsContested"] = fight
    if not may_scale(snapshot) or decision.shards == fleet.spec.shards or not snapshot.record.epoch:
        return decision, None
    return decision, await _set_shards(snapshot, decision, context)


def _observe(snapshot: Snapshot, intent: Intent, statuses: Mapping[str, ShardStatus | None], lead: float) -> Observed:
    told = {shard: status for shard, status in statuses.items() if status and status.epoch}
    owners = set(intent.plan.placement.values())
    return Observed(
        time=snapshot.now,
        shards=snapshot.fleet.spec.shards,
        measured=measure([status.load for status in told.values()]),
        missing=tuple(sorted(owner for owner in owners if owner not in told)),
        lead=lead,
        capacity=shard_capacity(snapshot.fleet),
    )


async def _set_shards(snapshot: Snapshot, decision: Decision, context: Context) -> LastScale | None:
    """Change the number of shards; None where that is refused, which is told."""
    fleet, memory = snapshot.fleet, context.memory
    before, after = fleet.spec.shards, decision.shards
    name = fleet.type.resource, fleet.name
    if refusal := memory.refusal(name, fleet.generation, snapshot.now):
        context.problems["ApplyRefused"] = refusal
        return None
    try:
        await context.runtime.scale(fleet, after)
    except RefusedError as error:
        context.problems["ApplyRefused"] = str(error)
        memory.refuses(name, str(error), fleet.generation, snapshot.now)
        return None
    memory.refused.pop(name, None)
    context.actions.append(f"scale from {before} to {after}")
    message = f"from {before} to {counted(after, 'shard')}: {decision.reason}"
    await context.runtime.event(fleet, "Normal", "Scaled", message)
    return LastScale(timestamp(snapshot.label), before, after, decision.reason[:1024], dict(decision.inputs))


async def judge_follower(snapshot: Snapshot, context: Context) -> Judgement | None:
    """Whether the autoscaler that the fleet asks for works; None where it asks for none."""
    limits = snapshot.fleet.spec.autoscaling
    if limits.mode not in SCALERS or limits.observe:
        return None
    memory = context.memory
    key = SCALERS[limits.mode], fleet_name(snapshot.fleet)
    version = limits.mode, snapshot.versions.get(key, "")
    if version != memory.judged[0] or not version[1]:
        memory.judged = version, judge(limits.mode, (await context.children.objects()).get(key))
    return memory.judged[1]
