"""The chart as helm and a real API server see it."""

import base64
import copy
import json
import re
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.cluster.chart import CHART, KUBERNETES, NAMESPACE, helm, operators_rights, render, template
from harness.servers.apiserver import ApiError, ApiServer, path_of

from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.tables.selection import read_selection
from embereye.hub.webhooks.options import WebhookOptions, parse_webhooks
from embereye_cli.cluster.self_test import add_arguments as add_self_test_arguments
from embereye_cli.processes.hub import add_arguments as add_hub_arguments
from embereye_cli.processes.hub import broker_options
from embereye_cli.processes.operator import add_arguments as add_operator_arguments
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.manifests.compare import quantity
from embereye_operator.decide.manifests.deployment import build_deployment
from embereye_operator.decide.manifests.settings import Settings

DIGEST = f"sha256:{'ab' * 32}"
OPENSHIFT = ("--api-versions", "security.openshift.io/v1")
LABELS = ("--set", "additionalLabels.release=monitoring", "--set", "additionalLabels.team=safety")
SAME_LABELS = (
    "--set", "additionalLabels.team=safety", "--set", r"additionalLabels.app\.kubernetes\.io/part-of=fire",
    "--set-string", "additionalLabels.grafana_dashboard=0", "--set", "monitoring.enabled=true",
    "--set", "monitoring.labels.team=platform", "--set", "monitoring.grafanaAlerts.enabled=true",
    "--set", "monitoring.grafanaAlerts.labels.team=grafana",
)  # fmt: skip
TOLERATIONS = tuple(
    argument
    for component in ("hub", "operator")
    for argument in (
        "--set", f"{component}.tolerations[0].operator=Exists", "--set", f"{component}.nodeSelector.site=north",
        "--set", f"{component}.resources.limits.cpu=1",
    )
)  # fmt: skip
VALUE_SETS = {
    "defaults": (),
    "cluster-wide": ("--set", "operator.clusterWide=true"),
    "without rights to nodes": ("--set", "operator.nodes=false"),
    "two namespaces and a selector": (
        "--set", "operator.namespaces={north,south}", "--set-string", r"operator.fleetSelector=site=a\,stage!=test",
    ),
    "without persistence": ("--set", "hub.persistence.enabled=false"),
    "an existing database and volume": (
        "--set", "hub.database.dsnSecret.name=hub-database", "--set", "hub.persistence.existingClaim=history",
    ),
    "two hubs": (
        "--set", "hub.replicas=2", "--set", "hub.database.dsnSecret.name=hub-database",
        "--set", "hub.persistence.enabled=false",
    ),
    "node ports": ("--set", "hub.service.type=NodePort", "--set", "hub.service.httpPort=80"),
    "labels and tolerations": (*LABELS, *TOLERATIONS),
    "labels of the same names": (*SAME_LABELS, "--set", "monitoring.scrape=annotations"),
    "another storage class and image": (
        "--set", "hub.persistence.storageClass=fast", "--set", "hub.persistence.size=500Mi",
        "--set", "image.repository=registry.example/fire/embereye", "--set", "image.tag=1.2.3",
        "--set", "imagePullSecrets[0].name=pull", "--set", "image.pullPolicy=Always",
    ),
    "a digest, a priority, an affinity, roll-outs": (
        "--set", f"image.digest={DIGEST}", "--set", "operator.priorityClassName=system-cluster-critical",
        "--set", "hub.priorityClassName=system-cluster-critical",
        "--set-json", 'hub.affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": '
        '{"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}}',
        "--set", "operator.rollout.maxFleets=20", "--set", "operator.rollout.haltOn={Ready}",
    ),
    "nothing survives the release": (
        "--set", "crds.keep=false", "--set", "hub.persistence.keep=false", "--set", "identity.keep=false",
    ),
    "without CRDs": ("--set", "crds.enabled=false"),
    "arguments and variables": (
        "--set", "operator.extraArgs[0]=--namespace=site", "--set", "hub.extraEnv[0].name=EMBEREYE_LOG_LEVEL",
        "--set", "hub.extraEnv[0].value=DEBUG", "--set", "operator.scalingTrace.enabled=true",
        "--set", "operator.prometheus=http://prometheus:9090", "--set", "hub.extraArgs[0]=--retention=7d",
    ),
    "the cluster's user": ("--set", "runAs=none"),
    "another user": ("--set", "runAs=1001"),
    "an identity provider": (
        "--set", "hub.oidc.issuer=https://accounts.example", "--set", "hub.oidc.clientId=embereye",
        "--set", "hub.oidc.roles.operator={fire wardens}",
        "--set-json", 'hub.oidc.zones={"fire wardens": ["hall/*", "hall/cameras/yard"]}',
        "--set", "hub.oidc.clientSecret.existingSecret=oidc",
    ),
    "webhooks": (
        "--set-json",
        'hub.webhooks=[{"name": "pager", "url": "https://pager.example/x", "tokenFrom": {"secret": "pager"}, '
        '"select": {"levels": ["alarm"]}}, {"name": "am", "urlFrom": {"secret": "am", "key": "address"}}]',
    ),
    "an MQTT broker": (
        "--set", "hub.mqtt.broker=mqtts://broker.example:8884", "--set", "hub.mqtt.credentials.existingSecret=login",
        "--set", "hub.mqtt.tls.existingSecret=broker-tls", "--set", "hub.mqtt.prefix=site/north",
    ),
    "evidence by NATS": (
        "--set", "hub.nats.servers={tls://nats-0.example:5000,tls://nats-1.example}", "--set", "hub.nats.copies=3",
        "--set", "hub.nats.credentials.existingSecret=login", "--set", "hub.nats.tls.existingSecret=nats-tls",
        "--set", "hub.replicas=2", "--set", "hub.database.dsnSecret.name=dsn", "--set", "hub.persistence.enabled=false",
    ),
    "hubs of tenants": (
        "--set", "hubs.north.namespaces={north}", "--set", "hubs.north.hub.persistence.enabled=false",
        "--set-json", "hubs.shared={}", "--set", "operator.namespaces={north,south}",
    ),
    "a policy against shared devices": ("--set", "admission.shared=Deny"),
    "annotations": ("--set", "monitoring.enabled=true", "--set", "monitoring.scrape=annotations",
                    "--set", "monitoring.grafanaAlerts.enabled=true"),
}  # fmt: skip
every_value_set = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)


