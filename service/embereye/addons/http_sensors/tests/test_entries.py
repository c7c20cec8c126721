"""The format of pushed readings: units, quality, times, lines, and sentences about what is wrong."""

import json
import re

import pytest

from embereye.wire.readings.pushed import MAX_ENTRIES, TooManyEntriesError, device_of, parse_entry, split


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"smoke": True, "battery": 80}, {"smoke": 1, "battery": 80}),
        ({"smoke": "off"}, {"smoke": 0}),
        ({"temperature": {"value": 212, "unit": "°F"}}, {"temperature": 100}),
        ({"temperature": {"value": "300.15", "unit": "K"}}, {"temperature": 27}),
        ({"carbonMonoxideLevel": {"value": 50_000, "unit": "ppb"}}, {"carbonMonoxideLevel": 50}),
        ({"battery": {"value": 0.5, "unit": "1"}}, {"battery": 50}),
    ],
)
def test_values_have_the_unit_of_their_quantity(readings, expected):
    values = {reading.quantity: reading.value for reading in parse_entry({"readings": readings}).readings}
    assert values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ([], "it is not an object"),
        ({"smoke": True}, '"smoke" is not one of device, readings, time. Put quantities into "readings"'),
        ({"readings": {"smok": 1}}, '"smok" is not one of smoke, heat'),
        ({"readings": {"smoke": "perhaps"}}, "smoke: 'perhaps' is not true or false"),
        ({"readings": {"smoke": {}}}, "smoke: 'None' is not true or false"),
        ({"readings": {"temperature": float("inf")}}, "temperature: 'inf' is not a number"),
        ({"readings": {"temperature": {"value": 1, "unit": "psi"}}}, 'unit "psi" is not one of: °C, C, °F, F, K'),
        ({"readings": {"smoke": {"value": 1, "unit": "ppm"}}}, 'smoke: unit "ppm" is not one of: none'),
        ({"readings": {"temperature": {"value": 1, "quality": "meh"}}}, "not one of good, uncertain, bad"),
        ({"time": "yesterday"}, "time: 'yesterday' is neither ISO 8601 nor a Unix time"),
        ({"time": float("inf")}, "time: 'inf' is neither"),
    ],
)
def test_a_wrong_entry_is_refused_with_a_sentence(entry, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_entry(entry)


def test_a_bad_value_needs_no_number():
    (reading,) = parse_entry({"readings": {"temperature": {"quality": "bad"}}}).readings
    assert reading.quality == "bad"


@pytest.mark.parametrize("time", ["2026-11-29T05:00:00Z", 1795928400, 1795928400000])
def test_times_are_iso_or_unix(time):
    assert parse_entry({"time": time}).seen_ns == 1795928400 * 10**9


def test_a_body_is_an_object_an_array_or_lines():
    entry = {"device": "a", "readings": {}}
    line = json.dumps(entry).encode()
    assert split(line) == split(b"[" + line + b"]") == split(line, lines=True) == [entry]
    assert split(line + b"\n\n" + line + b"\n") == [entry, entry]


def test_a_body_that_is_not_json_is_refused_with_its_line():
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        split(b"{}\n{]\n", lines=True)
    with pytest.raises(ValueError, match="the body is not JSON"):
        split(b"\xff")
    with pytest.raises(TooManyEntriesError):
        split(b"{}\n" * (MAX_ENTRIES + 1), lines=True)
    assert device_of({}, "kitchen") == "kitchen"
    with pytest.raises(ValueError, match="names no device"):
        device_of({}, "")
