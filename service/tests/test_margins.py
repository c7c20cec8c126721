import json

from embereye.detect.sensing.thresholds import Assessment
from embereye.levels import Kind, Level
from embereye.margins import measured, nearest_of, peak_of, rounded, share
from embereye.v1.types_pb2 import Term


def test_values_are_stored_with_four_digits_and_always_as_json() -> None:
    assert (rounded(61.23456), rounded(0.000123456), rounded(float("nan"))) == (61.23, 0.0001235, 0.0)
    assert json.loads(json.dumps(measured("gas", float("inf"), 900, "ppm"))) == ["gas", 0.0, 900.0, "ppm"]


def test_the_nearest_value_has_the_greatest_share_of_its_limit() -> None:
    smoke, gas = measured("smoke", 30, 60, "%"), measured("gas", 800, 900, "ppm")
    assert nearest_of([smoke, gas, measured("spot.row", 12, 0, "1"), measured("x.below", 9, 1, "1")]) == gas
    assert share(gas) > share(smoke) > share(measured("temperature.max", -5, 60, "°C")) == 0
    assert nearest_of([]) is None


def test_a_peak_has_only_what_there_is() -> None:
    bare = Assessment(Level.CLEAR, 0.25, ())
    assert peak_of(Kind.SMOKE, bare, None) == {"kind": "smoke", "level": "clear", "score": 0.25}
    full = Assessment(Level.PRE_ALARM, 0.5, (Term(name="smoke", value=45, threshold=40, unit="%"),))
    assert peak_of(Kind.SMOKE, full, ("smoke", 45, 60, "%"), "a note") == {
        "kind": "smoke", "level": "pre-alarm", "score": 0.5, "nearest": ("smoke", 45.0, 60.0, "%"),
        "terms": [("smoke", 45.0, 40.0, "%")], "note": "a note",
    }  # fmt: skip