def dry_run(cluster: ApiServer, manifest: Any) -> Any:
    """Return the object that the API server would store; nothing is stored."""
    path = f"{path_of(manifest)}?dryRun=All&fieldManager=helm&force=true&fieldValidation=Strict"
    return cluster.request("PATCH", path, manifest, "application/apply-patch+yaml")


@pytest.fixture(scope="module")
def _home(cluster: ApiServer) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (NAMESPACE, "north", "south"):
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})


@every_value_set
def test_helm_lint_finds_nothing(values: tuple[str, ...]) -> None:
    result = helm("lint", "--strict", str(CHART), *values)
    assert result.returncode == 0, result.stdout + result.stderr


def duplicate_keys(node: yaml.Node) -> Iterator[str]:
    """Yield keys that a map has more than once: helm uses the last, but Kustomize, which Flux uses, refuses them."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        yield from (f"{key}, line {node.start_mark.line}" for key, times in Counter(keys).items() if times > 1)
    for inner in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in inner if isinstance(inner, tuple) else (inner,):
            yield from duplicate_keys(part)


@every_value_set
def test_no_manifest_has_a_key_twice(values: tuple[str, ...]) -> None:
    rendered = yaml.compose_all(template(*values).stdout, yaml.CSafeLoader)
    assert [key for manifest in rendered if manifest for key in duplicate_keys(manifest)] == []


@pytest.mark.apiserver
@pytest.mark.usefixtures("_home")
@every_value_set
def test_the_api_server_accepts_every_manifest(cluster: ApiServer, values: tuple[str, ...]) -> None:
    manifests = render(*values)
    assert manifests
    cluster.warnings.clear()
    for manifest in manifests:
        stored = dry_run(cluster, manifest)
        assert stored["metadata"]["name"] == manifest["metadata"]["name"]
    assert cluster.warnings == []  # of deprecated kinds and fields, too


@pytest.mark.apiserver
@pytest.mark.usefixtures("_home")
@every_value_set
def test_every_pod_is_admitted_in_a_restricted_namespace(cluster: ApiServer, values: tuple[str, ...]) -> None:
    for manifest in render(*values):
        if manifest["kind"] == "Deployment":
            dry_run(cluster, pod_of(manifest))


@pytest.mark.apiserver
@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("SensorFleet", {"sensors": [{"id": "s-1", "zone": "hall"}]}),
        (
            "CameraFleet",
            {
                "cameras": [
                    {"id": "c-1", "zone": "hall", "source": "http://cam/v", "credentialsRef": {"name": "password.c-1"}}
                ]
            },
        ),
    ],
)
def test_every_shard_is_admitted_in_a_restricted_namespace(cluster: ApiServer, kind: str, spec: Any) -> None:
    metadata = {"name": "hall", "namespace": NAMESPACE, "uid": "0f"}
    fleet = parse_fleet({"apiVersion": "embereye.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    deployment = build_deployment(fleet, "hall-0", Settings(image="embereye:1", hub="hub:50052"), ["password.c-1"])
    dry_run(cluster, pod_of(deployment))


@pytest.mark.apiserver
@pytest.mark.usefixtures("_home")
def test_the_restricted_namespace_refuses_an_unrestricted_pod(cluster: ApiServer) -> None:
    pod = pod_of(next(manifest for manifest in render() if manifest["kind"] == "Deployment"))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match="violates PodSecurity"):
        dry_run(cluster, pod)


def by_name(manifests: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Index manifests by kind and name."""
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}


