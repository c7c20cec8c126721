"""The operator with exactly the chart's rights, on an API server that enforces them."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.cluster.chart import NAMESPACE, operators_rights
from harness.eventually import wait_for
from harness.servers.apiserver import OPERATOR_TOKEN, ApiError, ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.names import LABEL_FLEET, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from embereye_operator.decide.cluster.nodes import HEARTBEATS
from embereye_operator.decide.cluster.rights import NEEDED, missing_rights
from embereye_operator.decide.ownership.staleness import why_stale
from embereye_operator.runtime.kubernetes.identities import ANNOTATION_EXPIRES
from embereye_operator.runtime.kubernetes.observers import refused_statuses

from ..processes.test_emptied_nodes import pod_of
from ..processes.test_operator import create, has_status, names, operator, sensor_fleet, wait_for_children

pytestmark = pytest.mark.apiserver
Right = tuple[str, str, str]  # group, resource, verb


@pytest.fixture
def role(cluster: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Bind the chart's cluster-wide role to the operator for one test; its Lease is in the namespace."""
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/embereye-operator")
    monkeypatch.setenv("EMBEREYE_ROLE", "embereye-operator-embereye")
    rights = operators_rights("--set", "operator.clusterWide=true")
    for manifest in rights:
        if manifest["metadata"].get("namespace") == NAMESPACE:
            manifest["metadata"]["namespace"] = namespace
        create(cluster, manifest)
    yield next(manifest for manifest in rights if manifest["kind"] == "ClusterRole")
    for manifest in rights:
        cluster.request("DELETE", path_of(manifest))


def granted(role: Any) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(cluster: ApiServer, since: int) -> set[Right]:
    """Return the operator's requests from the API server's audit log."""
    rights = set()
    for entry in cluster.audit()[since:]:
        reference = entry.get("objectRef", {})
        if "resource" not in reference:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        group, verb = reference.get("apiGroup", ""), entry["verb"]
        if group == "authorization.k8s.io":  # everybody may ask for their own rights
            continue
        rights.add((group, resource, verb))
        if verb == "patch" and entry.get("responseStatus", {}).get("code") == 201:
            rights.add((group, resource, "create"))  # applying a new object needs both
    return rights


def stray(kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Build a child that an older operator may have left and that is unwanted now."""
    version = {"PodDisruptionBudget": "policy/v1"}.get(kind, "v1")
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_FLEET: "sensors.hall"}
    metadata = {"name": "hall-stray", "namespace": namespace, "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **spec}


@pytest.fixture
def lost_node(cluster: ApiServer, namespace: str) -> Iterator[None]:
    """A node whose kubelet has stopped, with a shard that nobody hears."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HEARTBEATS}/leases"
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-3"}})
    wait_for(lambda: cluster.get(f"/api/v1/namespaces/{HEARTBEATS}"), HEARTBEATS)
    cluster.request("POST", leases, {"metadata": {"name": "node-3"}, "spec": {"holderIdentity": "node-3"}})
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_FLEET: "sensors.hall", LABEL_SHARD: "hall-sensors-0"}
    create(cluster, pod_of(namespace, "hall-sensors-0", "node-3", labels))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.merge(f"/api/v1/namespaces/{namespace}/pods/hall-sensors-0/status", ready)
    yield
    for path in ("/api/v1/nodes/node-3", f"{leases}/node-3"):
        cluster.request("DELETE", path)


