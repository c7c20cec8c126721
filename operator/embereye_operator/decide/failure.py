"""What a failing pass means to those who rely on the fleet: when it is said, and what is left to say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from embereye_operator.api.fleets import FleetError
from embereye_operator.api.status import Condition, FleetStatus
from embereye_operator.decide.status import shape, timestamp
from embereye_operator.errors import RefusedError

GRACE = 10.0  # seconds that passes may fail before people are told, where trying again may help
MAX_MESSAGE = 1000  # characters
UNKNOWN = ("Ready", "Progressing", "Covered", "ScalingActive", "MetricsAvailable")  # all but Degraded


@dataclass(frozen=True, slots=True)
class Failure:
    """Why passes over a fleet fail."""

    reason: str
    message: str
    lasting: bool  # trying again will not help: somebody has to change something


def judge(error: Exception) -> Failure:
    """What `error` says about the fleet whose pass it ended."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    message = "; ".join([str(error) or type(error).__name__, *notes])[:MAX_MESSAGE]
    if isinstance(error, FleetError):
        return Failure("SpecInvalid", message, lasting=True)
    if isinstance(error, RefusedError):
        return Failure("ApplyRefused", message, lasting=True)
    if isinstance(error, TimeoutError):
        return Failure("PassTimedOut", "a pass over the fleet took too long and was ended", lasting=False)
    return Failure("ReconcileFailed", message, lasting=False)


def is_to_be_told(failure: Failure, seconds: float) -> bool:
    """Whether people are to be told of a fleet whose passes have failed for so many `seconds`."""
    return failure.lasting or seconds >= GRACE


def build_failed_status(failure: Failure, previous: FleetStatus, generation: int, now_ns: int) -> FleetStatus:
    """Degraded says why; every other question has no answer while passes fail: what was true may not be.

    Equal to `previous` where it says so already.
    """
    unknown = f"not known while passes over the fleet fail: {failure.message}"
    wanted = [Condition("Degraded", "True", failure.reason, failure.message)]
    wanted += [Condition(type_, "Unknown", failure.reason, unknown) for type_ in UNKNOWN]
    conditions = []
    for condition in wanted:
        before = previous.condition(condition.type)
        same = before is not None and before.status == condition.status
        if before and same and before.reason == condition.reason and shape(before.message) == shape(condition.message):
            conditions.append(replace(before, observed_generation=generation))
            continue
        since = before.last_transition_time if before and same else ""
        conditions.append(
            replace(condition, last_transition_time=since or timestamp(now_ns), observed_generation=generation)
        )
    order = {condition.type: index for index, condition in enumerate(previous.conditions)}
    conditions.sort(key=lambda condition: order.get(condition.type, len(order)))
    return replace(previous, conditions=tuple(conditions))
