"""A real Prometheus scrapes a real site: every expression is evaluated, and possible faults are caused."""

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

from embereye_operator.api.files import ROOT
from embereye_operator.monitoring.alerts import ALERTS
from embereye_operator.monitoring.metrics import by_series
from embereye_operator.monitoring.panels import DASHBOARDS
from embereye_operator.monitoring.rules import prometheus_rules

from .site import Prometheus, Site, running_prometheus, until
from .test_dashboards import alert_selectors

pytestmark = pytest.mark.slow

# Series that a healthy site lacks, and the condition under which they exist.
NEEDS = {
    'embereye_sensor_shed_total{reason!="compacted"}': "overload with queue.overflow: dropOldest",
    'embereye_sensor_shed_total{reason="compacted"}': "overload",
    'embereye_camera_frames_shed_total{reason=~"overload|superseded"}': "overload",
    'embereye_hub_zone_active{state=~"alarm|acknowledged"}': "a fire",
    'embereye_hub_zone_active{state="alarm"}': "a fire",
    'embereye_hub_zone_active{state="pre_alarm"}': "a first sign of a fire",
    "embereye_hub_notify_failing": "hub.notify",
    "embereye_hub_notify_dead_letters": "hub.notify",
    "embereye_hub_notify_unconfirmed": "hub.notify",
    "embereye_hub_notify_calendar_stale": "hub.notify",
    "embereye_hub_webhook_failing": "hub.webhooks",
    "embereye_hub_webhook_dead_letters": "hub.webhooks",
    "embereye_hub_mqtt_connected": "hub.mqtt",
}
OF_ADDONS = {
    "embereye_hub_bus_failing": "hub.nats",
    "embereye_hub_control_rules_failing": "hub.actuators",
    "embereye_hub_modbus_failing": "hub.modbus",
    "embereye_hub_notify_dead_letters": "hub.notify",
    "embereye_hub_notify_failing": "hub.notify",
    "embereye_hub_notify_unconfirmed": "hub.notify",
    "embereye_hub_notify_calendar_stale": "hub.notify",
    "embereye_hub_profiles_unconfirmed": "hub.profiles",
    "embereye_hub_selftest_passed": "hub.selftest",
    "embereye_hub_walktest_overdue_devices": "--walktest-every",
}
NEEDS |= {series: needs for series, needs in OF_ADDONS.items() if series in by_series()}


def hurried() -> dict[str, Any]:
    """Return the rules, evaluated every second, with short waits."""
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
    """Return a panel's expression with everything selected."""
    for name in ("cluster", "namespace", "fleet", "shard"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$__rate_interval", "8s")


PANELS = [
    (source, panel, query)
    for source in DASHBOARDS for row in source.rows for panel in row.panels for query in panel.queries
]  # fmt: skip


def test_every_panel_shows_something_or_states_its_condition(prometheus: Prometheus) -> None:
    empty = {
        f"{source.name}: {panel.title}: {query.expression}"
        for source, panel, query in PANELS
        if not prometheus.query(asked(query.expression)) and not panel.needs
    }
    assert not empty


def test_variables_of_dashboards_have_values(prometheus: Prometheus) -> None:
    labels = {tuple(sorted(sample["metric"].items())) for sample in prometheus.query("embereye_shard_epoch")}
    shards = {dict(sample)["shard"] for sample in labels}
    assert shards == {"hall-sensors-0", "yard-cameras-0"}
    fleets = {(row["metric"]["kind"], row["metric"]["fleet"]) for row in prometheus.query("embereye_fleet_shards")}
    assert fleets == {("sensors", "hall"), ("cameras", "yard")}


def test_every_series_of_an_alert_exists_or_is_listed_with_its_fault(prometheus: Prometheus) -> None:
    missing = {
        selector: alert.name
        for alert in ALERTS for selector in alert_selectors(alert)
        if not prometheus.query(selector) and selector not in NEEDS
    }  # fmt: skip
    assert not missing


def test_a_healthy_site_fires_no_alert(prometheus: Prometheus) -> None:
    # The disk of the test machine may be full, and the machine busy.
    begun = {"EmberEyeDiskFilling", "EmberEyeEventLoopSlow", "EmberEyeFramesOld", "EmberEyeCamerasShedding"}
    until(lambda: not prometheus.firing() - begun)


@contextmanager
def stopped(label_set: list[int]) -> Iterator[None]:
    assert label_set
    try:
        for number in label_set:
            os.kill(number, signal.SIGSTOP)
        yield
    finally:
        for number in label_set:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)


def described(prometheus: Prometheus, name: str) -> dict[str, str]:
    for alert in prometheus.get("alerts")["alerts"]:
        if alert["labels"]["alertname"] == name:
            annotations = alert["annotations"]
            assert isinstance(annotations, dict)
            return {**annotations, **alert["labels"]}
    return {}


def test_silent_sensors_fire_an_alert_that_resolves(site: Site, prometheus: Prometheus) -> None:
    with stopped(site.processes("simulate sensors")):
        until(lambda: "EmberEyeDevicesDark" in prometheus.firing())
        annotations = described(prometheus, "EmberEyeDevicesDark")
        assert annotations["summary"] == "Devices of default/hall (sensors) are not watched"
        assert annotations["description"].startswith(
            "Devices without data, or without analysed data, within their deadline: 2."
        )
        assert (annotations["namespace"], annotations["severity"]) == ("default", "critical")
        # Panels that need this fault now have data.
        assert (
            float(prometheus.query("sum(embereye_fleet_devices - embereye_fleet_devices_covered)")[0]["value"][1]) == 2
        )
    until(lambda: "EmberEyeDevicesDark" not in prometheus.firing())


def test_a_hanging_hub_fires_an_alert_that_resolves(site: Site, prometheus: Prometheus) -> None:
    with stopped(site.processes(" hub --host")):
        until(lambda: "EmberEyeHubDown" in prometheus.firing())
    until(lambda: "EmberEyeHubDown" not in prometheus.firing())


def test_every_fired_alert_has_complete_texts(prometheus: Prometheus) -> None:
    for alert in prometheus.get("alerts")["alerts"]:
        text = " ".join(alert["annotations"].values())
        assert not re.search(r"<no value>|error expanding|%!", text), text


def test_conditions_of_series_are_listed_once_and_still_checked() -> None:
    assert set(NEEDS) <= {selector for alert in ALERTS for selector in alert_selectors(alert)}


def test_every_query_of_the_runbooks_is_valid(prometheus: Prometheus) -> None:
    pages = [page for folder in ("docs", "service/embereye/addons/*") for page in ROOT.glob(f"{folder}/runbooks/E*.md")]
    queries = [block for page in pages for block in re.findall(r"```promql\n(.*?)\n```", page.read_text(), re.DOTALL)]
    assert len(queries) > 20
    for query in queries:
        prometheus.query(query)


def test_rules_are_evaluated_without_an_error(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    health = {rule["name"]: (rule["health"], rule.get("lastError")) for group in groups for rule in group["rules"]}
    assert {name: state for name, state in health.items() if state[0] != "ok"} == {}
    assert Path(groups[0]["file"]).name == "rules.yaml"
