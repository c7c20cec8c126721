"""The objects that monitoring.enabled renders."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.cluster.chart import CHART, KUBERNETES, NAMESPACE, helm, render, template
from harness.need import PROMETHEUS

from embereye_operator.api.files import ROOT
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.manifests.deployment import build_deployment
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.monitoring.alert import RUNBOOKS
from embereye_operator.monitoring.alerts import BY_NAME, RECORDINGS
from embereye_operator.monitoring.rules import prometheus_rules

_spec = importlib.util.spec_from_file_location("golden", Path(__file__).parent / "golden.py")
assert _spec
assert _spec.loader
golden: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)

LABELS = {"release": "kube-prometheus-stack"}


def of_kind(kind: str, *values: str) -> dict[str, Any]:
    return {m["metadata"]["name"]: m for m in render(*golden.MONITORING, *values) if m["kind"] == kind}


def is_selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    exists = [entry["key"] for entry in selector.get("matchExpressions", ())]
    return selector.get("matchLabels", {}).items() <= labels.items() and all(key in labels for key in exists)


@pytest.mark.parametrize("name", golden.VALUES)
def test_manifests_match_the_committed_files(name: str) -> None:
    expected = (golden.FOLDER / f"{name}.yaml").read_text()
    assert golden.golden(golden.VALUES[name]) == expected, "run `make golden`"


def test_monitoring_is_off_by_default() -> None:
    assert not {m["kind"] for m in render()} & {"PodMonitor", "PrometheusRule", "ConfigMap"}


def test_each_monitor_selects_its_pods_and_an_existing_port() -> None:
    pods = {
        m["metadata"]["name"]: m["spec"]["template"] for m in render(*golden.MONITORING) if m["kind"] == "Deployment"
    }
    fleet = parse_fleet(
        {"apiVersion": "embereye.dev/v1alpha1", "kind": "SensorFleet", "metadata": {"name": "hall"},
         "spec": {"sensors": [{"id": "s-1", "zone": "hall"}]}}
    )  # fmt: skip
    pods["shard"] = build_deployment(fleet, "hall-sensors-0", Settings(image="i", hub="h:1"))["spec"]["template"]
    selected = {}
    for name, monitor in of_kind("PodMonitor").items():
        selected[name] = [
            pod
            for pod, template in pods.items()
            if is_selected(monitor["spec"]["selector"], template["metadata"]["labels"])
        ]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["honorLabels"] is True
        for pod in selected[name]:
            ports = {port["name"] for port in pods[pod]["spec"]["containers"][0]["ports"]}
            assert endpoint["port"] in ports
    assert selected == {
        "embereye-operator": ["embereye-operator"], "embereye-hub": ["embereye-hub"], "embereye-shards": ["shard"],
    }  # fmt: skip


def test_monitors_and_rules_have_the_labels_that_prometheus_selects_by() -> None:
    for kind in ("PodMonitor", "PrometheusRule"):
        for manifest in of_kind(kind).values():
            assert manifest["metadata"]["labels"].items() >= LABELS.items()


def test_monitors_have_all_defaults_in_lists_so_that_gitops_sees_no_drift() -> None:
    """Argo CD compares list entries of custom resources literally, including the added default `action`."""
    for monitor in of_kind("PodMonitor").values():
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert [rule["action"] for rule in endpoint["relabelings"]] == ["replace"] * len(endpoint["relabelings"])


def test_the_guide_reads_kind_and_fleet_from_a_label_as_the_monitors_do() -> None:
    relabelings = of_kind("PodMonitor")["embereye-shards"]["spec"]["podMetricsEndpoints"][0]["relabelings"]
    ours = {rule["targetLabel"]: rule["regex"] for rule in relabelings if "regex" in rule}
    guide = (ROOT / "docs/how-to/grafana.md").read_text()
    assert {
        target: regex for regex, target in re.findall(r'_dev_fleet\], regex: "(.+?)", target_label: (\w+)', guide)
    } == ours


def test_shards_are_searched_in_the_namespaces_of_their_fleets() -> None:
    def selector(*values: str) -> Any:
        return of_kind("PodMonitor", *values)["embereye-shards"]["spec"]["namespaceSelector"]

    assert selector() == {"matchNames": [NAMESPACE]}
    assert selector("--set", "operator.namespaces={north,south}") == {"matchNames": ["north", "south"]}
    assert selector("--set", "operator.clusterWide=true") == {"any": True}


def rules(*values: str) -> dict[str, Any]:
    (manifest,) = of_kind("PrometheusRule", *values).values()
    groups = manifest["spec"]["groups"]
    return {rule.get("alert", rule.get("record")): rule for group in groups for rule in group["rules"]}


def test_the_rules_are_those_of_the_source() -> None:
    source = {
        rule.get("alert", rule.get("record")): rule for group in prometheus_rules()["groups"] for rule in group["rules"]
    }
    place, instance = f',namespace="{NAMESPACE}"', ',app_kubernetes_io_instance="embereye"'
    rendered = rules()
    assert rendered.keys() == source.keys()
    for name, rule in rendered.items():
        assert {**rule, "expr": rule["expr"].replace(place, "").replace(instance, "")} == source[name]
    assert f'absent(up{{job="embereye-hub"{place}{instance}}})' in rendered["EmberEyeHubDown"]["expr"]


@pytest.mark.needs(PROMETHEUS)
def test_a_hub_that_is_down_or_gone_fires_although_others_of_the_release_answer(tmp_path: Path) -> None:
    values = ("--set-json", 'hubs={"north": {}, "south": {}}')
    (rule,) = of_kind("PrometheusRule", *values).values()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    ours = f'job="embereye-hub",namespace="{NAMESPACE}"'
    up = f'up{{{ours},app_kubernetes_io_instance="%s",instance="10.0.0.%d:9100"}}'
    world = {up % ("embereye", 1): "1x10", up % ("embereye-north", 2): "0x10"}
    firing = (f'ALERTS{{alertname="EmberEyeHubDown",alertstate="firing",{ours},severity="critical",'
              f'app_kubernetes_io_instance="embereye-%s"}}')  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": shown} for name, shown in world.items()],
        "promql_expr_test": [{
            "expr": 'ALERTS{alertname="EmberEyeHubDown",alertstate="firing"}', "eval_time": "5m",
            "exp_samples": [{"labels": firing % name, "value": 1} for name in ("north", "south")],
        }],
    }  # fmt: skip
    (tmp_path / "tests.yaml").write_text(
        json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [test]})
    )
    result = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout}{result.stderr}"
    monitors = of_kind("PodMonitor", *values)
    hubs = [monitors[f"embereye-{name}hub"] for name in ("", "north-", "south-")]
    assert all(monitor["spec"]["podTargetLabels"] == ["app.kubernetes.io/instance"] for monitor in hubs)
    assert [monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] for monitor in hubs] == [
        "embereye", "embereye-north", "embereye-south",
    ]  # fmt: skip


def test_without_monitors_rules_use_the_instance_label_only_with_several_hubs() -> None:
    def expression(*values: str) -> str:
        (manifest,) = [
            m for m in render(*golden.VALUES["annotations"], *values) if m["metadata"]["name"] == "embereye-rules"
        ]
        groups = yaml.safe_load(manifest["data"]["embereye.yaml"])["groups"]
        (expr,) = [
            rule["expr"] for group in groups for rule in group["rules"] if rule.get("alert") == "EmberEyeHubDown"
        ]
        return str(expr)

    assert f'absent(up{{job="embereye-hub",namespace="{NAMESPACE}"}})' in expression()
    assert 'app_kubernetes_io_instance="embereye-north"' in expression("--set-json", 'hubs={"north": {}}')


def test_alerts_get_additional_labels_and_another_runbook_address() -> None:
    changed = rules(
        "--set", "monitoring.rules.labels.team=safety", "--set", "monitoring.rules.runbookUrl=https://w.example/x/"
    )
    for name in BY_NAME:
        assert changed[name]["labels"] == {"severity": BY_NAME[name].severity, "team": "safety"}
        assert changed[name]["annotations"]["runbook_url"] == f"https://w.example/x/{name}"
    assert rules()["EmberEyeHubDown"]["annotations"]["runbook_url"] == f"{RUNBOOKS}/EmberEyeHubDown"


def test_runbooks_are_the_hubs_pages_under_its_name_for_browsers() -> None:
    hosts = "hub.allowedHosts={*.example.com,fire.example.com}"
    assert rules("--set", hosts)["EmberEyeHubDown"]["annotations"]["runbook_url"] == (
        "https://fire.example.com/runbooks/EmberEyeHubDown"
    )
    rendered = of_kind("ConfigMap", "--set", hosts, "--set", "monitoring.grafanaAlerts.enabled=true")
    texts = [text for manifest in rendered.values() for text in manifest["data"].values() if "/runbooks" in text]
    assert len(texts) == 8, "seven dashboards and Grafana's alerts"
    assert not [text for text in texts if "127.0.0.1" in text]


def test_runbooks_are_below_the_hubs_path() -> None:
    below = ("--set", "hub.basePath=/fire/")
    hosts = ("--set", "hub.allowedHosts={fire.example.com}")
    assert rules(*below)["EmberEyeHubDown"]["annotations"]["runbook_url"] == (
        "http://127.0.0.1:8080/fire/runbooks/EmberEyeHubDown"
    )
    assert rules(*below, *hosts)["EmberEyeHubDown"]["annotations"]["runbook_url"] == (
        "https://fire.example.com/fire/runbooks/EmberEyeHubDown"
    )


def test_a_disabled_alert_is_left_out() -> None:
    remaining = rules("--set", "monitoring.rules.disabled={EmberEyeCompacting,EmberEyeClockSkew}")
    assert set(BY_NAME) - set(remaining) == {"EmberEyeCompacting", "EmberEyeClockSkew"}


def test_every_alert_can_be_disabled() -> None:
    assert not set(rules("--set", f"monitoring.rules.disabled={{{','.join(BY_NAME)}}}")) & set(BY_NAME)


def test_grafana_evaluates_the_same_rules_as_prometheus() -> None:
    values = (
        "--set", "monitoring.grafanaAlerts.enabled=true", "--set", "monitoring.grafanaAlerts.datasourceUid=mimir",
        "--set", "monitoring.rules.disabled={EmberEyeCompacting}", "--set", "monitoring.rules.labels.team=safety",
        "--set-json", 'hubs={"north": {}}',
    )  # fmt: skip
    (text,) = of_kind("ConfigMap", *values)["embereye-grafana-alerts"]["data"].values()
    queries = {rule["title"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    expected = rules(*values)
    assert queries.keys() == expected.keys() - {RECORDINGS[0].name}
    for name, rule in queries.items():
        value, _ = rule["data"]
        assert value["datasourceUid"] == "mimir"
        assert rule["labels"] == expected[name]["labels"]
        assert rule["annotations"]["runbook_url"] == expected[name]["annotations"]["runbook_url"]
        if RECORDINGS[0].name not in expected[name]["expr"]:
            assert value["model"]["expr"] == expected[name]["expr"]


def grafana_file(release: str, namespace: str) -> tuple[str, Any]:
    """Key and content of the ConfigMap with a release's Grafana alerts."""
    values = (*golden.MONITORING, "--set", "monitoring.grafanaAlerts.enabled=true")
    result = helm("template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES, *values)
    assert result.returncode == 0, result.stderr
    maps = [m["data"] for m in yaml.load_all(result.stdout, yaml.CSafeLoader) if m and m["kind"] == "ConfigMap"]
    ((key, text),) = [item for data in maps for item in data.items() if item[0].startswith("embereye-alerts")]
    return key, yaml.safe_load(text)


def test_grafana_can_have_the_alerts_of_several_releases() -> None:
    """Its sidecar writes one file per key; a uid identifies a rule, and so do folder and title."""
    files = [grafana_file(*release) for release in (("embereye", "north"), ("embereye", "south"), ("south", "north"))]
    assert len({key for key, _ in files}) == 3
    groups = [group for _, file in files for group in file["groups"]]
    assert len({(group["folder"], group["name"]) for group in groups}) == len(groups) == 6
    uids = [rule["uid"] for group in groups for rule in group["rules"]]
    assert len(set(uids)) == len(uids) == 3 * len(BY_NAME)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,40}", uid) for uid in uids)
    titles = [(group["folder"], rule["title"]) for group in groups for rule in group["rules"]]
    assert len(set(titles)) == len(titles)


