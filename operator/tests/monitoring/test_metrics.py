"""The registry of metrics against what real processes export."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from embereye_operator.monitoring.fleets import FleetMetrics, FleetReport
from embereye_operator.monitoring.metrics import BY_NAME, CAMERA, HUB, LABELS, METRICS, OPERATOR, SENSOR

from .site import Site

EXPORTERS = {"embereye-operator": OPERATOR, "embereye-hub": HUB, "sensors": SENSOR, "cameras": CAMERA}
FOREIGN = ("python_", "process_virtual_memory_bytes")  # told, but of no use to us


def families(text: str) -> dict[str, Any]:
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
        if not family.name.startswith(FOREIGN)
    }


@pytest.fixture(scope="module")
def pages(site: Site) -> dict[str, dict[str, Any]]:
    def told() -> dict[str, dict[str, Any]]:
        return {EXPORTERS[name]: families(text) for name, text in site.scraped().items()}

    def missing() -> bool:
        return any(unconditional(exporter) - set(found) for exporter, found in told().items())

    time.sleep(3)  # for frames and readings to have come
    deadline = time.monotonic() + 60
    while missing() and time.monotonic() < deadline:
        time.sleep(0.5)
    return told()


def unconditional(exporter: str) -> set[str]:
    return {metric.name for metric in METRICS if exporter in metric.exporters and not metric.only_where}


def test_every_process_exports_what_the_registry_says_and_nothing_else(pages: dict[str, dict[str, Any]]) -> None:
    for exporter, found in pages.items():
        listed = {metric.name for metric in METRICS if exporter in metric.exporters}
        assert set(found) - listed == set(), exporter
        assert unconditional(exporter) - set(found) == set(), exporter


def test_the_archive_s_metrics_are_there_where_it_is_asked_for(pages: dict[str, dict[str, Any]]) -> None:
    asked = {metric.name for metric in METRICS if metric.only_where == "spec.telemetry.archive is true"}
    assert asked
    assert asked <= set(pages[SENSOR])


def test_type_help_and_labels_are_as_registered(pages: dict[str, dict[str, Any]]) -> None:
    for exporter, found in pages.items():
        for name, family in found.items():
            metric = BY_NAME[name]
            assert (name, exporter, family.type) == (name, exporter, metric.type)
            assert (name, family.documentation) == (name, metric.help)
            for sample in family.samples:
                assert (name, set(sample.labels) - {"le"}) == (name, set(metric.labels))


def test_names_follow_prometheus_conventions() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric.name
        assert metric.name.startswith(("embereye_", "process_")), metric.name
        assert set(metric.labels) <= set(LABELS), metric.name
        assert metric.help.endswith("."), metric.name
    assert len(BY_NAME) == len(METRICS)


def test_a_fleet_whose_passes_have_all_failed_tells_its_failures_and_no_number_of_shards() -> None:
    registry = CollectorRegistry()
    registry.register(FleetMetrics(lambda: [FleetReport("site", "sensors", "hall", None, {}, 3, 3, 0.1, 0.0)]))
    text = generate_latest(registry).decode()
    assert 'embereye_operator_failures_total{fleet="hall",kind="sensors",namespace="site"} 3.0' in text
    assert "embereye_fleet_required_shards{" not in text
