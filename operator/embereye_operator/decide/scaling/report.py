"""The report of a fleet's load and scaling for the hub's console. Pure."""

from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetScaling, ScaleChange, ShardLoad
from embereye.v1.shard_pb2 import Load
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.scaling.law import measure
from embereye_operator.decide.status import Facts, why_not_ready


def build_scaling(facts: Facts, status: FleetStatus) -> FleetScaling:
    """Build the report of a pass from its `facts` and the `status` that it wrote."""
    limits, decision = facts.fleet.spec.autoscaling, facts.decision
    scaling = FleetScaling(
        fleet=facts.fleet.key, mode=limits.mode, min_shards=limits.min_shards, max_shards=limits.max_shards,
        shards=facts.fleet.spec.shards, ready_shards=status.ready_shards, known=decision.known,
        required_shards=decision.required, reason=decision.reason[:1024],
        members=[_member(facts, shard) for shard in sorted({*facts.intent.wanted, *facts.existing})],
    )  # fmt: skip
    if measured := measure([known.load for known in facts.statuses.values() if known]):
        scaling.load.CopyFrom(
            Load(
                arrival_rate=measured.arrival_rate, cost_seconds=measured.cost, utilization=measured.utilization,
                queue_depth=measured.backlog, oldest_age_ns=int(measured.oldest_age * SECOND),
            )
        )  # fmt: skip
    if last := status.last_scale:
        scaling.last.CopyFrom(ScaleChange(time=last.time, before=last.from_, after=last.to, reason=last.reason))
    return scaling


def _member(facts: Facts, shard: str) -> ShardLoad:
    status = facts.statuses.get(shard)
    return ShardLoad(
        shard=shard, why_not_ready=why_not_ready(facts, shard), load=status.load if status is not None else None
    )