@pytest.mark.usefixtures("lost_node")
@pytest.mark.timeout(400)  # leftovers are found by a list every half a minute
@pytest.mark.slow
def test_the_operator_needs_exactly_the_rights_of_the_chart(
    cluster: ApiServer, namespace: str, role: Any, foreign: list[str], tmp_path: Path
) -> None:
    before, log = len(cluster.audit()), tmp_path / "log"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {"unschedulable": True}}
    cluster.request("POST", "/api/v1/nodes", node)
    # A certificate that a former leader let expire.
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_FLEET: "sensors.hall", LABEL_SHARD: "hall-sensors-0"}
    annotations = {ANNOTATION_EXPIRES: "2020-01-01T00:00:00+00:00"}
    metadata = {"name": "hall-sensors-0-identity", "namespace": namespace, "labels": labels, "annotations": annotations}
    create(cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with operator(cluster, log, kubeconfig=cluster.operator_kubeconfig):
        cameras = {
            "apiVersion": "embereye.dev/v1alpha1",
            "kind": "CameraFleet",
            "metadata": {"name": "yard", "namespace": namespace},
            # Below the minimum: that needs no measurement to scale.
            "spec": {"cameras": [{"id": "c-1", "zone": "gate", "source": "push"}], "autoscaling": {"minShards": 2}},
        }
        scaled = {"minShards": 2}
        wanted: dict[str, Any] = {
            "shards": 1,
            "autoscaling": scaled,
            "sensorsFrom": [{"configMapRef": {"name": "more"}}],
        }
        fleet = create(cluster, sensor_fleet(namespace, **wanted))
        create(cluster, cameras)
        wait_for_children(cluster, namespace, names(2) | names(2, "cameras", "yard"))
        has_status(cluster, fleet)
        has_status(cluster, cameras)

        def there(path: str) -> Any:
            return (cluster.get(path.format(f"namespaces/{namespace}/")) or {}).get("items")

        autoscalers = "/apis/autoscaling/v2/{}horizontalpodautoscalers"
        policies = "/apis/networking.k8s.io/v1/{}networkpolicies"
        wait_for(lambda: there(policies), policies)
        expose = {"type": "Gateway", "advertisedHost": "{name}.x", "gateway": {"name": "edge", "tcpListener": "text"}}
        for mode, exposed, paths in (
            ("hpa", None, [autoscalers]), ("keda", None, foreign[2:3]), ("none", expose, foreign[3:]),
        ):  # fmt: skip
            cluster.merge(path_of(fleet), {"spec": {"autoscaling": {"mode": mode}, "expose": exposed}})
            wait_for(lambda paths=paths: all(map(there, paths)), ", ".join(paths))
        cluster.merge(path_of(fleet), {"spec": {"alerts": {"enabled": False}, "shards": 1, "expose": None}})

        pods = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "maxUnavailable": 1}}
        create(cluster, stray("PodDisruptionBudget", namespace, pods))
        create(cluster, stray("ConfigMap", namespace, {"data": {}}))
        create(cluster, stray("Service", namespace, {"spec": {"ports": [{"port": 1}]}}))
        leftover = stray("ConfigMap", namespace, {})["metadata"]
        # Earlier versions created monitors and rules for single fleets.
        kinds = ((policies, "NetworkPolicy"), (foreign[0], "ServiceMonitor"), (foreign[1], "PrometheusRule"))
        for path, kind in kinds:
            group, version = path.split("/")[2:4]
            body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": leftover, "spec": {"podSelector": {}}}
            cluster.request("POST", path.format(f"namespaces/{namespace}/"), body)
        wait_for_children(cluster, namespace, names(1, services=2) | names(2, "cameras", "yard"))
        events = {"kind": "Event", "metadata": {"namespace": namespace}}
        wait_for(lambda: cluster.get(path_of(events, name=False))["items"], "an event")

        # A repeated refusal raises the count of its Event.
        less = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
        create(cluster, sensor_fleet(namespace, name="odd", template=less))

        # Leftovers of unwatched kinds are found by the next complete list.
        deadline = time.monotonic() + 60
        # A watch appears in the log once it has ended.
        while any(verb != "watch" for _, _, verb in unused(cluster, role, before)) and time.monotonic() < deadline:
            time.sleep(1)
    cluster.request("DELETE", "/api/v1/nodes/node-1")
    assert refused(cluster, before) == []
    assert deprecated(cluster, before) == []
    assert "forbidden" not in log.read_text().lower()
    wait_for(lambda: not unused(cluster, role, before), f"the use of {unused(cluster, role, before)}")
    # In the release's namespace it has more rights: to read its authority and backups, and to renew its Lease.
    in_release = {
        ("", "secrets", "get"), ("embereye.dev", "fleetbackups", "list"),
        *(right for right in used(cluster, before) if right[1] == "leases"),
    }  # fmt: skip
    assert used(cluster, before) - in_release <= granted(role)
    leases = {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
    assert {right for right in used(cluster, before) if right[1] == "leases"} == leases


def refused(cluster: ApiServer, since: int) -> list[Any]:
    """Return the operator's forbidden requests."""
    answers = cluster.audit()[since:]
    return [entry for entry in answers if entry.get("responseStatus", {}).get("code") in {401, 403}]


def deprecated(cluster: ApiServer, since: int) -> list[Any]:
    """Return the operator's requests for deprecated APIs."""
    return [entry for entry in cluster.audit()[since:] if "k8s.io/deprecated" in entry.get("annotations", {})]


def unused(cluster: ApiServer, role: Any, since: int) -> set[Right]:
    """Return the role's rights that nothing has used yet."""
    # Needed by the admission of owner references, not by a request.
    implied = {("embereye.dev", f"{plural}/finalizers", "update") for plural in ("sensorfleets", "camerafleets")}
    return granted(role) - implied - used(cluster, since)


@pytest.fixture
def cordoned(cluster: ApiServer) -> Iterator[str]:
    """A node that is being drained."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}, "spec": {"unschedulable": True}}
    cluster.request("POST", "/api/v1/nodes", node)
    yield "node-2"
    cluster.request("DELETE", "/api/v1/nodes/node-2")


@pytest.fixture
def home(cluster: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Bind the chart's default rights, for a release in the namespace."""
    monkeypatch.setenv("EMBEREYE_ROLE", "embereye-operator-embereye")
    monkeypatch.setenv("EMBEREYE_HUB", f"embereye-hub-control.{namespace}.svc:50053")
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/embereye-operator")
    monkeypatch.setenv("EMBEREYE_WATCH_NODES", "true")
    rights = operators_rights()
    for manifest in rights:
        if manifest["metadata"].get("namespace") == NAMESPACE:
            manifest["metadata"]["namespace"] = namespace
        create(cluster, manifest)
    yield rights
    for manifest in rights:
        cluster.request("DELETE", path_of(manifest))


def test_the_rights_in_one_namespace_suffice_for_it_and_for_leaving_nodes(
    cluster: ApiServer, namespace: str, home: list[Any], cordoned: str, tmp_path: Path
) -> None:
    before, log = len(cluster.audit()), tmp_path / "log"

    def asked(resource: str, verb: str) -> list[Any]:
        entries = [entry for entry in cluster.audit()[before:] if entry["verb"] == verb]
        return [entry for entry in entries if entry.get("objectRef", {}).get("resource") == resource]

    with operator(cluster, log, namespace, kubeconfig=cluster.operator_kubeconfig):
        fleet = create(cluster, sensor_fleet(namespace))
        wait_for_children(cluster, namespace, names(1))
        has_status(cluster, fleet)
        wait_for(lambda: asked("pods", "list"), f"a list of the pods on {cordoned}")
        assert asked("nodes", "list")
        assert {entry["objectRef"].get("namespace") for entry in asked("pods", "list")} == {namespace}
    assert refused(cluster, before) == []
    assert deprecated(cluster, before) == []
    assert "forbidden" not in log.read_text().lower()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("path", "verb"),
    [
        ("/api/v1/namespaces/default/secrets", "GET"), ("/api/v1/secrets", "GET"),
        ("/api/v1/namespaces/default/pods", "GET"),
        ("/apis/embereye.dev/v1alpha1/sensorfleets", "GET"), ("/apis/apps/v1/namespaces/default/deployments", "GET"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "GET"), ("/api/v1/nodes/node-1", "DELETE"),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "GET"),
    ],
)  # fmt: skip
def test_by_default_the_operator_has_no_rights_in_other_namespaces(cluster: ApiServer, path: str, verb: str) -> None:
    with pytest.raises(ApiError, match="forbidden"):
        cluster.request(verb, path, token=OPERATOR_TOKEN)


