"""The registry of metrics against the metrics of real processes."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from embereye.process.telemetry.metric import CAMERA, DECLARED, HUB, OPERATOR, SENSOR
from embereye_operator.monitoring.fleets import FleetMetrics, FleetReport
from embereye_operator.monitoring.metrics import LABELS, metrics

from .site import Site

EXPORTERS = {"embereye-operator": OPERATOR, "embereye-hub": HUB, "sensors": SENSOR, "cameras": CAMERA}
FOREIGN = ("python_", "process_virtual_memory_bytes")  # exported, but unused


def families(text: str) -> dict[str, Any]:
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
        if not family.name.startswith(FOREIGN)
    }


@pytest.fixture(scope="module")
def pages(site: Site) -> dict[str, dict[str, Any]]:
    def exported() -> dict[str, dict[str, Any]]:
        return {EXPORTERS[name]: families(text) for name, text in site.scraped().items()}

    def missing() -> bool:
        return any(unconditional(exporter) - set(families_) for exporter, families_ in exported().items())

    time.sleep(3)  # for frames and readings to arrive
    deadline = time.monotonic() + 60
    while missing() and time.monotonic() < deadline:
        time.sleep(0.5)
    return exported()


def unconditional(exporter: str) -> set[str]:
    return {metric.name for metric in metrics() if exporter in metric.exporters and not metric.only_where}


def test_every_process_exports_exactly_the_registered_metrics(pages: dict[str, dict[str, Any]]) -> None:
    for exporter, families_ in pages.items():
        listed = {metric.name for metric in metrics() if exporter in metric.exporters}
        assert set(families_) - listed == set(), exporter
        assert unconditional(exporter) - set(families_) == set(), exporter


def test_the_archives_metrics_exist_if_it_is_enabled(pages: dict[str, dict[str, Any]]) -> None:
    expected = {metric.name for metric in metrics() if metric.only_where == "spec.telemetry.archive is true"}
    assert expected
    assert expected <= set(pages[SENSOR])


def test_type_help_and_labels_are_as_registered(pages: dict[str, dict[str, Any]]) -> None:
    for exporter, families_ in pages.items():
        for name, family in families_.items():
            metric = DECLARED[name]
            assert (name, exporter, family.type) == (name, exporter, metric.type)
            assert (name, family.documentation) == (name, metric.help)
            for sample in family.samples:
                assert (name, set(sample.labels) - {"le"}) == (name, set(metric.labels))


def test_names_follow_prometheus_conventions() -> None:
    for metric in metrics():
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric.name
        assert metric.name.startswith(("embereye_", "process_")), metric.name
        assert set(metric.labels) <= set(LABELS), metric.name
        assert metric.help.endswith("."), metric.name


def test_a_fleet_with_only_failed_passes_has_no_number_of_shards() -> None:
    registry = CollectorRegistry()
    registry.register(FleetMetrics(lambda: [FleetReport("site", "sensors", "hall", None, {}, 3, 3, 0.1, 0.0)]))
    text = generate_latest(registry).decode()
    assert 'embereye_operator_failures_total{fleet="hall",kind="sensors",namespace="site"} 3.0' in text
    assert "embereye_fleet_required_shards{" not in text
