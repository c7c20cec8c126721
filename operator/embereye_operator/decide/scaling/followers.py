"""Autoscalers of others that follow the operator's number: what they are told, and whether they act on it."""

from collections.abc import Mapping
from typing import Any

from embereye_operator.api.status import ConditionStatus

Judgement = tuple[ConditionStatus, str, str]  # as a condition has them: status, reason, message
SCALERS = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}  # autoscaling.mode → kind


def followed_shards(mode: str, required: int, shards: int, *, tolerance: bool) -> int:
    """The number that autoscalers are told where `required` of them are needed and `shards` exist.

    `tolerance`: HorizontalPodAutoscalers follow every change here.
    """
    steady = mode not in SCALERS or (mode == "hpa" and tolerance)
    return required if steady else followed(required, shards)


def followed(required: int, shards: int) -> int:
    """The number that makes an autoscaler which ignores changes of up to 10 % give at least `required` shards.

    One more than 10 shards is such a change, and there is no number that leads from 10 to 11. What the autoscaler
    notices is more than 10 % above the shards there are: at most a tenth too many, and it stays there.
    """
    noticed = shards * 11 // 10 + 1
    return noticed if shards < required < noticed else required


def judge(mode: str, child: Mapping[str, Any] | None) -> Judgement:
    """Whether the autoscaler of `mode` works, by its own conditions; `child` is its object, None: there is none."""
    kind = SCALERS[mode]
    if child is None:
        return "Unknown", "NotCreated", f"there is no {kind} yet"
    what = f"{kind} {child['metadata']['name']}"
    told = {entry["type"]: entry for entry in (child.get("status") or {}).get("conditions") or ()}
    for type_ in ("AbleToScale", "ScalingActive") if mode == "hpa" else ("Ready",):
        if (entry := told.get(type_)) is None:
            return "Unknown", "NotJudged", f"nobody has judged {what} yet: its controller does not run, or is slow"
        if entry["status"] != "True":
            status: ConditionStatus = "False" if entry["status"] == "False" else "Unknown"
            return status, (entry.get("reason") or "NotJudged")[:63], f"{what}: {entry.get('message', '')[:1000]}"
    for type_, message in (("Paused", "it is paused"), ("Fallback", "its metric is lost: the shards are held")):
        if told.get(type_, {}).get("status") == "True":
            return "False", type_, f"{what}: {message}"
    # KEDA counts what it asks in vain long before it falls back on anything, and calls itself ready all the while.
    health = (child.get("status") or {}).get("health") or {}
    if failing := sorted(name for name, found in health.items() if found.get("status") == "Failing"):
        return "False", "TriggerFailing", f"{what}: {', '.join(failing)} cannot be asked: the shards are held"
    return "True", "External", f"spec.shards is written by {mode}"
