"""An explanation of a fleet's number of shards: inputs, formula and result, from its status.

`embereye explain fleet` calls it. The status has the measured load and the latest scaling, and the same functions of
`law.py` calculate the terms again, so no second formula exists. Inputs in the status are rounded, so the result may
differ slightly from the operator's.
"""

from dataclasses import asdict

from embereye.units import SECOND, counted
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, from_manifest, to_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.manifests.container import shard_capacity
from embereye_operator.decide.scaling.law import Measured, bounded, overrun, terms, why_bounded


def explanation(fleet: Fleet) -> Manifest:
    """Return inputs, formula and result, from the fleet's status."""
    status: FleetStatus = from_manifest(FleetStatus, fleet.status)
    limits = fleet.spec.autoscaling
    answer: Manifest = {
        "fleet": fleet.key,
        "mode": limits.mode,
        "observe": limits.observe,
        "shards": {"spec": fleet.spec.shards, "exist": status.shards, "ready": status.ready_shards},
        "required": status.required_shards,
        "bounds": {"minShards": limits.min_shards, "maxShards": limits.max_shards},
        "conditions": {
            entry.type: {"status": entry.status, "reason": entry.reason, "message": entry.message}
            for entry in status.conditions
            if entry.type in {"ScalingActive", "MetricsAvailable"}
        },
    }
    if status.load:
        load, capacity = status.load, shard_capacity(fleet)
        measured = Measured(load.arrival_rate, load.cost, load.queue_depth, load.oldest_age, load.utilization)
        law = terms(measured, limits, lead=load.lead, capacity=capacity)
        why = overrun(measured, limits, current=fleet.spec.shards, deadline=fleet.spec.deadline / SECOND)
        unbounded = max(law.shards, fleet.spec.shards + 1) if why else law.shards
        answer["inputs"] = {
            **asdict(measured),
            "lead": load.lead,
            "capacity": capacity,
            "target_utilization": limits.target_utilization,
            "catch_up": limits.catch_up / SECOND,
        }
        answer["formula"] = {
            "text": "ceil((λ·c/u + backlog·c/catchUp + λ·c·lead/catchUp) / capacity)",
            "numbers": str(law),
            "law": law.shards,
            "overrun": why,
            "bounded": bounded(unbounded, limits),
            "bound": why_bounded(unbounded, limits),
        }
    if status.last_scale:
        answer["lastScale"] = to_manifest(status.last_scale)
    return answer


def sentences(answer: Manifest) -> list[str]:
    """Format an explanation for people."""
    shards, lines = answer["shards"], []
    observe = ", observe: decides without acting" if answer["observe"] else ""
    lines.append(f"{answer['fleet']}: mode {answer['mode']}{observe}")
    lines.append(f"  shards     {shards['spec']} declared, {shards['exist']} exist, {shards['ready']} ready")
    lines.append(
        f"  required   {answer['required']} (between {answer['bounds']['minShards']} and "
        f"{answer['bounds']['maxShards']})"
    )
    if inputs := answer.get("inputs"):
        lines.append(
            f"  inputs     λ {inputs['arrival_rate']:g} items/s, c {inputs['cost'] * 1000:g} ms of CPU per item, "
            f"u {inputs['target_utilization']:g}, backlog {inputs['backlog']}, oldest {inputs['oldest_age']:g} s, "
            f"lead {inputs['lead']:g} s, catchUp {inputs['catch_up']:g} s, "
            f"capacity {counted(inputs['capacity'], 'core')}"
        )
        formula = answer["formula"]
        lines += [f"  formula    {formula['text']}", f"           = {formula['numbers']}"]
        if formula["overrun"]:
            lines.append(f"  raised     {formula['overrun']}")
        if formula["bound"]:
            lines.append(f"  bounded    {formula['bound']}")
        lines.append("             (the status has rounded inputs, so `required` may differ slightly)")
    else:
        lines.append("  inputs     none: no shard reports its load, so the number stays")
    for name, condition in answer["conditions"].items():
        lines.append(f"  {name:<10} {condition['status']}, {condition['reason']}: {condition['message']}")
    if last := answer.get("lastScale"):
        lines.append(f"  last       {last['time']}: {last.get('from')} → {last.get('to')}: {last.get('reason')}")
        if last.get("inputs"):
            lines.append(f"             on {', '.join(f'{key} {value:g}' for key, value in last['inputs'].items())}")
    return lines