def test_without_the_prometheus_operator_there_are_annotations_and_a_rule_file(tmp_path: Path) -> None:
    manifests = render(*golden.VALUES["annotations"])
    assert not {m["kind"] for m in manifests} & {"PodMonitor", "PrometheusRule"}
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            template = manifest["spec"]["template"]
            ports = {str(port["containerPort"]) for port in template["spec"]["containers"][0]["ports"]}
            assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
            assert template["metadata"]["annotations"]["prometheus.io/port"] in ports
            if manifest["metadata"]["name"] == "embereye-operator":
                assert "--scrape-annotations" in template["spec"]["containers"][0]["args"]
    (file,) = [m["data"]["embereye.yaml"] for m in manifests if m["metadata"]["name"] == "embereye-rules"]
    names = {rule.get("alert") for group in yaml.safe_load(file)["groups"] for rule in group["rules"]} - {None}
    assert names == set(BY_NAME)


def test_dashboards_are_config_maps_for_the_sidecar_with_the_committed_content() -> None:
    maps = of_kind("ConfigMap")
    files = sorted((ROOT / "charts/embereye/files/dashboards").glob("*.json"))
    assert len(maps) == len(files) == 7
    for file in files:
        manifest = maps[f"embereye-dashboard-{file.stem}"]
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(manifest["data"][f"embereye-{file.name}"]) == json.loads(file.read_text())
        assert len(file.read_bytes()) < 500_000