def test_by_default_heartbeats_of_nodes_are_readable(cluster: ApiServer, home: list[Any]) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/no-such-node"
    with pytest.raises(ApiError) as refused:
        cluster.request("GET", lease, token=OPERATOR_TOKEN)
    assert refused.value.code == 404


def test_the_rights_in_two_namespaces_suffice_even_to_take_over_a_fleet(
    cluster: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{namespace}-b"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    for manifest in operators_rights(
        "--set", f"operator.namespaces={{{namespace},{other}}}", "--set", "operator.nodes=false"
    ):
        if manifest["metadata"].get("namespace") == NAMESPACE:
            manifest["metadata"]["namespace"] = namespace  # the release's namespace in this test
        create(cluster, manifest)
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/embereye-operator")
    before, log = len(cluster.audit()), tmp_path / "log"
    owned = create(cluster, sensor_fleet(namespace))
    cluster.merge(f"{path_of(owned)}/status", {"status": {"operator": {"name": f"{other}/another"}}})
    with operator(cluster, log, f"{namespace},{other}", kubeconfig=cluster.operator_kubeconfig):
        create(cluster, sensor_fleet(other))
        wait_for_children(cluster, other, names(1))
        wait_for(lambda: "is left alone" in log.read_text(), "a look at the other's Lease")
        given = {"metadata": {"annotations": {"embereye.dev/operator": f"{namespace}/embereye-operator"}}}
        cluster.merge(path_of(owned), given)
        wait_for_children(cluster, namespace, names(1))
    assert refused(cluster, before) == []
    assert deprecated(cluster, before) == []
    assert "forbidden" not in log.read_text().lower()


