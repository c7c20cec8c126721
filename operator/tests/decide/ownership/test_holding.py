"""The operator of a fleet: selectors, scopes, ownership and its end, without a server."""

from dataclasses import replace
from typing import Any

import pytest

from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.decide.ownership.holding import ANNOTATION_OPERATOR, Holder, why_left_alone
from embereye_operator.decide.ownership.selection import Scope, parse_selector

from ...test_reconcile import fleet_of


@pytest.mark.parametrize(
    ("selector", "selected", "unselected"),
    [
        ("", [{}, {"a": "b"}], []),
        ("site=north", [{"site": "north"}], [{}, {"site": "south"}]),
        ("site==north , stage!=test", [{"site": "north"}, {"site": "north", "stage": "live"}],
         [{"site": "north", "stage": "test"}, {"stage": "live"}]),
        ("site in (north, east)", [{"site": "east"}], [{}, {"site": "south"}]),
        ("site notin (north,east)", [{}, {"site": "south"}], [{"site": "north"}]),
        ("a.example/site,!old", [{"a.example/site": ""}], [{}, {"a.example/site": "x", "old": ""}]),
        ("site=", [{"site": ""}], [{}, {"site": "north"}]),
    ],
)  # fmt: skip
def test_a_selector_selects_as_kubectl_does(selector: str, selected: Any, unselected: Any) -> None:
    scope = Scope(selector=selector)
    assert all(scope.is_selected(labels) for labels in selected)
    assert not any(scope.is_selected(labels) for labels in unselected)


INVALID = [
    "site>3",
    "site=a b",
    "=a",
    "site in north",
    "!site=a",
    "a,,b",
    "a=b;c=d",
    ",",
    "a,",
    "a in ()",
    "a in (b c)",
]


@pytest.mark.parametrize("selector", [*INVALID, "a in (,b)", "a=-b", "a=b."])
def test_an_invalid_selector_is_refused_by_name(selector: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector"):
        parse_selector(selector)


def test_a_scope_survives_a_round_trip_and_a_malformed_one_selects_everything() -> None:
    scope = Scope(("a", "b"), "site=north")
    assert Scope.from_text(scope.to_text()) == scope
    assert scope.is_responsible_for("a", {"site": "north"})
    assert not scope.is_responsible_for("c", {"site": "north"})
    assert not scope.is_responsible_for("a", {})
    assert all(
        Scope.from_text(text).is_responsible_for("x", {})
        for text in ("", "{}", "[]", '{"namespaces": [], "selector": "<"}')
    )


def fleet(**metadata: Any) -> Fleet:
    document = fleet_of()
    return parse_fleet({**document, "metadata": {**document["metadata"], **metadata}})


def seen(at: float, scope: Scope = Scope(), **changes: Any) -> Holder:  # noqa: B008
    holder = Holder()
    holder.observe(("uid", "pod-1", "10:00"), scope, at)
    return replace(holder, **changes)


ME, OTHER = "embereye/embereye-operator", "blue/embereye-operator"


def test_an_unowned_or_own_fleet_is_reconciled() -> None:
    assert not why_left_alone(ME, "", fleet(), Holder(), now=0)
    assert not why_left_alone(ME, ME, fleet(), Holder(), now=0)
    assert not why_left_alone("", "", fleet(), Holder(), now=0)


def test_another_operators_fleet_is_left_alone_until_its_lease_is_old() -> None:
    holder = seen(at=100)
    assert "blue/embereye-operator owns it" in why_left_alone(ME, OTHER, fleet(), holder, now=159)
    assert not why_left_alone(ME, OTHER, fleet(), holder, now=160)
    holder.observe(("uid", "pod-1", "10:01"), Scope(), 159)
    assert why_left_alone(ME, OTHER, fleet(), holder, now=200)
    holder.observe((), Scope(), 210)  # its Lease was deleted
    assert why_left_alone(ME, OTHER, fleet(), holder, now=260)
    for now in range(210, 270, 10):
        holder.observe((), Scope(), now)
    assert not why_left_alone(ME, OTHER, fleet(), holder, now=270)
    assert why_left_alone("", OTHER, fleet(), seen(at=100), now=101), "even without a Lease"


def test_no_operator_counts_as_dead_after_a_stall_of_this_one() -> None:
    holder = seen(at=100)
    holder.observe(("uid", "pod-1", "10:00"), Scope(), 200)  # it stalled as well, because both are on one machine
    assert why_left_alone(ME, OTHER, fleet(), holder, now=200)
    for now in range(200, 260, 2):
        holder.observe(("uid", "pod-1", "10:00"), Scope(), now)
    assert not why_left_alone(ME, OTHER, fleet(), holder, now=260)


def test_a_fleet_outside_its_operators_scope_is_taken_at_once() -> None:
    holder = seen(100, Scope(("elsewhere",), ""))
    assert not why_left_alone(ME, OTHER, fleet(), holder, now=100)
    north = seen(100, Scope((), "site=north"))
    assert why_left_alone(ME, OTHER, fleet(labels={"site": "north"}), north, now=100)
    assert not why_left_alone(ME, OTHER, fleet(labels={"site": "south"}), north, now=100)


def test_an_operator_with_an_unreadable_lease_counts_as_alive() -> None:
    why = why_left_alone(ME, OTHER, fleet(), seen(0, unreadable="leases is forbidden"), now=1000)
    assert "leases is forbidden" in why
    assert f"{ANNOTATION_OPERATOR}={ME}" in why


def test_a_person_can_assign_a_fleet_to_an_operator() -> None:
    given = fleet(annotations={ANNOTATION_OPERATOR: ME})
    assert not why_left_alone(ME, OTHER, given, seen(0), now=1)
    assert ME in why_left_alone(OTHER, OTHER, given, Holder(), now=1)
    assert why_left_alone("", "", given, Holder(), now=1)
