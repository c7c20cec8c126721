"""Families of many series, against the library's own text for the same."""

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from embereye.process.series import ManySeries, exposition

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
    found = CollectorRegistry()
    found.register(Families(*families))
    return found


@pytest.mark.parametrize("type_", ["gauge", "counter"])
def test_the_text_is_the_library_s(type_: str) -> None:
    labels = ("device", "zone")
    many = ManySeries("embereye_x", 'What "it" is.\nAnd more.', type_, labels)
    family = GaugeMetricFamily if type_ == "gauge" else CounterMetricFamily
    one = family("embereye_x", 'What "it" is.\nAnd more.', labels=labels)
    for values, value in ROWS:
        many.add_metric(values, value)
        one.add_metric(values, value)
    assert exposition(registry(many)) == generate_latest(registry(one))
    # Whoever asks the library itself is told the same.
    assert generate_latest(registry(many)) == generate_latest(registry(one))


def test_other_families_are_written_beside_it() -> None:
    many = ManySeries("embereye_x", "X.", "gauge", ("device",))
    many.add_metric(("a",), 1)
    text = exposition(registry(GaugeMetricFamily("embereye_y", "Y.", value=2), many)).decode()
    assert "embereye_y 2.0\n" in text
    assert text.endswith('embereye_x{device="a"} 1.0\n')
