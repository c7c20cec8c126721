"""The status of a fleet whose passes fail: when to report it, and which conditions become unknown.

The controller calls `judge` when a pass raises, and writes the failed status once `is_reportable`: at once if only a
person can help, else after GRACE. Degraded then has the reason, and all other conditions become Unknown, because nobody
has checked them. Repeated failures that differ only in numbers write nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from embereye.process.reason import reason_of
from embereye.units import utc
from embereye_operator.api.fleets import FleetError
from embereye_operator.api.status import Condition, FleetStatus
from embereye_operator.decide.status import is_old, shape
from embereye_operator.errors import RefusedError

GRACE = 10.0  # seconds of failing passes before the status says so, if a retry may help
MAX_MESSAGE = 1000  # characters
UNKNOWN = ("Ready", "Progressing", "Covered", "ScalingActive", "MetricsAvailable")  # all but Degraded


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why passes over a fleet fail."""

    reason: str
    message: str
    lasting: bool  # retries will not help: a person must change something


def judge(error: Exception) -> Failure:
    """Classify `error`, which ended a pass over a fleet."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    message = "; ".join([reason_of(error), *notes])[:MAX_MESSAGE]
    if isinstance(error, FleetError):
        return Failure("SpecInvalid", message, lasting=True)
    if isinstance(error, RefusedError):
        return Failure("ApplyRefused", message, lasting=True)
    if isinstance(error, TimeoutError):
        return Failure("PassTimedOut", "a pass over the fleet took too long and was cancelled", lasting=False)
    return Failure("ReconcileFailed", message, lasting=False)


def is_reportable(failure: Failure, seconds: float) -> bool:
    """True if the status should show passes that have failed for `seconds`."""
    return failure.lasting or seconds >= GRACE


def build_failed_status(failure: Failure, previous: FleetStatus, generation: int, now_ns: int) -> FleetStatus:
    """Return the status with the failure in Degraded and with all other conditions unknown.

    Equal to `previous` if that already says so, and is not old.
    """
    unknown = f"unknown while passes over the fleet fail: {failure.message}"
    failed = [Condition("Degraded", "True", failure.reason, failure.message)]
    failed += [Condition(type_, "Unknown", failure.reason, unknown) for type_ in UNKNOWN]
    conditions = []
    for condition in failed:
        before = previous.condition(condition.type)
        same = before is not None and before.status == condition.status
        if before and same and before.reason == condition.reason and shape(before.message) == shape(condition.message):
            conditions.append(replace(before, observed_generation=generation))
            continue
        since = before.last_transition_time if before and same else ""
        conditions.append(replace(condition, last_transition_time=since or utc(now_ns), observed_generation=generation))
    order = {condition.type: index for index, condition in enumerate(previous.conditions)}
    conditions.sort(key=lambda condition: order.get(condition.type, len(order)))
    status = replace(previous, conditions=tuple(conditions))
    if status == previous and not is_old(previous.last_observed, now_ns):
        return status
    return replace(status, last_observed=utc(now_ns))
