"""Fields of messages: paths, values that mean on, and texts that are no paths."""

import json

import pytest

from embereye.wire.readings.fields import MISSING, is_on, number, parse_document, parse_field, value_at


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ("smoke", {"smoke": True}, True),
        ("alarm.state", {"alarm": {"state": "ON"}}, "ON"),
        ("values[1].v", {"values": [{"v": 1}, {"v": 2}]}, 2),
        ("params.smoke:0.alarm", {"params": {"smoke:0": {"alarm": False}}}, False),
        ("*.Temperature", {"Time": "x", "DS18B20": {"Temperature": 21.5}}, 21.5),
        (".", "ON", "ON"),
        ("", 3, 3),
        ("missing.key", {"missing": 3}, MISSING),
        ("list[7]", {"list": []}, MISSING),
    ],
)
def test_a_path_finds_its_value_or_nothing(text, document, expected):
    assert value_at(document, parse_field(text).keys) == expected


def test_a_field_names_a_subtopic_a_path_and_the_values_that_mean_on():
    field = parse_field("/status/smoke:0 alarm=1|2")
    assert (field.topic, field.keys, field.values) == ("/status/smoke:0", ("alarm",), {"1", "2"})
    assert parse_field("/binary_sensor/smoke/state").topic == "/binary_sensor/smoke/state"
    assert parse_field("//tele/x/LWT =Offline").values == {"offline"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$.alarm.state", ["ON"]),
        ("$['zones'][1].t", [30]),
        ("$.zones[-1].t", [30]),
        ("$..t", [20, 30]),
        ("$.zones[?@.name == 'B=2'].t", [30]),
        ("$.zones[?@.t <= 20].name", ["A"]),
        ("$['*'].state", []),
        ("$.alarm[0]", []),
    ],
)
def test_a_jsonpath_finds_all_its_values(text, expected):
    document = {"alarm": {"state": "ON"}, "zones": [{"name": "A", "t": 20}, {"name": "B=2", "t": 30}]}
    assert list(parse_field(text).find_all(document)) == expected
    field = parse_field(f"/events {text}=ON|FIRE")
    assert (field.topic, field.values) == ("/events", {"on", "fire"})
    assert list(field.find_all(document)) == expected


def test_a_jsonpath_of_names_and_indices_is_as_cheap_as_keys():
    assert parse_field("$.alarm.list[0]['a b']").keys == ("alarm", "list", 0, "a b")
    assert parse_field("$.alarm").query is None
    assert parse_field("$..alarm") == parse_field("$..alarm") != parse_field("$..smoke")


@pytest.mark.parametrize("document", ["ON", 3, None, json.loads("[" * 150 + "]" * 150)])
def test_a_jsonpath_finds_nothing_in_a_text_or_a_very_deep_document(document):
    assert list(parse_field("$..alarm").find_all(document)) == []


@pytest.mark.parametrize("text", ["$.a[", "$.", "$.a[?@.b==]=ON", "$[?match(@.a, 'x')]", "$[?search(@.a, 'x')]"])
def test_a_jsonpath_that_is_wrong_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r'^"\$.*is no JSONPath\. Write .*\)$'):
        parse_field(text)


@pytest.mark.parametrize("text", ["a[b]", "a]", "/#/x y", ".".join("a" * 20)])
def test_a_text_that_is_no_field_is_refused_with_a_reason(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_field(text)


@pytest.mark.parametrize(
    ("value", "values", "expected"),
    [
        (True, (), True), ("ON", (), True), ("off", (), False), (0, (), False), (2, (), True), ("maybe", (), None),
        (None, (), None), ({}, (), None), (2.0, {"2"}, True), ("Smoke", {"smoke"}, True), (3, {"1", "2"}, False),
    ],
)  # fmt: skip
def test_values_mean_on_off_or_nothing(value, values, expected):
    assert is_on(value, frozenset(values)) is expected


def test_only_finite_numbers_are_numbers():
    assert [number(value) for value in (1, "2.5", True, "x", float("nan"), None)] == [1.0, 2.5, None, None, None, None]


def test_a_message_is_json_or_text():
    assert parse_document(b'{"a": 1}') == {"a": 1}
    assert parse_document(b" ON\n") == "ON"
    with pytest.raises(ValueError, match="UTF-8"):
        parse_document(b"\xff\xfe")
    assert parse_document(json.dumps([1]).encode()) == [1]