def pod_of(deployment: Any) -> Any:
    pod = copy.deepcopy(deployment["spec"]["template"])
    metadata = {**pod["metadata"], "name": deployment["metadata"]["name"], "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("hub.retention=90", "hub.retention"),
        ("hub.retention=soon", "hub.retention"),
        ("hub.retention=0d", "hub.retention"),
        ("hub.clips=0G", "hub.clips"),
        ("hub.clips=1000000000M", "hub.clips"),
        ("hub.service.type=Ingress", "hub.service.type"),
        ("hub.service.grpcPort=0", "hub.service.grpcPort"),
        ("hub.service.grpcPort=http", "hub.service.grpcPort"),
        ("hub.persistence.size=2 GB", "hub.persistence.size"),
        ("hub.persistence.enabled=perhaps", "hub.persistence.enabled"),
        ("hub.replicas=0", "hub.replicas"),
        ("hub.database.dsnSecret.name=A secret", "hub.database.dsnSecret.name"),
        ("hub.persistence.existingClaim=A claim", "hub.persistence.existingClaim"),
        ("hub.oidc.issuer=http://accounts.example", "hub.oidc.issuer"),
        ("hub.oidc.issuer=https://accounts.example", "hub.oidc.clientId"),
        ("hub.oidc.roles.warden={a}", "hub.oidc.roles"),
        ("hub.oidc.zones.a={hall}", "hub.oidc.zones.a.0"),
        ("hub.oidc.zones.a={hall/boilers/yard}", "hub.oidc.zones.a.0"),
        ("hub.webhooks[0].name=Pager", "hub.webhooks.0"),
        ("hub.mqtt.broker=broker.example", "hub.mqtt.broker"),
        ("hub.mqtt.prefix=site/#", "hub.mqtt.prefix"),
        ("hub.mqtt.broker=mqtt://broker.example,hub.mqtt.tls.existingSecret=broker-tls", "hub.mqtt.broker"),
        ("hub.nats.servers={nats.example}", "hub.nats.servers.0"),
        ("hub.nats.servers={nats://ada:word@nats.example}", "hub.nats.servers.0"),
        ("hub.nats.servers={nats://nats.example},hub.nats.tls.existingSecret=nats-tls", "hub.nats.servers.0"),
        ("hub.nats.stream=a.b", "hub.nats.stream"),
        ("hub.nats.copies=2", "hub.nats.copies"),
        ("image.repository=", "image.repository"),
        ("image.pullPolicy=Sometimes", "image.pullPolicy"),
        ("operator.clusterWide=site", "operator.clusterWide"),
        ("operator.namespaced=true", "operator"),
        ("operator.namespaces={North}", "operator.namespaces.0"),
        ("operator.namespaces=north", "operator.namespaces"),
        ("operator.resources.request.cpu=1", "request"),
        ("crd.keep=true", "crd"),
        ("hubs.North.namespaces={north}", "North"),
        ("hubs.north.namespaces=north", "hubs.north.namespaces"),
        ("hubs.north.hub.retention=soon", "hubs.north.hub.retention"),
        ("hubs.north.retention=9d", "retention"),
        ("additionalLabels.team=7", "additionalLabels.team"),
        ("logFormat=xml", "logFormat"),
        ("runAs=root", "runAs"),
        ("runAs=0", "runAs"),
        ("tracing.endpoint=otel-collector:4317", "tracing.endpoint"),
        ("monitoring.enabled=perhaps", "monitoring.enabled"),
        ("monitoring.scrape=serviceMonitors", "monitoring.scrape"),
        ("monitoring.interval=soon", "monitoring.interval"),
        ("monitoring.labels.release=7", "monitoring.labels.release"),
        ("monitoring.rules.disabled[0]=EmberEyeDeviceDark", "monitoring.rules.disabled.0"),
        ("monitoring.rules.runbookUrl=wiki", "monitoring.rules.runbookUrl"),
        ("monitoring.dashboard.enabled=false", "monitoring.dashboard"),
        ("operator.extraArgs[0]=verbose", "operator.extraArgs.0"),
        ("operator.extraArgs[0]=--take-over-aftr=60", "operator.extraArgs.0"),
        ("operator.extraArgs[0]=--take-over-after", "operator.extraArgs.0"),
        ("hub.extraArgs[0]=--retentoin=7d", "hub.extraArgs.0"),
        ("operator.prometheus=prometheus:9090", "operator.prometheus"),
        ("operator.scalingTrace.size=lots", "operator.scalingTrace.size"),
        ("operator.fleetSelector=a in", "operator.fleetSelector"),
        ("operator.fleetSelector=a in ()", "operator.fleetSelector"),
        ("operator.fleetSelector=a in (b c)", "operator.fleetSelector"),
        ("operator.fleetSelector=a=-b", "operator.fleetSelector"),
        ("operator.fleetSelector=!a=b", "operator.fleetSelector"),
        ("image.repository=my image", "image.repository"),
        ("image.tag=a b", "image.tag"),
        ("image.tag=v1:2", "image.tag"),
        ("hub.persistence.size=0Gi", "hub.persistence.size"),
        ("hub.persistence.storageClass=Fast_SSD", "hub.persistence.storageClass"),
        ("operator.priorityClassName=very important", "operator.priorityClassName"),
        ("hub.resources.limits.memory=12quux", "hub.resources.limits.memory"),
        ("additionalLabels.team=a b", "additionalLabels.team"),
    ],
)
def test_a_wrong_value_is_refused_by_name(value: str, named: str) -> None:
    result = template("--set", value)
    assert result.returncode != 0
    sentences = [line for line in result.stderr.splitlines() if named.rpartition(".")[2] in line and "at '" in line]
    place = "/" + "/".join(named.split(".")[:-1]) if "." in named else ""
    assert sentences, result.stderr
    assert place in sentences[0]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((), "hub.replicas: 2 hubs can share a history in PostgreSQL only. Name the Secret"),
        (("--set", "hub.database.dsnSecret.name=hub-database"), "hub.replicas: 2 hubs cannot mount the chart's volume"),
    ],
)
def test_a_second_hub_that_could_not_take_over_is_refused_with_a_reason(values: tuple[str, ...], sentence: str) -> None:
    result = template("--set", "hub.replicas=2", *values)
    assert result.returncode != 0
    assert sentence in result.stderr


