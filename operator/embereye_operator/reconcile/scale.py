"""The number of a fleet's shards: decide it, and change it if that is the operator's task."""

from collections.abc import Mapping

from embereye.units import SECOND, counted
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.status import LastScale
from embereye_operator.decide.intent import Intent
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.decide.manifests.names import fleet_name
from embereye_operator.decide.scaling.followers import SCALERS, Judgement, judge
from embereye_operator.decide.scaling.law import Decision, Observed, measure
from embereye_operator.decide.scaling.writers import describe_contest, latest_write, remember
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.decide.status import timestamp
from embereye_operator.errors import RefusedError
from embereye_operator.reconcile.context import Context


def can_scale(snapshot: Snapshot) -> bool:
    """True if the operator may change the number of shards."""
    limits = snapshot.fleet.spec.autoscaling
    ours = limits.mode == "embedded" and not limits.observe and not snapshot.frozen
    return ours and not snapshot.rivals


async def scale_fleet(
    snapshot: Snapshot, intent: Intent, statuses: Mapping[str, ShardStatus | None], context: Context
) -> tuple[Decision, LastScale | None]:
    """Decide the number of shards; return the decision, and the change if one was made."""
    fleet = snapshot.fleet
    limits, deadline = fleet.spec.autoscaling, fleet.spec.deadline / SECOND
    observed = _observe(snapshot, intent, statuses, context.memory.lead)
    decision = context.memory.scaler.decide(limits, observed, deadline)
    if context.settings.trace:
        context.settings.trace(fleet, observed)
    kind = SCALERS.get(limits.mode)
    if kind and kind not in snapshot.offered:
        context.problems["ScalerMissing"] = (
            f"autoscaling.mode is {limits.mode}, but the cluster has no {kind}: use embedded"
        )
    ours = limits.mode != "none" and not limits.observe  # otherwise the other scaler is alone
    # KEDA creates an autoscaler, which is no rival.
    if ours and snapshot.rivals and (limits.mode != "keda" or len(snapshot.rivals) > 1):
        rivals = ", ".join(snapshot.rivals)
        context.problems["TwoScalers"] = f"{rivals} also scales it: delete it, or set mode: none"
    memory = context.memory
    memory.writes = remember(memory.writes, latest_write(fleet.manifest, fleet.spec.shards, snapshot.now))
    if contest := describe_contest(memory.writes, snapshot.now):
        context.problems["ShardsContested"] = contest
    if not can_scale(snapshot) or decision.shards == fleet.spec.shards or not snapshot.record.epoch:
        return decision, None
    return decision, await _set_shards(snapshot, decision, context)


def _observe(snapshot: Snapshot, intent: Intent, statuses: Mapping[str, ShardStatus | None], lead: float) -> Observed:
    measured = {shard: status for shard, status in statuses.items() if status and status.epoch}
    owners = set(intent.plan.placement.values())
    return Observed(
        time=snapshot.now,
        shards=snapshot.fleet.spec.shards,
        measured=measure([status.load for status in measured.values()]),
        missing=tuple(sorted(owner for owner in owners if owner not in measured)),
        lead=lead,
        capacity=shard_capacity(snapshot.fleet),
    )


async def _set_shards(snapshot: Snapshot, decision: Decision, context: Context) -> LastScale | None:
    """Change the number of shards; None if that is refused, which becomes a problem of the pass."""
    fleet, memory = snapshot.fleet, context.memory
    before, after = fleet.spec.shards, decision.shards
    name = fleet.type.resource, fleet.name
    if refusal := memory.refusal(name, fleet.generation, snapshot.now):
        context.problems["ApplyRefused"] = refusal
        return None
    try:
        await context.runtime.writer.scale(fleet, after)
    except RefusedError as error:
        context.problems["ApplyRefused"] = str(error)
        memory.note_refusal(name, str(error), fleet.generation, snapshot.now)
        return None
    memory.refused.pop(name, None)
    context.actions.append(f"scale from {before} to {after}")
    message = f"from {before} to {counted(after, 'shard')}: {decision.reason}"
    await context.runtime.writer.event(fleet, "Normal", "Scaled", message)
    return LastScale(timestamp(snapshot.wall_time_ns), before, after, decision.reason[:1024], dict(decision.inputs))


async def judge_follower(snapshot: Snapshot, context: Context) -> Judgement | None:
    """Judge the autoscaler that the fleet uses; None if it uses none."""
    limits = snapshot.fleet.spec.autoscaling
    if limits.mode not in SCALERS or limits.observe:
        return None
    memory = context.memory
    key = SCALERS[limits.mode], fleet_name(snapshot.fleet)
    version = limits.mode, snapshot.versions.get(key, "")
    if version != memory.judged[0] or not version[1]:
        memory.judged = version, judge(limits.mode, (await context.children.objects()).get(key))
    return memory.judged[1]
