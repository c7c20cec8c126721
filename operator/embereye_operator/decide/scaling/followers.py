"""External autoscalers that follow the operator's number: the number for them, and if they work.

In modes hpa and keda the operator does not write spec.shards; it exports a number, and the autoscaler copies it.
`followed_shards` raises that number where an autoscaler's tolerance of 10 % would ignore a small step. `judge` reads
the autoscaler's own conditions, and its answer becomes the condition ScalingActive.
"""

from collections.abc import Mapping
from typing import Any

from embereye_operator.api.status import ConditionStatus

Judgement = tuple[ConditionStatus, str, str]  # as a condition has them: status, reason, message
SCALERS = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}  # autoscaling.mode → kind


def followed_shards(mode: str, required: int, shards: int, *, tolerance: bool) -> int:
    """Return the number for autoscalers if `required` shards are needed and `shards` exist.

    `tolerance`: HorizontalPodAutoscalers of this cluster follow every change.
    """
    steady = mode not in SCALERS or (mode == "hpa" and tolerance)
    return required if steady else followed(required, shards)


def followed(required: int, shards: int) -> int:
    """Return the number that makes an autoscaler with 10 % tolerance create at least `required` shards.

    No number leads such an autoscaler from 10 to 11 shards. It notices only numbers more than 10 % above the existing
    shards, so it creates at most a tenth too many, and stays there.
    """
    noticed = shards * 11 // 10 + 1
    return noticed if shards < required < noticed else required


def judge(mode: str, child: Mapping[str, Any] | None) -> Judgement:
    """Judge by its conditions if the autoscaler of `mode` works; `child` is its object, None if it does not exist."""
    kind = SCALERS[mode]
    if child is None:
        return "Unknown", "NotCreated", f"the {kind} does not exist yet"
    name = f"{kind} {child['metadata']['name']}"
    reported = {entry["type"]: entry for entry in (child.get("status") or {}).get("conditions") or ()}
    for type_ in ("AbleToScale", "ScalingActive") if mode == "hpa" else ("Ready",):
        if (entry := reported.get(type_)) is None:
            return "Unknown", "NotJudged", f"{name} has no conditions yet: its controller does not run, or is slow"
        if entry["status"] != "True":
            status: ConditionStatus = "False" if entry["status"] == "False" else "Unknown"
            return status, (entry.get("reason") or "NotJudged")[:63], f"{name}: {entry.get('message', '')[:1000]}"
    for type_, message in (("Paused", "it is paused"), ("Fallback", "its metric is missing, so the shards stay")):
        if reported.get(type_, {}).get("status") == "True":
            return "False", type_, f"{name}: {message}"
    # KEDA counts failed queries long before it falls back, and stays ready meanwhile.
    health = (child.get("status") or {}).get("health") or {}
    if failing := sorted(metric for metric, entry in health.items() if entry.get("status") == "Failing"):
        return "False", "TriggerFailing", f"{name}: {', '.join(failing)} cannot be queried, so the shards stay"
    return "True", "External", f"spec.shards is written by {mode}"