def test_dashboards_are_objects_of_the_grafana_operator_if_it_is_installed() -> None:
    arguments = (*golden.MONITORING, "--api-versions", "grafana.integreatly.org/v1beta1")
    dashboards = [m for m in render(*arguments) if m["kind"] == "GrafanaDashboard"]
    maps = of_kind("ConfigMap")
    assert len(dashboards) == 7
    for dashboard in dashboards:
        named = dashboard["spec"]["configMapRef"]
        assert named["key"] in maps[named["name"]]["data"]


def test_arguments_and_variables_reach_the_commands() -> None:
    result = template(
        "--set", "operator.extraArgs={--namespace=site}", "--set", "hub.extraEnv[0].name=EMBEREYE_LOG_LEVEL",
        "--set", "hub.extraEnv[0].value=DEBUG", "--set", "operator.scalingTrace.enabled=true",
        "--set", "operator.prometheus=http://prometheus:9090",
    )  # fmt: skip
    assert isinstance(result, subprocess.CompletedProcess)
    for expected in ("--namespace=site", "--scaling-trace=/var/lib/embereye/scaling", "EMBEREYE_LOG_LEVEL",
                     "--prometheus=http://prometheus:9090", "mountPath: /var/lib/embereye/scaling"):  # fmt: skip
        assert expected in result.stdout


@pytest.mark.parametrize("component", ["operator", "hub"])
def test_a_network_policy_lets_prometheus_in_to_what_it_scrapes(component: str) -> None:
    (endpoint,) = of_kind("PodMonitor")[f"embereye-{component}"]["spec"]["podMetricsEndpoints"]
    rules = of_kind("NetworkPolicy")[f"embereye-{component}"]["spec"]["ingress"]
    everybodys = {port["port"] for rule in rules if "from" not in rule for port in rule["ports"]}
    assert endpoint["port"] in everybodys


def test_who_reads_the_hubs_metrics_can_be_narrowed() -> None:
    narrowed = ("--set", "networkPolicy.metrics[0].namespaceSelector.matchLabels.name=monitoring")
    rules = of_kind("NetworkPolicy", *narrowed)["embereye-hub"]["spec"]["ingress"]
    (rule,) = [rule for rule in rules if {"port": "metrics", "protocol": "TCP"} in rule["ports"]]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
