"""Autoscalers of others: what they are told, and what is said about them."""

from typing import Any

import pytest

from embereye_operator.decide.scaling.followers import followed, judge

from ...fakes import World
from ...test_reconcile import fleet_of


def scaled(required: int, shards: int) -> int:
    """What Kubernetes' controller makes of a number, with a target of 1 for each shard and its tolerance of 10 %."""
    ratio = required / shards
    return shards if 1.0 - 0.1 <= ratio <= 1.0 + 0.1 else required


@pytest.mark.parametrize("shards", range(1, 65))
@pytest.mark.parametrize("more", [1, 2, 3, 7, 64])
def test_an_autoscaler_that_ignores_a_tenth_never_stays_below_what_is_required(shards: int, more: int) -> None:
    required = shards + more
    reached = scaled(followed(required, shards), shards)
    assert required <= reached <= max(required, shards * 1.1 + 1)
    assert scaled(followed(required, reached), reached) == reached, "and it stays there"


def test_what_it_notices_anyway_is_told_as_it_is() -> None:
    assert [followed(required, 10) for required in (1, 9, 10, 12, 20)] == [1, 9, 10, 12, 20]
    assert followed(11, 10) == 12
    assert followed(3, 0) == 3


def told(*conditions: tuple[str, str, str]) -> Any:
    entries = [
        {"type": kind, "status": status, "reason": reason, "message": "why"} for kind, status, reason in conditions
    ]
    return {"metadata": {"name": "hall-sensors"}, "status": {"conditions": entries}}


WELL = ("AbleToScale", "True", "ReadyForNewScale")


@pytest.mark.parametrize(
    ("mode", "child", "answer"),
    [
        ("hpa", None, ("Unknown", "NotCreated")),
        ("hpa", told(), ("Unknown", "NotJudged")),
        ("hpa", {"metadata": {"name": "hall-sensors"}}, ("Unknown", "NotJudged")),
        ("hpa", told(WELL), ("Unknown", "NotJudged")),
        ("hpa", told(("AbleToScale", "False", "FailedGetScale")), ("False", "FailedGetScale")),
        (
            "hpa",
            told(WELL, ("ScalingActive", "False", "FailedGetExternalMetric")),
            ("False", "FailedGetExternalMetric"),
        ),
        ("hpa", told(WELL, ("ScalingActive", "Unknown", "Odd")), ("Unknown", "Odd")),
        ("hpa", told(WELL, ("ScalingActive", "True", "ValidMetricFound")), ("True", "External")),
        ("keda", None, ("Unknown", "NotCreated")),
        ("keda", told(("Ready", "Unknown", "")), ("Unknown", "NotJudged")),
        ("keda", told(("Ready", "False", "TriggerError")), ("False", "TriggerError")),
        ("keda", told(("Ready", "True", "ScaledObjectReady"), ("Fallback", "True", "")), ("False", "Fallback")),
        ("keda", told(("Ready", "True", "ScaledObjectReady"), ("Paused", "True", "")), ("False", "Paused")),
        ("keda", told(("Ready", "True", "ScaledObjectReady"), ("Fallback", "False", "")), ("True", "External")),
    ],
)
def test_an_autoscaler_is_judged_by_its_own_conditions(mode: str, child: Any, answer: tuple[str, str]) -> None:
    status, reason, message = judge(mode, child)
    assert (status, reason) == answer
    assert message


def test_a_trigger_that_keda_asks_in_vain_is_told_though_keda_calls_itself_ready() -> None:
    """As KEDA 2.17.2 says it of a Prometheus that is gone."""
    child = told(("Ready", "True", "ScaledObjectReady"), ("Fallback", "False", "NoFallbackFound"))
    child["status"]["health"] = {"s0-prometheus": {"numberOfFailures": 4, "status": "Failing"}}
    status, reason, message = judge("keda", child)
    assert (status, reason) == ("False", "TriggerFailing")
    assert "s0-prometheus cannot be queried, so the shards stay" in message
    child["status"]["health"]["s0-prometheus"] = {"numberOfFailures": 0, "status": "Happy"}
    assert judge("keda", child)[:2] == ("True", "External")


async def test_a_fleet_says_what_its_autoscaler_says_as_it_changes_and_nothing_where_it_only_observes() -> None:
    world = World(fleet_of(count=2, autoscaling={"mode": "hpa"}))
    outcome = await world.settle()

    def active() -> tuple[str, str]:
        found = outcome.status.condition("ScalingActive")
        assert found
        return found.status, found.reason

    assert active() == ("Unknown", "NotJudged")
    child = world.runtime.objects["HorizontalPodAutoscaler", "hall-sensors"]
    child["status"] = told(WELL, ("ScalingActive", "False", "FailedGetExternalMetric"))["status"]
    outcome = await world.settle()
    assert active() == ("False", "FailedGetExternalMetric")
    child["status"]["conditions"][1] |= {"status": "True", "reason": "ValidMetricFound"}
    outcome = await world.settle()
    assert active() == ("True", "External")
    world.manifest["spec"]["autoscaling"]["observe"] = True
    outcome = await world.settle()
    assert active() == ("False", "Observing")
    assert ("HorizontalPodAutoscaler", "hall-sensors") not in world.runtime.objects