@pytest.mark.parametrize(("port", "number"), [("grpcPort", 8080), ("httpPort", 50054), ("associationPort", 50052)])
def test_equal_ports_of_the_hub_are_refused(port: str, number: int) -> None:
    result = template("--set", f"hub.service.{port}={number}")
    assert result.returncode != 0
    assert f"are both {number}. Choose different ports." in result.stderr


@pytest.mark.parametrize(("name", "better"), [("my.fire", "my-fire"), ("7up", "up")])
def test_a_release_name_that_no_service_can_have_is_refused(name: str, better: str) -> None:
    result = helm("template", name, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES)
    assert result.returncode != 0
    assert f'the release\'s name "{name}"' in result.stderr
    assert f"such as {better}." in result.stderr


def test_two_releases_of_one_name_share_no_object_outside_their_namespaces() -> None:
    def shared(namespace: str) -> set[tuple[str, str, str]]:
        arguments = ("--set", "operator.namespaces={north}", "--set", "crds.enabled=false")
        result = helm(
            "template", "fire", str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES, *arguments
        )
        assert result.returncode == 0, result.stderr
        objects = [document for document in yaml.safe_load_all(result.stdout) if document]
        places = ((m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in objects)
        return {place for place in places if place[1] != namespace}

    assert shared("green")
    assert not shared("green") & shared("blue")


@pytest.mark.parametrize("value", ["site=north,stage notin (test)", "!paused", "a in (b, c)", "example.com/site", ""])
def test_a_label_selector_of_every_form_is_accepted(value: str) -> None:
    result = template("--set-string", f"operator.fleetSelector={value.replace(',', chr(92) + ',')}")
    assert result.returncode == 0, result.stderr


def test_a_chart_above_may_switch_it_on() -> None:
    assert template("--set", "enabled=true").returncode == 0


@pytest.mark.parametrize("hub", ["hub", "hubs.north.hub"])
def test_a_certificate_name_of_embereyes_processes_is_refused_with_a_reason(hub: str) -> None:
    wanted = ("--set", f"{hub}.tls.enabled=true", "--set", f"{hub}.tls.names={{fire.embereye.internal}}")
    result = template(*wanted)
    assert result.returncode != 0
    assert "tls.names: fire.embereye.internal ends like the names of EmberEye's processes" in result.stderr
    assert render(*wanted, "--set", f"{hub}.tls.existingSecret=fire-tls")


def test_several_hubs_know_their_addresses_and_are_replaced_one_by_one() -> None:
    manifests = render(*VALUE_SETS["two hubs"])
    hub = next(m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    assert hub["spec"]["replicas"] == 2
    assert hub["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (container,) = hub["spec"]["template"]["spec"]["containers"]
    assert "--advertise=$(POD_IP)" in container["args"]
    fields = {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"] if "valueFrom" in entry
    }
    assert fields == {"POD_IP": "status.podIP"}
    assert container["livenessProbe"]["httpGet"]["port"] == "metrics"


def test_an_existing_volume_is_mounted_and_none_is_created() -> None:
    manifests = render("--set", "hub.persistence.existingClaim=history")
    assert not [manifest for manifest in manifests if manifest["kind"] == "PersistentVolumeClaim"]
    hub = next(m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    volumes = {volume["name"]: volume for volume in hub["spec"]["template"]["spec"]["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "history"}


def test_additional_labels_are_on_every_object_and_pod() -> None:
    for manifest in render(*LABELS):
        assert manifest["metadata"]["labels"]["release"] == "monitoring", manifest["metadata"]["name"]
        if manifest["kind"] == "Deployment":
            assert manifest["spec"]["template"]["metadata"]["labels"]["team"] == "safety"
            assert "team" not in manifest["spec"]["selector"]["matchLabels"]


def test_additional_labels_do_not_replace_labels_of_the_charts_selectors() -> None:
    manifests = by_name(render(*SAME_LABELS))
    labels = manifests["Deployment", "embereye-operator"]["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "safety"
    ingress = manifests["NetworkPolicy", "embereye-hub"]["spec"]["ingress"]
    (control,) = [rule for rule in ingress if {"port": "control", "protocol": "TCP"} in rule["ports"]]
    (admitted,) = [peer["podSelector"]["matchLabels"] for peer in control["from"]]
    assert admitted.items() <= labels.items(), "the hub does not let its operator in"


def test_labels_for_other_programs_take_precedence_over_additional_labels() -> None:
    manifests = by_name(render(*SAME_LABELS))
    for kind, name, label, expected in (
        ("PodMonitor", "embereye-hub", "team", "platform"),
        ("PrometheusRule", "embereye", "team", "platform"),
        ("ConfigMap", "embereye-grafana-alerts", "team", "grafana"),
        ("ConfigMap", "embereye-dashboard-capacity", "grafana_dashboard", "1"),
    ):
        assert manifests[kind, name]["metadata"]["labels"][label] == expected


def test_a_release_has_rights_in_its_namespace_only_and_to_see_nodes() -> None:
    manifests = operators_rights("--set", "operator.nodes=false")
    assert {manifest["kind"] for manifest in manifests} == {"Role", "RoleBinding"}
    assert {manifest["metadata"]["namespace"] for manifest in manifests} == {NAMESPACE}
    added = {m["metadata"]["name"]: m for m in operators_rights() if m not in manifests and "Binding" not in m["kind"]}
    assert added["embereye-operator-embereye-nodes"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    assert added["embereye-operator-embereye-heartbeats"]["metadata"]["namespace"] == "kube-node-lease"
    names = {"", "-nodes", "-heartbeats"}
    assert added.keys() == {f"embereye-operator-embereye{name}" for name in names}


def test_all_namespaces_and_some_namespaces_exclude_each_other() -> None:
    result = template("--set", "operator.clusterWide=true", "--set", "operator.namespaces={north}")
    assert result.returncode != 0
    assert "set only one of them" in result.stderr


def test_a_release_for_some_namespaces_has_a_role_in_each_and_no_other_rights() -> None:
    values = VALUE_SETS["two namespaces and a selector"]
    manifests = operators_rights(*values, "--set", "operator.nodes=false")
    assert {manifest["kind"] for manifest in manifests} == {"Role", "RoleBinding"}
    where = {manifest["metadata"]["namespace"] for manifest in manifests}
    assert where == {"north", "south", NAMESPACE}
    for manifest in manifests:
        if manifest["kind"] == "RoleBinding":
            (subject,) = manifest["subjects"]
            assert subject["namespace"] == NAMESPACE
    at_home = [m for m in manifests if m["metadata"]["namespace"] == NAMESPACE and m["kind"] == "Role"]
    assert all("sensorfleets" not in rule["resources"] for role in at_home for rule in role["rules"])
    operator = next(
        m for m in render(*values) if m["metadata"]["name"].endswith("-operator") and m["kind"] == "Deployment"
    )
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--namespace=north,south" in arguments
    assert "--fleet-selector=site=a,stage!=test" in arguments
    assert "--all-namespaces" not in arguments


def test_objects_that_outlive_the_release_have_the_resource_policy() -> None:
    def surviving(*values: str) -> set[str]:
        policy = "helm.sh/resource-policy"
        return {m["kind"] for m in render(*values) if (m["metadata"].get("annotations") or {}).get(policy) == "keep"}

    assert surviving() == {"CustomResourceDefinition", "PersistentVolumeClaim", "Secret"}
    assert surviving(*VALUE_SETS["nothing survives the release"]) == set()


def test_shards_use_the_pull_policy_of_the_values() -> None:
    manifests = render("--set", "image.pullPolicy=Always")
    operator = next(m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-operator"))
    assert "--image-pull-policy=Always" in operator["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_hub_and_the_operator_get_the_address_for_traces() -> None:
    endpoint = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4317"}
    for manifest in render("--set", "tracing.endpoint=http://collector:4317"):
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            assert endpoint in container["env"]


def test_operator_and_hub_log_json_if_requested() -> None:
    for manifest in render("--set", "logFormat=json"):
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            assert {"name": "EMBEREYE_LOG_FORMAT", "value": "json"} in container["env"]
    for manifest in render():
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            assert "EMBEREYE_LOG_FORMAT" not in [entry["name"] for entry in container.get("env", [])]


def test_the_admins_token_is_in_the_charts_secret_or_an_existing_one() -> None:
    def secret_of(manifests: list[dict[str, Any]], kind: str, end: str) -> str:
        (spec,) = [m["spec"] for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(end)]
        spec = spec["template"]["spec"] if kind == "Deployment" else spec
        (name,) = [volume["secret"]["secretName"] for volume in spec["volumes"] if volume["name"] == "admin-token"]
        return str(name)

    manifests = render()
    (secret,) = [m for m in manifests if m["kind"] == "Secret" and "token" in m.get("data", {})]
    assert secret["metadata"]["name"] == secret_of(manifests, "Deployment", "-hub") == "embereye-hub-admin"
    assert secret_of(manifests, "Pod", "-self-test") == "embereye-hub-admin"
    assert len(base64.b64decode(secret["data"]["token"])) >= 32
    manifests = render("--set", "hub.adminToken.existingSecret=mine", "--set", "hub.allowedHosts={*.a.example}")
    assert not [m for m in manifests if m["kind"] == "Secret" and "token" in m.get("data", {})]
    assert {secret_of(manifests, "Deployment", "-hub"), secret_of(manifests, "Pod", "-self-test")} == {"mine"}
    (arguments,) = [
        m["spec"]["template"]["spec"]["containers"][0]["args"]
        for m in manifests
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub")
    ]
    assert "--allowed-host=*.a.example" in arguments


def test_the_hub_answers_to_every_service_name_in_its_certificate() -> None:
    (arguments,) = [
        m["spec"]["template"]["spec"]["containers"][0]["args"]
        for m in render()
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub")
    ]
    allowed = AllowedHosts(word.removeprefix("--allowed-host=") for word in arguments if "--allowed-host=" in word)
    (operators,) = [
        m["spec"]["template"]["spec"]["containers"][0]["args"]
        for m in render("--set", "hub.tls.enabled=true")
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-operator")
    ]
    (names,) = [word.removeprefix("--hub-names=") for word in operators if word.startswith("--hub-names=")]
    assert "embereye-hub.embereye.svc.cluster.local" in names.split(",")
    assert [name for name in names.split(",") if ":" not in name and not allowed.permit(name)] == []


def test_the_hub_gets_the_identity_provider_and_starts_without_its_secret() -> None:
    (hub,) = [
        m["spec"]["template"]["spec"]
        for m in render(*VALUE_SETS["an identity provider"])
        if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub")
    ]
    arguments = [word for word in hub["containers"][0]["args"] if word.startswith("--oidc")]
    assert arguments == [
        "--oidc-issuer=https://accounts.example", "--oidc-client-id=embereye", "--oidc-scopes=openid profile email",
        "--oidc-claim=groups", "--oidc-role=operator=fire wardens", "--oidc-zone=hall/*=fire wardens",
        "--oidc-zone=hall/cameras/yard=fire wardens",
        "--oidc-client-secret-file=/etc/embereye/oidc/client-secret",
    ]  # fmt: skip
    (volume,) = [volume["secret"] for volume in hub["volumes"] if volume["name"] == "oidc"]
    assert (volume["secretName"], volume["optional"]) == ("oidc", True)
    assert "oidc" not in str(render())


def test_the_hub_gets_its_broker_and_reads_its_secrets_as_files() -> None:
    manifests = render(*VALUE_SETS["an MQTT broker"])
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = [argument for argument in container["args"] if argument.startswith("--mqtt-")]
    parser = ArgumentParser()
    add_hub_arguments(parser)
    options = broker_options(parser.parse_args(words))
    assert options is not None
    assert (options.host, options.port, options.tls, options.prefix) == ("broker.example", 8884, True, "site/north")
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert (options.credentials, options.certificates) == (mounts["mqtt-credentials"], mounts["mqtt-tls"])
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if volume["name"].startswith("mqtt-")}
    assert {name: secret["secretName"] for name, secret in secrets.items()} == {
        "mqtt-credentials": "login", "mqtt-tls": "broker-tls",
    }  # fmt: skip
    assert all(secret["optional"] for secret in secrets.values())
    assert "mqtt" not in str([m for m in render() if m["kind"] == "Deployment"])


def test_the_hub_reads_webhooks_from_files_and_is_replaced_if_they_change() -> None:
    def parts(*values: str) -> tuple[dict[str, Any], dict[str, Any]]:
        manifests = render(*values)
        (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
        (webhooks,) = (m for m in manifests if m["kind"] == "ConfigMap" and "-hub-webhooks-" in m["metadata"]["name"])
        return hub["spec"]["template"]["spec"], webhooks

    pod, declared = parts(*VALUE_SETS["webhooks"])
    assert "--webhooks=/etc/embereye/webhooks/webhooks.json" in pod["containers"][0]["args"]
    assert parse_webhooks(json.loads(declared["data"]["webhooks.json"])) == [
        WebhookOptions(
            "pager", "https://pager.example/x", token_file=Path("/etc/embereye/webhooks/pager.token"),
            selection=read_selection({"levels": ["alarm"]}),
        ),
        WebhookOptions("am", url_file=Path("/etc/embereye/webhooks/am.url")),
    ]  # fmt: skip
    (volume,) = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "webhooks"]
    assert [source["secret"]["items"] for source in volume[1:]] == [
        [{"key": "token", "path": "pager.token"}], [{"key": "address", "path": "am.url"}],
    ]  # fmt: skip
    _, changed = parts("--set-json", 'hub.webhooks=[{"name": "pager", "url": "https://pager.example/y"}]')
    assert changed["metadata"]["name"] != declared["metadata"]["name"]
    assert "webhooks" not in str([m for m in render() if m["kind"] in {"Deployment", "ConfigMap"} and "data" not in m])


def test_every_process_runs_the_image_of_the_digest() -> None:
    manifests = render("--set", f"image.digest={DIGEST}")
    (operator,) = [m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-operator")]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f"@{DIGEST}")
    assert f"--image={container['image']}" in container["args"], "shards too"


def test_a_single_operator_has_no_disruption_budget() -> None:
    def budgets(*values: str) -> list[str]:
        return [m["metadata"]["name"] for m in render(*values) if m["kind"] == "PodDisruptionBudget"]

    assert budgets() == ["embereye-operator"]
    assert budgets("--set", "operator.replicas=1") == []


def test_shards_are_pulled_with_the_releases_secrets() -> None:
    def arguments(*values: str) -> list[str]:
        deployments = [manifest for manifest in render(*values) if manifest["kind"] == "Deployment"]
        (operator,) = [m for m in deployments if m["metadata"]["name"] == "embereye-operator"]
        words: list[str] = operator["spec"]["template"]["spec"]["containers"][0]["args"]
        return [argument for argument in words if "pull-secrets" in argument]

    names = ("--set", "imagePullSecrets[0].name=pull", "--set", "imagePullSecrets[1].name=mirror")
    assert arguments(*names) == ["--image-pull-secrets=pull,mirror"]
    assert arguments() == []


@pytest.mark.parametrize(
    ("values", "user"),
    [
        ((), 65532),
        (OPENSHIFT, None),
        (VALUE_SETS["the cluster's user"], None),
        ((*OPENSHIFT, "--set", "runAs=1001"), 1001),
        (("--set", "runAs=2000000000"), 2_000_000_000),
    ],
)
def test_every_pod_runs_as_the_named_user_or_names_none(values: tuple[str, ...], user: int | None) -> None:
    pods = {
        manifest["metadata"]["name"]: manifest["spec"]
        if manifest["kind"] == "Pod"
        else manifest["spec"]["template"]["spec"]
        for manifest in render(*values)
        if manifest["kind"] in {"Deployment", "Pod"}
    }
    assert {"embereye-operator", "embereye-hub", "embereye-self-test"} == pods.keys()
    named = {key: user for key in ("runAsUser", "runAsGroup", "fsGroup") if user is not None}
    for pod in pods.values():
        assert {**named, "runAsNonRoot": True}.items() <= pod["securityContext"].items()
        assert user is not None or not re.search('runAs(User|Group)|fsGroup"', json.dumps(pod))
    (operator,) = pods["embereye-operator"]["containers"]
    words = [argument for argument in operator["args"] if "shard-user" in argument]
    assert words == {65532: [], None: ["--shard-user=none"]}.get(user, [f"--shard-user={user}"])


@pytest.mark.parametrize(("name", "add"), [("hub", add_hub_arguments), ("operator", add_operator_arguments)])
def test_additional_arguments_are_options_of_the_program(name: str, add: Any) -> None:
    parser = ArgumentParser(add_help=False)
    add(parser)
    flags, valued = {"utc"}, {"log-format"}  # of every command
    for action in parser._actions:
        names = {option.removeprefix("--") for option in action.option_strings if option.startswith("--")}
        (flags if action.nargs == 0 else valued).update(names)
    schema = json.loads((CHART / "values.schema.json").read_text())
    pattern = schema["definitions"][f"{name}Arguments"]["items"]["pattern"]
    # Options of add-ons stay in the schema if their folder is deleted.
    if name == "hub":
        valued.update(
            re.findall(
                r"(?<=[|(])(?:actuators|archive|association|dc09|modbus|nats|notify|profiles|site|statement)\b[-a-z]*",
                pattern,
            )
        )
    assert pattern == f"^--({'|'.join(sorted(flags))}|({'|'.join(sorted(valued))})=.*)$"


def test_the_helm_that_we_build_renders_the_chart_without_options() -> None:
    done = helm("template", "embereye", str(CHART))
    assert done.returncode == 0, done.stderr


def test_only_pods_are_hooks_because_helm_reads_the_log_of_each() -> None:
    hooks = [m["kind"] for m in render() if "helm.sh/hook" in (m["metadata"].get("annotations") or {})]
    assert hooks == ["Pod"]


@pytest.mark.parametrize("keep", [True, False])
def test_the_authority_stays_for_a_release_that_is_installed_again(keep: bool) -> None:
    (authority,) = [
        manifest
        for manifest in render("--set", f"identity.keep={json.dumps(keep)}")
        if (manifest["kind"], manifest["metadata"]["name"]) == ("Secret", "embereye-ca")
    ]
    policy = (authority["metadata"].get("annotations") or {}).get("helm.sh/resource-policy")
    assert policy == ("keep" if keep else None)
    assert "data" not in authority, "Helm must not empty it"


def test_the_self_test_runs_on_the_operators_nodes_with_the_requested_template() -> None:
    template = {"resources": {"limits": {"cpu": "1"}}, "tolerations": [{"key": "edge", "operator": "Exists"}]}

    def pod(*values: str) -> Any:
        return next(manifest["spec"] for manifest in render(*values) if manifest["kind"] == "Pod")

    (plain,) = pod()["containers"]
    assert not [argument for argument in plain["args"] if "template" in argument]
    assert plain["resources"]["limits"] == {"memory": "256Mi"}
    placed = pod(
        *TOLERATIONS, "--set-json", f"selfTest.template={json.dumps(template)}",
        "--set", "selfTest.resources.limits.cpu=200m",
    )  # fmt: skip
    assert placed["tolerations"] == [{"operator": "Exists"}]
    assert placed["nodeSelector"] == {"site": "north"}
    (container,) = placed["containers"]
    assert container["resources"]["limits"] == {"memory": "256Mi", "cpu": "200m"}
    parser = ArgumentParser()
    add_self_test_arguments(parser)
    assert parser.parse_args(container["args"][1:]).template == template


@pytest.mark.parametrize("tenant", [False, True])
def test_the_self_test_reaches_the_hub_even_if_few_people_can(tenant: bool) -> None:
    people = ("--set-json", 'networkPolicy.people=[{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]')
    hubs = ("--set", f"hubs.north.namespaces={{{NAMESPACE}}}") if tenant else ()
    manifests = by_name(render(*people, *hubs))
    labels = manifests["Pod", "embereye-self-test"]["metadata"]["labels"]
    policy = manifests["NetworkPolicy", f"embereye-{'north-' if tenant else ''}hub"]["spec"]["ingress"]
    admitted = [
        peer["podSelector"]["matchLabels"].items() <= labels.items()
        for rule in policy
        if {"port": "grpc", "protocol": "TCP"} in rule["ports"]
        for peer in rule["from"]
        if peer.keys() == {"podSelector"}
    ]
    assert any(admitted)


def test_the_operator_knows_the_size_of_its_trace_volume() -> None:
    wanted = ("--set", "operator.scalingTrace.enabled=true", "--set", "operator.scalingTrace.size=300Mi")
    (pod,) = [
        m["spec"]["template"]["spec"]
        for m in render(*wanted)
        if m["kind"] == "Deployment" and m["metadata"]["name"] == "embereye-operator"
    ]
    parser = ArgumentParser()
    add_operator_arguments(parser)
    options = parser.parse_args(pod["containers"][0]["args"][1:])
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "scaling-trace"]
    assert options.scaling_trace_size == quantity(volume["emptyDir"]["sizeLimit"]) == 300 * 1024**2


def test_only_several_hubs_have_a_disruption_budget() -> None:
    def budgets(*values: str) -> set[str]:
        budgets = [manifest for manifest in render(*values) if manifest["kind"] == "PodDisruptionBudget"]
        return {manifest["metadata"]["name"] for manifest in budgets}

    assert budgets() == {"embereye-operator"}
    assert budgets(*VALUE_SETS["two hubs"]) == {"embereye-operator", "embereye-hub"}


def test_releases_of_two_tenants_share_no_object() -> None:
    def objects(tenant: str, *values: str) -> set[tuple[str, str, str]]:
        result = helm("template", tenant, str(CHART), "--namespace", tenant, "--kube-version", KUBERNETES, *values)
        assert result.returncode == 0, result.stderr
        manifests = [manifest for manifest in yaml.safe_load_all(result.stdout) if manifest]
        return {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in manifests}

    north = objects("north", "--set", "operator.fleetSelector=tenant=north")
    south = objects("south", "--set", "crds.enabled=false", "--set", "operator.fleetSelector=tenant=south")
    assert len(north) > len(south) > 10
    assert not north & south


def test_associations_have_a_port_only_if_they_are_enabled() -> None:
    def ports(*values: str) -> list[object]:
        manifests = by_name(render(*values))
        pod = manifests["Deployment", "embereye-hub"]["spec"]["template"]["spec"]["containers"][0]
        policy = manifests["NetworkPolicy", "embereye-hub"]["spec"]["ingress"]
        return [
            [arg for arg in pod["args"] if "association" in arg],
            [port["containerPort"] for port in pod["ports"] if port["name"] == "association"],
            [
                port["port"]
                for port in manifests["Service", "embereye-hub"]["spec"]["ports"]
                if "association" in port["name"]
            ],
            [port["port"] for rule in policy for port in rule["ports"] if port["port"] == "association"],
        ]

    assert ports() == [[], [], [], []]
    wanted = ports("--set", "hub.associations.enabled=true", "--set", "hub.service.associationPort=5000")
    assert wanted == [["--association-port=50054"], [50054], [5000], ["association"]]
