"""Dashboards are complete, and query only existing metrics."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.need import GRAFANA_TYPES, GRAFANA_TYPES_FOLDER, PROMETHEUS

from embereye_operator.monitoring.alert import Alert
from embereye_operator.monitoring.alerts import ALERTS, BY_NAME, RECORDINGS, expression
from embereye_operator.monitoring.grafana import render, uid
from embereye_operator.monitoring.metrics import by_series
from embereye_operator.monitoring.panel import Dashboard, Panel
from embereye_operator.monitoring.panels import DASHBOARDS

KNOWN = set(by_series()) | {"up", "ALERTS"} | {rule.name for rule in RECORDINGS}
EVERY_PANEL = [(source, panel) for source in DASHBOARDS for row in source.rows for panel in row.panels]
every_dashboard = pytest.mark.parametrize("source", DASHBOARDS, ids=lambda source: source.name)


def panels(source: Dashboard) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(render(source))["panels"] if panel["type"] != "row"]


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:embereye_[a-z0-9_]+|embereye:[a-z_:]+|process_[a-z_]+|up|ALERTS)(?=[{\[) ]|$)", text))


def test_there_are_seven_dashboards() -> None:
    assert [source.name for source in DASHBOARDS] == [
        "fleet-overview", "sensor-shard", "camera-shard", "scaling-explained", "alarms-coverage", "operator-hub",
        "capacity",
    ]  # fmt: skip


@pytest.mark.parametrize(("source", "panel"), EVERY_PANEL, ids=[f"{s.name}: {p.title}" for s, p in EVERY_PANEL])
def test_panels_use_existing_metrics_and_have_unit_description_and_runbook(source: Dashboard, panel: Panel) -> None:
    assert panel.unit
    assert panel.description.endswith(".")
    assert panel.alert in BY_NAME
    for query in panel.queries:
        assert metrics_in(query.expression)
        assert metrics_in(query.expression) <= KNOWN


@every_dashboard
def test_grafanas_json_has_links_units_thresholds_and_unique_numbers(source: Dashboard) -> None:
    panels_ = panels(source)
    document = json.loads(render(source))
    assert document["uid"] == uid(source)
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    for panel in panels_:
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], panel["title"]
        assert defaults["thresholds"]["steps"], panel["title"]
        assert panel["links"][0]["url"].rpartition("/")[2] in BY_NAME
        assert "runbook" in panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"


@every_dashboard
def test_variables_of_expressions_are_declared(source: Dashboard) -> None:
    text = render(source)
    declared = {variable["name"] for variable in json.loads(text)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used <= declared
    assert {"datasource", "namespace", "fleet"} <= declared


@every_dashboard
def test_equal_names_in_other_clusters_and_namespaces_are_kept_apart(
    source: Dashboard,
) -> None:
    for panel in (panel for row in source.rows for panel in row.panels):
        for query in panel.queries:
            selected = re.findall(
                r"\b(?:embereye[a-z0-9_:]+|process_[a-z_]+|up|ALERTS)\b(\{[^}]*\}|)", query.expression
            )
            assert selected, panel.title
            assert all(selector.startswith('{cluster=~"$cluster"') for selector in selected), query.expression
            for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query.expression):
                if {"fleet", "shard", "device", "camera", "instance"} & set(labels.split(", ")):
                    assert labels.startswith("cluster, namespace, "), query.expression
    assert json.loads(render(source))["templating"]["list"][1]["name"] == "cluster"


def test_scaling_marks_changes_of_the_number_of_shards() -> None:
    (source,) = [source for source in DASHBOARDS if source.scaling]
    (annotation,) = json.loads(render(source))["annotations"]["list"]
    assert "changes(embereye_fleet_shards" in annotation["expr"]


@pytest.mark.needs(PROMETHEUS)
@pytest.mark.parametrize("seconds", [15, 30, 60])
def test_a_change_is_marked_at_any_time_and_scrape_interval(seconds: int, tmp_path: Path) -> None:
    """Grafana queries annotations once for each minute."""
    (source,) = [source for source in DASHBOARDS if source.scaling]
    (annotation,) = json.loads(render(source))["annotations"]["list"]
    expression = annotation["expr"]
    for name in ("cluster", "namespace", "fleet"):
        expression = expression.replace(f"${name}", ".*")
    tests = []
    for change in range(307, 367, seconds):
        shards = [str(1 + (at >= change)) if at % seconds == 7 else "_" for at in range(600)]
        tests.append({
            "interval": "1s",
            "input_series": [{"series": 'embereye_fleet_shards{fleet="hall"}', "values": " ".join(shards)}],
            "promql_expr_test": [{"expr": f"count(max_over_time(({expression})[8m:1m]))", "eval_time": "10m",
                                  "exp_samples": [{"labels": "{}", "value": 1}]}],
        })  # fmt: skip
    (tmp_path / "tests.yaml").write_text(json.dumps({"rule_files": [], "tests": tests}))
    result = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout}{result.stderr}"


def test_dashboards_render_writes_all_files_for_use_without_the_chart(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embereye_cli", "dashboards", "render", "--to", str(tmp_path / "new")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    written = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*.*")}
    dashboards = {f"dashboards/{source.name}.json" for source in DASHBOARDS}
    assert written == dashboards | {"prometheus-rules.yaml", "grafana-alerts.yaml"}


def alert_selectors(alert: Alert) -> set[str]:
    """Return every vector selector of an alert's expression."""
    matches = re.findall(r"\b((?:embereye_[a-z0-9_]+|up)(?:\{[^}]*\})?)", expression(alert))
    return {selector for selector in matches if selector.partition("{")[0] in KNOWN}


def test_selectors_are_extracted() -> None:
    assert all(alert_selectors(alert) or "embereye:" in alert.expression for alert in ALERTS)


TYPES = """import type { Dashboard } from "@grafana/schema";
// An enumeration's values, as JSON has them.
type Json<T> = T extends string ? `${T}` : T extends number ? number : T extends boolean | null | undefined ? T
  : T extends (infer E)[] ? Json<E>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""


@pytest.mark.needs(GRAFANA_TYPES)
def test_dashboards_match_grafanas_types(tmp_path: Path) -> None:
    program = TYPES
    for source in DASHBOARDS:
        document = json.loads(render(source))
        # An annotation is a query of its data source's kind, which Grafana's types do not define.
        for annotation in document["annotations"].get("list", []):
            del annotation["expr"]
        program += f"export const {source.name.replace('-', '_')}: Json<Dashboard> = {json.dumps(document)};\n"
    (tmp_path / "node_modules").symlink_to(GRAFANA_TYPES_FOLDER / "node_modules")
    (tmp_path / "dashboards.ts").write_text(program)
    options = "--noEmit --strict --skipLibCheck --target es2022 --module esnext --moduleResolution bundler"
    command = ["node", "node_modules/typescript/bin/tsc", *options.split(), "dashboards.ts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == ""
