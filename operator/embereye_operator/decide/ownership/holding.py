"""Which of several operators a fleet is looked after by: the one that its status names, for as long as it lives.

An operator is called as the Lease that its replicas share, NAMESPACE/NAME: whoever wants to know whether it lives looks
at that.
"""

from dataclasses import dataclass, field

from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.ownership.selection import Scope

ANNOTATION_OPERATOR = "embereye.dev/operator"  # of a fleet: the operator that a person gives it to
ANNOTATION_SCOPE = "embereye.dev/scope"  # of a Lease: what its operator looks after
TAKE_OVER = 60.0  # seconds without a change of its Lease, after which an operator counts as dead
LOOKED = 10.0  # of them, at most, between two looks at it: whoever was away has not seen that nothing changed


@dataclass
class Holder:
    """What is known of another operator. Times are monotonic seconds: other clocks are not trusted."""

    seen: tuple[object, ...] | None = None  # of its Lease; None: nothing yet
    changed: float = 0.0  # when its Lease was last another, or later by the time for which nobody looked
    looked: float = 0.0  # when that was seen
    scope: Scope = field(default_factory=Scope)
    unreadable: str = ""  # why nothing is known

    def observe(self, seen: tuple[object, ...], scope: Scope, now: float) -> None:
        """Take what its Lease says at `now`; an empty tuple: there is none."""
        if seen != self.seen:
            self.seen, self.changed = seen, now
        else:
            self.changed += max(0.0, now - self.looked - LOOKED)
        self.looked = now
        self.scope, self.unreadable = scope, ""

    def is_dead(self, now: float, patience: float) -> bool:
        """Whether its Lease has not changed for `patience` seconds."""
        return self.seen is not None and not self.unreadable and now - self.changed >= patience


def why_left_alone(me: str, name: str, fleet: Fleet, holder: Holder, *, now: float, patience: float = TAKE_OVER) -> str:
    """Why the operator `me` leaves alone a fleet that `name` holds; empty where it may look after it.

    `name` is empty where nobody holds it, and `me` for an operator without a Lease, which can hold nothing.
    """
    given = fleet.annotations.get(ANNOTATION_OPERATOR, "")
    if given:
        return "" if given == me else f"its annotation {ANNOTATION_OPERATOR} gives it to {given}"
    if name in {"", me} or holder.is_dead(now, patience):
        return ""
    if holder.unreadable:
        return (
            f"operator {name} holds it, and whether that lives cannot be seen ({holder.unreadable}): "
            f"kubectl annotate {fleet.type.short} {fleet.name} {ANNOTATION_OPERATOR}={me} takes it over"
        )
    if holder.seen is not None and not holder.scope.covers(fleet.namespace, fleet.labels):
        return ""
    return f"operator {name} holds it"
