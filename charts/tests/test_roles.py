"""Rights on fleets by Kubernetes' roles, on a real API server whose controllers aggregate roles."""

import subprocess

import pytest
from harness.cluster.chart import render
from harness.eventually import wait_for
from harness.need import CONTROLLER_MANAGER, KUBECTL, program
from harness.servers.apiserver import ApiServer

pytestmark = [pytest.mark.apiserver, pytest.mark.needs(CONTROLLER_MANAGER, KUBECTL)]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
# The rights of each of Kubernetes' roles on fleets in its namespace.
RIGHTS = {
    "view": {"list": "yes", "create": "no", "delete": "no"},
    "edit": {"list": "yes", "create": "yes", "delete": "yes"},
    "admin": {"list": "yes", "create": "yes", "delete": "yes"},
}


def answer(cluster: ApiServer, who: str, verb: str, resource: str, namespace: str) -> str:
    """Run `kubectl auth can-i`; empty before the server has created the roles that allow the question."""
    command = [str(program("kubectl")), "--kubeconfig", str(cluster.kubeconfig), "auth", "can-i", verb,
               f"{resource}.embereye.dev", "--as", who, "--namespace", namespace]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


@pytest.mark.parametrize("role", RIGHTS)
def test_kubernetes_roles_include_fleets(cluster: ApiServer, namespace: str, role: str) -> None:
    for manifest in render():
        if manifest["kind"] == "ClusterRole" and "-fleets-" in manifest["metadata"]["name"]:
            path = f"{RBAC}/clusterroles/{manifest['metadata']['name']}?fieldManager=helm"
            cluster.request("PATCH", path, manifest, "application/apply-patch+yaml")
    who = f"person-with-role-{role}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "people", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}],
    }  # fmt: skip
    cluster.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    for verb in ("list", "create"):
        wait_for(lambda verb=verb: answer(cluster, who, verb, "camerafleets", namespace) == RIGHTS[role][verb],
                 f"{role} is aggregated")  # fmt: skip
    for resource in ("sensorfleets", "camerafleets", "fleetbackups"):
        assert {verb: answer(cluster, who, verb, resource, namespace) for verb in RIGHTS[role]} == RIGHTS[role]
        assert answer(cluster, who, "list", resource, "default") == "no"


def test_without_aggregation_there_are_no_such_roles() -> None:
    roles = [
        manifest["metadata"]["name"]
        for manifest in render("--set", "rbac.aggregate=false")
        if manifest["kind"] == "ClusterRole"
    ]
    assert roles == ["embereye-operator-embereye-nodes"]
