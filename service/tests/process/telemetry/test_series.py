"""Families of many series, against the library's own text for the same."""

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from embereye.process.telemetry.metric import DECLARED, counter, gauge
from embereye.process.telemetry.series import Histograms, ManySeries, exposition

WARMTH = gauge("embereye_shard_test_warmth", "W.")
VISITS = counter("embereye_shard_test_visits_total", "V.")
for metric in (WARMTH, VISITS):
    del DECLARED[metric.name]  # these are not the product's
ROWS = [
    (("plain", "hall"), 1.0),
    (('with "quotes"', "back\\slash"), 0.1),
    (("line\nbreak", "ü"), 1e20),
    (("nothing", ""), math.nan),
    (("much", "-"), math.inf),
    (("little", "-"), -math.inf),
    (("whole", "-"), 3),
]


class Families(Collector):
    def __init__(self, *families: Metric) -> None:
        self._families = families

    def describe(self) -> tuple[()]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def registry(*families: Metric) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Families(*families))
    return registry


@pytest.mark.parametrize("type_", ["gauge", "counter"])
def test_the_text_is_the_same_as_the_librarys(type_: str) -> None:
    labels = ("device", "zone")
    many = ManySeries("embereye_x", 'What "it" is.\nAnd more.', type_, labels)
    family = GaugeMetricFamily if type_ == "gauge" else CounterMetricFamily
    theirs = family("embereye_x", 'What "it" is.\nAnd more.', labels=labels)
    for values, value in ROWS:
        many.add_metric(values, value)
        theirs.add_metric(values, value)
    assert exposition(registry(many)) == generate_latest(registry(theirs))
    # The library itself writes the same.
    assert generate_latest(registry(many)) == generate_latest(registry(theirs))


def test_histograms_and_single_values_are_written_as_the_library_does() -> None:
    ours = Histograms("embereye_x_seconds", "Waits.", ("stage", "device"))
    theirs = HistogramMetricFamily("embereye_x_seconds", "Waits.", labels=["stage", "device"])
    buckets = [("0.5", 1.0), ("+Inf", 3.0)]
    ours.add_metric(('a "b"', "c\\d"), buckets, 1.25)
    theirs.add_metric(['a "b"', "c\\d"], buckets, 1.25)
    pairs = [
        (ours, theirs),
        (WARMTH.value(-0.25), GaugeMetricFamily(WARMTH.name, "W.", value=-0.25)),
        (VISITS.value(3), CounterMetricFamily(VISITS.name, "V.", value=3)),
    ]
    for family, expected_family in pairs:
        expected = sorted(generate_latest(registry(expected_family)).splitlines())
        assert sorted(generate_latest(registry(family)).splitlines()) == expected
        if family is ours:  # the order of labels is arbitrary
            one_text = exposition(registry(family)).decode()
            assert 'embereye_x_seconds_bucket{device="c\\\\d",le="0.5",stage="a \\"b\\""} 1.0\n' in one_text
            assert one_text.count("\n") == len(expected)
        else:
            assert sorted(exposition(registry(family)).splitlines()) == expected


def test_families_of_the_library_are_written_as_well() -> None:
    many = ManySeries("embereye_x", "X.", "gauge", ("device",))
    many.add_metric(("a",), 1)
    text = exposition(registry(GaugeMetricFamily("embereye_y", "Y.", value=2), many)).decode()
    assert "embereye_y 2.0\n" in text
    assert text.endswith('embereye_x{device="a"} 1.0\n')
