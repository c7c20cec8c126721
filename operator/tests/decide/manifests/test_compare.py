"""What counts as a difference."""

from typing import Any

import pytest

from embereye_operator.decide.manifests.compare import differences, quantity


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
def test_what_others_added_and_what_is_empty_is_no_difference(desired: Any, observed: Any) -> None:
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
