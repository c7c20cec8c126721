"""The differences between desired and observed objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye_operator.decide.manifests.compare import differences, quantity

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
KEYS = ("name", "uid", "mountPath", "topologyKey", "whenUnsatisfiable", "limits", "selector", "v")


def manifests(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate manifests of parts; entries of lists often have the same keys and identifying fields."""
    few = st.sampled_from(["a", "b"]) | part
    entries = st.sets(st.sampled_from(KEYS), max_size=4).flatmap(
        lambda keys: st.lists(st.fixed_dictionaries(dict.fromkeys(sorted(keys), few)), max_size=4)
    )
    return st.lists(part, max_size=4) | st.dictionaries(st.sampled_from(KEYS), part, max_size=4) | entries


MANIFESTS = st.recursive(SCALARS, manifests, max_leaves=20)


@given(MANIFESTS)
def test_a_manifest_does_not_differ_from_itself(manifest: Any) -> None:
    assert differences(manifest, manifest) == []


@pytest.mark.parametrize(("a", "b"), [("500m", "0.5"), (1, "1"), ("1Gi", "1024Mi"), ("2k", 2000)])
def test_quantities_are_compared_by_value(a: Any, b: Any) -> None:
    assert quantity(a) == quantity(b)
    assert differences({"requests": {"cpu": a}}, {"requests": {"cpu": b}}) == []


def test_different_quantities_differ() -> None:
    assert differences({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}) == [".limits.cpu"]
    assert quantity("much") is None


@pytest.mark.parametrize(
    ("desired", "observed"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {}}, {}),
        ({"a": ""}, {}),
        ({"a": False}, {}),
        ({"a": []}, {"a": None}),
        ([{"name": "x", "v": 1}], [{"name": "y"}, {"name": "x", "v": 1, "w": 2}]),
    ],
)
def test_additions_of_others_and_empty_values_are_no_differences(desired: Any, observed: Any) -> None:
    assert differences(desired, observed) == []


@pytest.mark.parametrize(
    ("desired", "observed", "path"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ".a.b"),
        ({"a": {"b": 1}}, {}, ".a"),
        ({"args": ["x"]}, {"args": ["x", "y"]}, ".args"),
        ({"command": []}, {"command": ["sleep"]}, ".command"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, ".env[A].value"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, ".env[A]"),
        ({"selector": {"a": "b"}}, {"selector": {"a": "b", "c": "d"}}, ".selector.c"),
        ({"hostNetwork": False}, {"hostNetwork": True}, ".hostNetwork"),
    ],
)
def test_a_difference_is_named_by_its_path(desired: Any, observed: Any, path: str) -> None:
    assert differences(desired, observed) == [path]


ZONES = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}
SOFTER = {**ZONES, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2}
CACHE, SPOOL = {"name": "data", "mountPath": "/cache"}, {"name": "data", "mountPath": "/spool"}


@pytest.mark.parametrize("wanted", [[ZONES, SOFTER], [CACHE, SPOOL], [{"name": "a"}, {"name": "a", "v": 1}]])
def test_entries_are_identified_by_all_identifying_fields(wanted: list[Any]) -> None:
    changed = [wanted[0], {**wanted[1], "v": 2}]
    assert differences({"a": wanted}, {"a": wanted}) == []
    assert differences({"a": changed}, {"a": wanted}) != []
    assert differences({"a": wanted}, {"a": wanted[:1]}) != []


@pytest.mark.parametrize("wanted", [[ZONES, SOFTER], [CACHE, SPOOL]])
def test_entries_may_have_another_order_and_additional_ones(wanted: list[Any]) -> None:
    theirs = {"name": "theirs", "mountPath": "/theirs", "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule"}
    assert differences({"a": wanted}, {"a": [theirs, *reversed(wanted)]}) == []
