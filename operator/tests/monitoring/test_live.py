"""A real Prometheus that scrapes a real site: every expression is evaluated, and faults that can be made are made."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from embereye_operator.monitoring.alerts import ALERTS
from embereye_operator.monitoring.files import ROOT
from embereye_operator.monitoring.panels import DASHBOARDS
from embereye_operator.monitoring.rules import prometheus_rules

from .site import Prometheus, Site, running_prometheus, until
from .test_dashboards import alert_selectors

pytestmark = pytest.mark.slow

# What a healthy site has no series of, and what would have to happen.
NEEDS = {
    'embereye_sensor_shed_total{reason!="compacted"}': "overload with queue.overflow: dropOldest",
    'embereye_sensor_shed_total{reason="compacted"}': "overload",
    'embereye_camera_frames_shed_total{reason=~"overload|superseded"}': "overload",
    "embereye_hub_webhook_failing": "hub.webhooks",
    "embereye_hub_webhook_dead_letters": "hub.webhooks",
    "embereye_hub_bus_failing": "hub.nats",
    "embereye_hub_mqtt_connected": "hub.mqtt",
}


def hurried() -> dict[str, Any]:
    """The rules, evaluated every second, with hardly a wait."""
    rules = prometheus_rules()
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = "2s"
    return rules


@pytest.fixture(scope="module")
def prometheus(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(hurried()))
    with running_prometheus(folder, site.data / "prometheus-targets.json", folder / "rules.yaml") as prometheus:
        until(lambda: len(prometheus.query("up == 1")) == 4)
        time.sleep(12)  # for rates
        yield prometheus


def asked(expression: str) -> str:
    """A panel's expression with everything selected."""
    for name in ("cluster", "namespace", "fleet", "shard"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$__rate_interval", "8s")


PANELS = [
    (source, panel, query)
    for source in DASHBOARDS for row in source.rows for panel in row.panels for query in panel.queries
]  # fmt: skip


def test_every_panel_shows_something_or_says_what_it_needs(prometheus: Prometheus) -> None:
    empty = {
        f"{source.name}: {panel.title}: {query.expression}"
        for source, panel, query in PANELS
        if not prometheus.query(asked(query.expression)) and not panel.needs
    }
    assert not empty


def test_variables_of_dashboards_have_values(prometheus: Prometheus) -> None:
    labels = {tuple(sorted(found["metric"].items())) for found in prometheus.query("embereye_shard_epoch")}
    shards = {dict(found)["shard"] for found in labels}
    assert shards == {"hall-sensors-0", "yard-cameras-0"}
    fleets = {(row["metric"]["kind"], row["metric"]["fleet"]) for row in prometheus.query("embereye_fleet_shards")}
    assert fleets == {("sensors", "hall"), ("cameras", "yard")}


def test_every_series_that_an_alert_looks_at_is_there_or_listed_as_needing_a_fault(prometheus: Prometheus) -> None:
    missing = {
        selector: alert.name
        for alert in ALERTS for selector in alert_selectors(alert)
        if not prometheus.query(selector) and selector not in NEEDS
    }  # fmt: skip
    assert not missing


def test_a_healthy_site_alarms_nobody(prometheus: Prometheus) -> None:
    # The disk of whoever runs this may be full, and the machine busy.
    begun = {"EmberEyeDiskFilling", "EmberEyeEventLoopSlow", "EmberEyeFramesOld", "EmberEyeCamerasShedding"}
    until(lambda: not prometheus.firing() - begun)


@contextmanager
def stopped(found: list[int]) -> Iterator[None]:
    assert found
    try:
        for number in found:
            os.kill(number, signal.SIGSTOP)
        yield
    finally:
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)


def described(prometheus: Prometheus, name: str) -> dict[str, str]:
    for alert in prometheus.get("alerts")["alerts"]:
        if alert["labels"]["alertname"] == name:
            annotations = alert["annotations"]
            assert isinstance(annotations, dict)
            return {**annotations, **alert["labels"]}
    return {}


def test_sensors_that_fall_silent_are_told_as_dark_and_it_resolves(site: Site, prometheus: Prometheus) -> None:
    with stopped(site.processes("simulate sensors")):
        until(lambda: "EmberEyeDevicesDark" in prometheus.firing())
        told = described(prometheus, "EmberEyeDevicesDark")
        assert told["summary"] == "Devices of default/hall (sensors) are not watched"
        assert told["description"].startswith("Devices that were not heard or not analysed within their deadline: 2.")
        assert (told["namespace"], told["severity"]) == ("default", "critical")
        # What a panel needs that fault for is there now.
        assert (
            float(prometheus.query("sum(embereye_fleet_devices - embereye_fleet_devices_covered)")[0]["value"][1]) == 2
        )
    until(lambda: "EmberEyeDevicesDark" not in prometheus.firing())


def test_a_hub_that_hangs_is_told_and_it_resolves(site: Site, prometheus: Prometheus) -> None:
    with stopped(site.processes(" hub --host")):
        until(lambda: "EmberEyeHubDown" in prometheus.firing())
    until(lambda: "EmberEyeHubDown" not in prometheus.firing())


def test_every_alert_that_fired_was_put_in_words(prometheus: Prometheus) -> None:
    for alert in prometheus.get("alerts")["alerts"]:
        text = " ".join(alert["annotations"].values())
        assert not re.search(r"<no value>|error expanding|%!", text), text


def test_what_needs_a_fault_is_listed_once_and_is_still_looked_at() -> None:
    assert set(NEEDS) <= {selector for alert in ALERTS for selector in alert_selectors(alert)}


def test_every_query_of_the_runbooks_can_be_asked(prometheus: Prometheus) -> None:
    pages = (ROOT / "docs/runbooks").glob("EmberEye*.md")
    queries = [block for page in pages for block in re.findall(r"```promql\n(.*?)\n```", page.read_text(), re.DOTALL)]
    assert len(queries) > 20
    for query in queries:
        prometheus.query(query)


def test_rules_are_evaluated_without_an_error(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    health = {rule["name"]: (rule["health"], rule.get("lastError")) for group in groups for rule in group["rules"]}
    assert {name: told for name, told in health.items() if told[0] != "ok"} == {}
    assert Path(groups[0]["file"]).name == "rules.yaml"
