"""Drained or lost nodes on a real API server: nodes, pods and leases are only objects, and shards are simulated."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of

from embereye.process.addresses import free_ports
from embereye_operator.decide.cluster.nodes import HEARTBEATS, STALE

from .test_operator import answers, create, sensor_fleet

pytestmark = pytest.mark.apiserver
SHARD = "hall-sensors-0"
ROLE = "embereye-test-operator"
HUB = "embereye-hub"


@dataclass
class Place:
    """A fleet of one shard whose pod is on one node, together with a hub's pod."""

    cluster: ApiServer
    namespace: str
    node: str
    fleet: str
    dead: Path  # shards that do not answer, each with its namespace
    silent: threading.Event  # set: the kubelet is lost

    def roll(self) -> str:
        """Return the uid of the pod that the shard's current one should replace."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{SHARD}"
        template = (self.cluster.get(path) or {}).get("spec", {}).get("template", {"metadata": {}})
        return str((template["metadata"].get("annotations") or {}).get("embereye.dev/replaces", ""))

    def budget(self) -> Any:
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets/hall-sensors"
        return self.cluster.get(path)

    def hub(self) -> Any:
        return self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods/hub")

    def condition(self, type_: str) -> Any:
        conditions = (self.cluster.get(self.fleet).get("status") or {}).get("conditions") or []
        return next((entry for entry in conditions if entry["type"] == type_), {})


def beat(cluster: ApiServer, node: str, silent: threading.Event) -> None:
    """Renew the lease of a node's kubelet every second, as long as it is not `silent`."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HEARTBEATS}/leases/{node}"
    while not silent.wait(1):
        cluster.merge(path, {"spec": {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}})


def pod_of(namespace: str, name: str, node: str, labels: dict[str, str]) -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "embereye:test"}]}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def place(cluster: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Place]:
    node, (port,), dead = f"node-{namespace}", free_ports(1), tmp_path / "dead"
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HEARTBEATS}/leases"
    wait_for(lambda: cluster.get(f"/api/v1/namespaces/{HEARTBEATS}"), HEARTBEATS)
    cluster.request("POST", leases, {"metadata": {"name": node}, "spec": {"holderIdentity": node}})
    role = {"metadata": {"name": ROLE}, "rules": []}
    cluster.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    selector = {"component": "hub"}
    service = {"metadata": {"name": HUB}, "spec": {"selector": selector, "ports": [{"port": 50052}]}}
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod_of(namespace, "hub", node, selector))
    fleet = path_of(create(cluster, sensor_fleet(namespace, autoscaling={"mode": "none"})))
    for other in (f"{name}-{namespace}" for name in "abcdef"):  # fleets of the same name, which stay well
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
        create(cluster, sensor_fleet(other))
    command = [sys.executable, "-m", "embereye_bench.operator.simulated", "--image=test",
               f"--hub={HUB}.{namespace}.svc:50052", f"--role={ROLE}", f"--health-port={port}"]  # fmt: skip
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "EMBEREYE_DEAD_SHARDS": str(dead)}
    with (tmp_path / "log").open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    silent = threading.Event()
    kubelet = threading.Thread(target=beat, args=(cluster, node, silent))
    kubelet.start()
    try:
        wait_for(lambda: answers(port), "an operator that answers")
        deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{SHARD}"
        template = wait_for(lambda: cluster.get(deployment), SHARD)["spec"]["template"]
        pod = pod_of(namespace, SHARD, node, template["metadata"]["labels"])
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        place_ = Place(cluster, namespace, node, fleet, dead, silent)
        wait_for(lambda: place_.condition("Ready").get("status") == "True", "a fleet that is ready")
        yield place_
    finally:
        silent.set()
        kubelet.join()
        process.kill()
        process.wait(10)
        print((tmp_path / "log").read_text())  # shown if the test failed
        for path in (f"/api/v1/nodes/{node}", f"{leases}/{node}"):
            cluster.request("DELETE", path)
        if cluster.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}"):
            cluster.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}")


def uid(place: Place) -> str:
    return str(place.cluster.get(f"/api/v1/namespaces/{place.namespace}/pods/{SHARD}")["metadata"]["uid"])


@pytest.mark.parametrize("paused", [False, True])
def test_a_tainted_node_is_left_by_a_roll(place: Place, *, paused: bool) -> None:
    place.cluster.merge(place.fleet, {"spec": {"paused": paused}})
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    place.cluster.merge(f"/api/v1/nodes/{place.node}", {"spec": {"taints": [taint]}})
    wait_for(lambda: place.roll() == uid(place), "a roll")
    if paused:
        place.cluster.merge(place.fleet, {"spec": {"paused": False}})
        time.sleep(5)
        assert place.roll() == uid(place), "nor a second roll when the fleet continues"


def test_a_shard_and_the_hub_leave_a_node_without_a_heartbeat(place: Place) -> None:
    time.sleep(STALE + 5)
    assert "deletionTimestamp" not in place.hub()["metadata"], "the hub does not answer, but its node lives"
    place.silent.set()
    place.dead.write_text(f"{place.namespace}/{SHARD}")
    wait_for(lambda: place.roll() == uid(place), "a roll", STALE + 90)
    wait_for(lambda: "deletionTimestamp" in place.hub()["metadata"], "the hub's pod to be deleted", STALE + 90)
    wait_for(lambda: place.condition("Degraded")["reason"] == "NodeLost", "a fleet that says why")


def test_a_shard_leaves_a_node_that_hub_and_operator_miss_before_its_heartbeat_ends(place: Place) -> None:
    pod = f"/api/v1/namespaces/{place.namespace}/pods/{SHARD}"
    place.cluster.merge(f"{pod}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    place.dead.write_text(f"{place.namespace}/{SHARD}")
    wait_for(lambda: place.roll() == uid(place), "a roll")
    wait_for(lambda: place.condition("Degraded")["reason"] == "NodeLost", "a fleet that says why")
    (condition,) = place.cluster.get(pod)["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NodeLost"), "Services send nothing there any more"
    assert not place.silent.is_set()


def test_the_budget_belongs_to_the_operators_role(place: Place) -> None:
    if not place.cluster.collects_garbage:
        pytest.skip("no kube-controller-manager collects garbage here: KUBEBUILDER_ASSETS has none")
    assert place.budget()["spec"]["maxUnavailable"] == 0
    (owner,) = place.budget()["metadata"]["ownerReferences"]
    assert owner["kind"] == "Job"
    place.cluster.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}")
    jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs/{owner['name']}"
    wait_for(lambda: not place.cluster.get(jobs), "the Job to go", 120)
    # Without that role the operator, which has all rights here, falls back to the fleet as owner.
    wait_for(lambda: owner_of(place.budget()) in ("", "SensorFleet"), "the budget to go", 120)


def owner_of(manifest: Any) -> str:
    return str(manifest["metadata"]["ownerReferences"][0]["kind"]) if manifest else ""


def test_the_budget_belongs_to_its_fleet(place: Place) -> None:
    wait_for(place.budget, "a budget")
    place.cluster.request("DELETE", place.fleet)
    wait_for(lambda: not place.budget(), "no budget", 120)
