"""Foreign objects with the names of a fleet's children are left unchanged, and reported."""

import asyncio
import time
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.need import CONTROLLER_MANAGER
from harness.servers.apiserver import ApiServer, path_of

from ..processes.test_operator import create, names, operator, sensor_fleet, wait_for_children
from .test_removal import Ground, ground  # noqa: F401 (a fixture)

pytestmark = pytest.mark.apiserver
PODS = {"selector": {"matchLabels": {"a": "b"}}}
CONTAINER = {"name": "a", "image": "busybox"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {**PODS, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}},
}
SERVICE = {"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"a": "b"}, "ports": [{"port": 1}]}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "theirs"}
NAMESAKES: dict[str, tuple[str, Any]] = {
    "Deployment": ("hall-sensors-0", DEPLOYMENT),
    "Service": ("hall-sensors-0", SERVICE),
    "Service of the fleet": ("hall-sensors", SERVICE),
    "ConfigMap": ("hall-sensors-placement", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"theirs": "1"}}),
    "PodDisruptionBudget": (
        "hall-sensors",
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {**PODS, "maxUnavailable": 1}},
    ),
    "NetworkPolicy": (
        "hall-sensors",
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}},
    ),
    "HorizontalPodAutoscaler": (
        "hall-sensors",
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3},
        },
    ),
    "ScaledObject": ("hall-sensors", {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {}}),
}


def collection(document: Any, namespace: str) -> str:
    """Return the API path of the collection: two kinds have an irregular plural."""
    path = path_of({**document, "metadata": {"namespace": namespace}}, name=False)
    return path.replace("networkpolicys", "networkpolicies")


def put(cluster: ApiServer, namespace: str, document: Any, metadata: Any) -> str:
    """Create the object and return its path."""
    path = collection(document, namespace)
    cluster.request("POST", path, {**document, "metadata": {"namespace": namespace, **metadata}})
    return f"{path}/{metadata['name']}"


async def degraded(ground: Ground) -> tuple[str, str]:  # noqa: F811
    status = (await asyncio.to_thread(ground.cluster.get, ground.fleet))["status"]
    (condition,) = [entry for entry in status["conditions"] if entry["type"] == "Degraded"]
    return condition.get("reason", ""), condition.get("message", "")


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(("name", "document"), NAMESAKES.values(), ids=NAMESAKES)
async def test_a_namesake_is_neither_changed_nor_deleted_and_is_reported(
    ground: Ground,  # noqa: F811
    name: str,
    document: Any,
) -> None:
    kind, cluster = document["kind"], ground.cluster
    path = put(cluster, ground.namespace, document, {"name": name, "labels": {"app": "theirs"}})
    before = cluster.get(path)
    mode = {"HorizontalPodAutoscaler": "hpa", "ScaledObject": "keda"}.get(kind, "embedded")
    await ground.declare(sensor_fleet(ground.namespace, autoscaling={"mode": mode}))
    assert not any(action.startswith("apply") for action in await ground.step())
    assert cluster.get(path) == before
    reason, message = await degraded(ground)
    assert reason == "NameTaken"
    assert f"{kind} {name} exists already" in message
    await ground.change({"autoscaling": {"mode": "none"}})  # an autoscaler is not wanted any more
    assert cluster.get(path) == before
    await ground.change({"autoscaling": {"mode": mode}})
    cluster.request("DELETE", path)
    await ground.run_until_complete()
    assert (await degraded(ground))[0] != "NameTaken"
    owner = cluster.get(path)["metadata"]["ownerReferences"][0]
    assert owner["uid"] == cluster.get(ground.fleet)["metadata"]["uid"]


@pytest.mark.parametrize("labelled", [False, True], ids=["unlabelled", "labelled as ours"])
async def test_an_object_of_another_owner_is_not_taken_despite_its_labels(
    ground: Ground,  # noqa: F811
    labelled: bool,
) -> None:
    owner = {"apiVersion": "embereye.dev/v1alpha1", "kind": "SensorFleet", "name": "hall", "uid": "of-an-earlier-one"}
    ours = {"app.kubernetes.io/managed-by": "embereye-operator", "embereye.dev/fleet": "sensors.hall"}
    metadata = {"name": "hall-sensors-0", "ownerReferences": [owner], "labels": ours if labelled else {}}
    cluster = ground.cluster
    controls = cluster.request  # the garbage collector may delete an ownerless object at once
    path = put(cluster, ground.namespace, SERVICE, metadata | {"finalizers": ["test.example/keep"]})
    before = cluster.get(path)["metadata"]["uid"]
    await ground.declare(sensor_fleet(ground.namespace))
    reason, message = await degraded(ground)
    assert reason == "NameTaken"
    assert "it belongs to SensorFleet hall" in message
    stored = cluster.get(path)["metadata"]
    assert (stored["uid"], stored["ownerReferences"]) == (before, [owner])
    controls("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


@pytest.mark.needs(CONTROLLER_MANAGER)
async def test_children_orphaned_by_a_deletion_are_adopted(ground: Ground) -> None:  # noqa: F811
    await ground.declare(sensor_fleet(ground.namespace))
    uids = {key: child["ownerReferences"][0]["uid"] for key, child in (await ground.children()).items()}
    cluster = ground.cluster
    cluster.request("DELETE", ground.fleet, {"propagationPolicy": "Orphan"})
    wait_for(lambda: cluster.get(ground.fleet) is None, "no fleet")
    await ground.declare(sensor_fleet(ground.namespace))
    after = {key: child["ownerReferences"][0]["uid"] for key, child in (await ground.children()).items()}
    assert set(after) == set(uids)
    assert set(after.values()) == {cluster.get(ground.fleet)["metadata"]["uid"]} != set(uids.values())


@pytest.mark.needs(CONTROLLER_MANAGER)
def test_a_fleet_that_is_being_deleted_is_quiet(cluster: ApiServer, namespace: str, tmp_path: Any) -> None:
    log = tmp_path / "log"
    with operator(cluster, log, namespace):
        fleet = path_of(create(cluster, sensor_fleet(namespace)))
        existing = wait_for_children(cluster, namespace, names(1))
        # A child with a finalizer delays the fleet's foreground deletion.
        budget = path_of({**existing["PodDisruptionBudget", "hall-sensors"], "kind": "PodDisruptionBudget"})
        cluster.merge(budget, {"metadata": {"finalizers": ["test.example/keep"]}})
        wait_for(lambda: (cluster.get(fleet) or {}).get("status"), "a status")
        time.sleep(1)
        cluster.request("DELETE", fleet, {"propagationPolicy": "Foreground"})
        left = {("PodDisruptionBudget", "hall-sensors")}
        wait_for_children(cluster, namespace, left)

        def status() -> Any:
            events = cluster.get(f"/api/v1/namespaces/{namespace}/events")["items"]
            ours = [event for event in events if event["involvedObject"]["kind"] == "SensorFleet"]
            return cluster.get(fleet)["metadata"]["resourceVersion"], len(ours), cluster.get(budget)

        before = status()
        assert before[2]["metadata"]["deletionTimestamp"]
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            wait_for_children(cluster, namespace, left)
            time.sleep(0.2)
        assert status() == before
        lines = log.read_text().splitlines()
        assert len([line for line in lines if "hall" in line and "gone" in line]) <= 1, "logged once"
        assert not any("Traceback" in line or " ERROR " in line for line in lines)
        cluster.merge(budget, {"metadata": {"finalizers": None}})
        wait_for(lambda: cluster.get(fleet) is None, "no fleet")
