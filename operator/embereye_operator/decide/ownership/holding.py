"""The choice of the operator that reconciles a fleet: the one named in its status, for as long as that lives.

An operator's name is NAMESPACE/NAME of the Lease that its replicas share. Its Lease shows if it is alive.
"""

from dataclasses import dataclass, field

from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.ownership.selection import Scope

ANNOTATION_OPERATOR = "embereye.dev/operator"  # on a fleet: the operator that a person chose
ANNOTATION_SCOPE = "embereye.dev/scope"  # on a Lease: the fleets of its operator
TAKE_OVER = 60.0  # seconds without a change of its Lease until an operator counts as dead
OBSERVATION_GAP = 10.0  # seconds; longer gaps between observations are not counted


@dataclass
class Holder:
    """The observed state of another operator. Times are monotonic seconds: other clocks are not trusted."""

    seen: tuple[object, ...] | None = None  # fields of its Lease; None: not read yet
    changed: float = 0.0  # time of its Lease's last change, moved forward by gaps between observations
    observed: float = 0.0  # time of the latest observation
    scope: Scope = field(default_factory=Scope)
    unreadable: str = ""  # why its Lease cannot be read

    def observe(self, seen: tuple[object, ...], scope: Scope, now: float) -> None:
        """Record the content of its Lease at `now`; an empty tuple if it does not exist."""
        if seen != self.seen:
            self.seen, self.changed = seen, now
        else:
            self.changed += max(0.0, now - self.observed - OBSERVATION_GAP)
        self.observed = now
        self.scope, self.unreadable = scope, ""

    def is_dead(self, now: float, patience: float) -> bool:
        """True if its Lease has not changed for `patience` seconds."""
        return self.seen is not None and not self.unreadable and now - self.changed >= patience


def why_left_alone(me: str, name: str, fleet: Fleet, holder: Holder, *, now: float, patience: float = TAKE_OVER) -> str:
    """Return why the operator `me` must not reconcile a fleet of operator `name`; empty if it may.

    `name` is empty if the fleet has no operator. `me` is empty for an operator without a Lease, which can own no fleet.
    """
    chosen = fleet.annotations.get(ANNOTATION_OPERATOR, "")
    if chosen:
        return "" if chosen == me else f"its annotation {ANNOTATION_OPERATOR} gives it to {chosen}"
    if name in {"", me} or holder.is_dead(now, patience):
        return ""
    if holder.unreadable:
        return (
            f"operator {name} owns it, and its Lease cannot be read ({holder.unreadable}): "
            f"kubectl annotate {fleet.type.short} {fleet.name} {ANNOTATION_OPERATOR}={me} takes it over"
        )
    if holder.seen is not None and not holder.scope.is_responsible_for(fleet.namespace, fleet.labels):
        return ""
    return f"operator {name} owns it"