def test_without_the_role_the_operator_has_no_rights(cluster: ApiServer, namespace: str) -> None:
    with pytest.raises(ApiError, match="forbidden") as refused:
        cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps", token=OPERATOR_TOKEN)
    assert refused.value.code == 403


def rights_of(role: Any) -> set[Right]:
    """Return the rights that the operator checks, without those on kinds of other projects and by name."""
    return {
        (group, resource, verb)
        for group, resource, verb in granted({"rules": [rule for rule in role["rules"] if "resourceNames" not in rule]})
        if (group, resource) in {(needed[0], needed[1]) for needed in NEEDED}
    }


def test_the_checked_rights_are_those_of_the_chart(role: Any) -> None:
    assert rights_of(role) == {(group, resource, verb) for group, resource, verbs in NEEDED for verb in verbs}
    assert missing_rights(role["rules"]) == []


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("embereye.dev", "sensorfleets", "watch"),
        ("apps", "deployments", "list"),
        ("networking.k8s.io", "networkpolicies", "list"),
        ("", "configmaps", "get"),
        ("embereye.dev", "sensorfleets/status", "patch"),
    ],
)
def test_a_missing_right_is_named(role: Any, group: str, resource: str, verb: str) -> None:
    rules = [
        {**rule, "verbs": [name for name in rule["verbs"] if name != verb]}
        if group in rule["apiGroups"] and resource in rule["resources"]
        else rule
        for rule in role["rules"]
    ]
    assert f"{verb} {resource}" in missing_rights(rules)


@pytest.mark.slow
def test_a_right_taken_away_becomes_a_condition_until_it_returns(
    cluster: ApiServer, namespace: str, role: Any, tmp_path: Path
) -> None:
    def degraded() -> str:
        conditions = has_status(cluster, fleet).get("conditions") or ()
        return next((entry["message"] for entry in conditions if entry["reason"] == "RightsMissing"), "")

    def set_verbs(verbs: list[str]) -> None:
        rules = [
            {**rule, "verbs": verbs} if rule["resources"] == ["networkpolicies"] else rule for rule in role["rules"]
        ]
        cluster.merge(path_of(role), {"rules": rules})

    fleet = create(cluster, sensor_fleet(namespace))
    with operator(cluster, tmp_path / "log", kubeconfig=cluster.operator_kubeconfig):
        wait_for(lambda: has_status(cluster, fleet).get("conditions"), "a status", 60)
        assert not degraded()
        set_verbs(["create", "patch", "delete"])
        wait_for(lambda: "list networkpolicies" in degraded(), "a condition that names the right", 60)
        set_verbs(["list", "create", "patch", "delete"])
        wait_for(lambda: not degraded(), "the condition to end", 60)


async def stale(cluster: ApiServer, fleet: Any) -> str:
    """Return why commands doubt the fleet's status."""
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    refused, problems = await refused_statuses(client, [fleet["metadata"]["namespace"]])
    await client.close()
    assert problems == []
    return why_stale(parse_fleet(cluster.get(path_of(fleet))), {}, time.time_ns(), refused)


def test_without_the_right_to_write_statuses_an_event_and_commands_say_so(
    cluster: ApiServer, namespace: str, role: Any, tmp_path: Path
) -> None:
    fleet, log = create(cluster, sensor_fleet(namespace)), tmp_path / "log"
    with operator(cluster, log, kubeconfig=cluster.operator_kubeconfig):
        wait_for(lambda: has_status(cluster, fleet).get("conditions"), "a status", 60)
        less = [
            {**rule, "verbs": ["get"]} if "sensorfleets/status" in rule["resources"] else rule for rule in role["rules"]
        ]
        cluster.merge(path_of(role), {"rules": less})
        wait_for(lambda: "the operator has no right to" in log.read_text(), "the missing right in the log", 60)
        cluster.merge(path_of(fleet), {"spec": {"shards": 2}})
        wait_for(lambda: "the status cannot be written" in asyncio.run(stale(cluster, fleet)), "doubt", 90)
        # Fleets of other tests have the same problem.
        assert log.read_text().count(f"{namespace}/sensors/hall: StatusNotWritten:") == 1
        assert "Traceback" not in log.read_text()
        cluster.merge(path_of(role), {"rules": role["rules"]})
        wait_for(lambda: not asyncio.run(stale(cluster, fleet)), "no doubt any more", 90)
