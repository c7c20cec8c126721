"""The number of a fleet's shards: decide it, and change it if that is the operator's task.

Each pass gives the shards' loads to the `Scaler` in the fleet's memory, even if somebody else scales the fleet: its
number is then only reported. The operator writes spec.shards in mode embedded only, without `observe`, a pause or a
rival autoscaler. Two scalers that fight become a problem in the status. The write changes the fleet's spec, so that the
next pass, not this one, creates or removes shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from embereye.units import SECOND, counted, utc
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.status import LastScale
from embereye_operator.decide.intent import Intent
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.decide.scaling.followers import SCALERS, Judgement, judge
from embereye_operator.decide.scaling.law import Decision, Observed, measure
from embereye_operator.decide.scaling.writers import describe_contest, latest_write, remember
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.errors import RefusedError
from embereye_operator.reconcile.context import Context, Problems


def can_scale(snapshot: Snapshot) -> bool:
    """True if the operator may change the number of shards."""
    limits = snapshot.fleet.spec.autoscaling
    ours = limits.mode == "embedded" and not limits.observe and not snapshot.frozen
    return ours and not snapshot.rivals


@dataclass(frozen=True)
class Scaling:
    """The decided number of shards, and the change towards it."""

    decision: Decision
    scaled: LastScale | None = None  # None: unchanged
    problems: Problems = field(default_factory=dict)


async def scale_fleet(
    snapshot: Snapshot, intent: Intent, statuses: Mapping[str, ShardStatus | None], context: Context
) -> Scaling:
    """Decide the number of shards, and change it if that is the operator's task."""
    fleet, memory = snapshot.fleet, context.memory
    limits, deadline = fleet.spec.autoscaling, fleet.spec.deadline / SECOND
    observed = _observe(snapshot, intent, statuses, memory.lead)
    decision = memory.scaler.decide(limits, observed, deadline)
    if context.settings.trace:
        context.settings.trace(fleet, observed)
    problems = {}
    kind = SCALERS.get(limits.mode)
    if kind and kind not in snapshot.offered:
        problems["ScalerMissing"] = f"autoscaling.mode is {limits.mode}, but the cluster has no {kind}: use embedded"
    ours = limits.mode != "none" and not limits.observe  # otherwise the other scaler is alone
    # KEDA creates an autoscaler, which is no rival.
    if ours and snapshot.rivals and (limits.mode != "keda" or len(snapshot.rivals) > 1):
        problems["TwoScalers"] = f"{', '.join(snapshot.rivals)} also scales it: delete it, or set mode: none"
    memory.writes = remember(memory.writes, latest_write(fleet.manifest, fleet.spec.shards, snapshot.now))
    if contest := describe_contest(memory.writes, snapshot.now):
        problems["ShardsContested"] = contest
    if not can_scale(snapshot) or decision.shards == fleet.spec.shards or not snapshot.record.epoch:
        return Scaling(decision, problems=problems)
    try:
        return Scaling(decision, await _set_shards(snapshot, decision, context), problems)
    except RefusedError as error:
        return Scaling(decision, problems={**problems, "ApplyRefused": str(error)})


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


async def _set_shards(snapshot: Snapshot, decision: Decision, context: Context) -> LastScale:
    """Change the number of shards; RefusedError if that is not allowed."""
    fleet, memory = snapshot.fleet, context.memory
    before, after = fleet.spec.shards, decision.shards
    name = fleet.type.resource, fleet.name
    if refusal := memory.refusal(name, fleet.generation, snapshot.now):
        raise RefusedError(refusal)
    try:
        await context.runtime.writer.scale(fleet, after)
    except RefusedError as error:
        memory.note_refusal(name, str(error), fleet.generation, snapshot.now)
        raise
    memory.refused.pop(name, None)
    message = f"from {before} to {counted(after, 'shard')}: {decision.reason}"
    await context.runtime.writer.event(fleet, "Normal", "Scaled", message)
    return LastScale(utc(snapshot.wall_time_ns), before, after, decision.reason[:1024], dict(decision.inputs))


async def judge_follower(snapshot: Snapshot, context: Context) -> Judgement | None:
    """Judge the autoscaler that the fleet uses; None if it uses none."""
    limits = snapshot.fleet.spec.autoscaling
    if limits.mode not in SCALERS or limits.observe:
        return None
    memory = context.memory
    key = SCALERS[limits.mode], snapshot.fleet.names.fleet
    version = limits.mode, snapshot.versions.get(key, "")
    if version != memory.judged[0] or not version[1]:
        memory.judged = version, judge(limits.mode, (await context.children.objects()).get(key))
    return memory.judged[1]
