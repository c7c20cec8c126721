"""External autoscalers: the number for them, and the report about them."""

from typing import Any

import pytest

from embereye_operator.decide.scaling.followers import followed, judge

from ...fakes import World
from ...test_reconcile import fleet_of


def scaled(required: int, shards: int) -> int:
    """Kubernetes' controller: the shards for a number, with a target of 1 per shard and its tolerance of 10 %."""
    ratio = required / shards
    return shards if 1.0 - 0.1 <= ratio <= 1.0 + 0.1 else required


@pytest.mark.parametrize("shards", range(1, 65))
@pytest.mark.parametrize("more", [1, 2, 3, 7, 64])
def test_an_autoscaler_with_tolerance_always_reaches_the_required_shards(shards: int, more: int) -> None:
    required = shards + more
    reached = scaled(followed(required, shards), shards)
    assert required <= reached <= max(required, shards * 1.1 + 1)
    assert scaled(followed(required, reached), reached) == reached, "and it stays there"


def test_a_noticeable_change_is_passed_unmodified() -> None:
    assert [followed(required, 10) for required in (1, 9, 10, 12, 20)] == [1, 9, 10, 12, 20]
    assert followed(11, 10) == 12
    assert followed(3, 0) == 3


def reporting(*conditions: tuple[str, str, str]) -> Any:
    entries = [
        {"type": kind, "status": status, "reason": reason, "message": "why"} for kind, status, reason in conditions
    ]
    return {"metadata": {"name": "hall-sensors"}, "status": {"conditions": entries}}


WELL = ("AbleToScale", "True", "ReadyForNewScale")


@pytest.mark.parametrize(
    ("mode", "child", "answer"),
    [
        ("hpa", None, ("Unknown", "NotCreated")),
        ("hpa", reporting(), ("Unknown", "NotJudged")),
        ("hpa", {"metadata": {"name": "hall-sensors"}}, ("Unknown", "NotJudged")),
        ("hpa", reporting(WELL), ("Unknown", "NotJudged")),
        ("hpa", reporting(("AbleToScale", "False", "FailedGetScale")), ("False", "FailedGetScale")),
        (
            "hpa",
            reporting(WELL, ("ScalingActive", "False", "FailedGetExternalMetric")),
            ("False", "FailedGetExternalMetric"),
        ),
        ("hpa", reporting(WELL, ("ScalingActive", "Unknown", "Odd")), ("Unknown", "Odd")),
        ("hpa", reporting(WELL, ("ScalingActive", "True", "ValidMetricFound")), ("True", "External")),
        ("keda", None, ("Unknown", "NotCreated")),
        ("keda", reporting(("Ready", "Unknown", "")), ("Unknown", "NotJudged")),
        ("keda", reporting(("Ready", "False", "TriggerError")), ("False", "TriggerError")),
        ("keda", reporting(("Ready", "True", "ScaledObjectReady"), ("Fallback", "True", "")), ("False", "Fallback")),
        ("keda", reporting(("Ready", "True", "ScaledObjectReady"), ("Paused", "True", "")), ("False", "Paused")),
        ("keda", reporting(("Ready", "True", "ScaledObjectReady"), ("Fallback", "False", "")), ("True", "External")),
    ],
)
def test_an_autoscaler_is_judged_by_its_conditions(mode: str, child: Any, answer: tuple[str, str]) -> None:
    status, reason, message = judge(mode, child)
    assert (status, reason) == answer
    assert message


def test_a_failing_trigger_is_reported_although_keda_is_ready() -> None:
    """The status of KEDA 2.17.2 when its Prometheus is gone."""
    child = reporting(("Ready", "True", "ScaledObjectReady"), ("Fallback", "False", "NoFallbackFound"))
    child["status"]["health"] = {"s0-prometheus": {"numberOfFailures": 4, "status": "Failing"}}
    status, reason, message = judge("keda", child)
    assert (status, reason) == ("False", "TriggerFailing")
    assert "s0-prometheus cannot be queried, so the shards stay" in message
    child["status"]["health"]["s0-prometheus"] = {"numberOfFailures": 0, "status": "Happy"}
    assert judge("keda", child)[:2] == ("True", "External")


async def test_a_fleet_reports_its_autoscalers_state_unless_it_only_observes() -> None:
    world = World(fleet_of(count=2, autoscaling={"mode": "hpa"}))
    outcome = await world.run_until_complete()

    def active() -> tuple[str, str]:
        active_condition = outcome.status.condition("ScalingActive")
        assert active_condition
        return active_condition.status, active_condition.reason

    assert active() == ("Unknown", "NotJudged")
    child = world.runtime.objects["HorizontalPodAutoscaler", "hall-sensors"]
    child["status"] = reporting(WELL, ("ScalingActive", "False", "FailedGetExternalMetric"))["status"]
    outcome = await world.run_until_complete()
    assert active() == ("False", "FailedGetExternalMetric")
    child["status"]["conditions"][1] |= {"status": "True", "reason": "ValidMetricFound"}
    outcome = await world.run_until_complete()
    assert active() == ("True", "External")
    world.manifest["spec"]["autoscaling"]["observe"] = True
    outcome = await world.run_until_complete()
    assert active() == ("False", "Observing")
    assert ("HorizontalPodAutoscaler", "hall-sensors") not in world.runtime.objects
