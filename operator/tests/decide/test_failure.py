"""The status of a fleet whose passes fail."""

from typing import Any

import pytest

from embereye.units import SECOND
from embereye_operator.api.fleets import FleetError
from embereye_operator.api.status import Condition, FleetStatus
from embereye_operator.controller import PASS_LIMIT, FleetRecord, rest_period
from embereye_operator.decide.failure import GRACE, build_failed_status, is_reportable, judge
from embereye_operator.errors import RefusedError

WELL = FleetStatus(
    conditions=(
        Condition("Covered", "True", "AllCovered", "all 4 devices are watched", "2026-01-01T00:00:00Z", 1),
        Condition("Degraded", "False", "AsExpected", "", "2026-01-01T00:00:00Z", 1),
    )
)


@pytest.mark.parametrize(
    ("error", "reason", "lasting"),
    [
        (FleetError("SensorFleet n/hall", ["spec: is required"]), "SpecInvalid", True),
        (RefusedError("ConfigMap n/x is refused: quota"), "ApplyRefused", True),
        (TimeoutError(), "PassTimedOut", False),
        (OSError("connection refused"), "ReconcileFailed", False),
    ],
)
def test_a_failure_that_only_a_person_can_fix_is_reported_at_once(error: Exception, reason: str, lasting: bool) -> None:
    failure = judge(error)
    assert (failure.reason, failure.lasting) == (reason, lasting)
    assert failure.message
    assert is_reportable(failure, 0.0) is lasting
    assert is_reportable(failure, GRACE)


def test_a_failure_names_the_object_that_was_written() -> None:
    error = OSError("connection refused")
    error.add_note("Deployment n/hall-sensors-0 is not written")
    assert "hall-sensors-0" in judge(error).message


def test_nothing_is_claimed_while_passes_fail() -> None:
    status = build_failed_status(judge(OSError("away")), WELL, 2, 100 * SECOND)
    by_type: Any = {condition.type: condition for condition in status.conditions}
    assert by_type["Degraded"].status == "True"
    assert by_type["Degraded"].reason == "ReconcileFailed"
    assert {type_: condition.status for type_, condition in by_type.items() if type_ != "Degraded"} == dict.fromkeys(
        ("Covered", "Ready", "Progressing", "ScalingActive", "MetricsAvailable"), "Unknown"
    )
    assert by_type["Covered"].last_transition_time == "1970-01-01T00:01:40Z"


def test_the_same_failure_again_is_not_worth_a_write() -> None:
    first = build_failed_status(judge(OSError("away for 3 s")), WELL, 2, 100 * SECOND)
    assert build_failed_status(judge(OSError("away for 5 s")), first, 2, 200 * SECOND) == first
    assert build_failed_status(judge(OSError("another reason")), first, 2, 200 * SECOND) != first


def test_an_outdated_status_is_not_current() -> None:
    record = FleetRecord(latest=1000.0)
    assert record.is_current(1000 + PASS_LIMIT, 1)
    assert not record.is_current(1001 + PASS_LIMIT + 2 * rest_period(1), 1), "passes have stopped"
    record.failing, record.failing_since = "away", 1000.0
    assert record.is_current(1000 + GRACE / 2, 1), "it may be over in a moment"
    assert not record.is_current(1000 + GRACE, 1)
    assert not FleetRecord().is_current(1000, 1), "there was no pass yet"
