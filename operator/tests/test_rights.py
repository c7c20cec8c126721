"""The operator with exactly the rights that the chart gives it, on an API server that enforces them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.apiserver import OPERATOR_TOKEN, ApiError, ApiServer, path_of, wait_for
from harness.chart import render

from embereye_operator.manifests import LABEL_FLEET, LABEL_MANAGED_BY, MANAGED_BY

from .test_operator import create, has_status, names, operator, sensor_fleet, settled

pytestmark = pytest.mark.apiserver
Right = tuple[str, str, str]  # group, resource, verb


@pytest.fixture
def role(cluster: ApiServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The chart's role for the whole cluster, bound to the operator for one test."""
    rights = [manifest for manifest in render() if "rbac" in manifest["apiVersion"]]
    for manifest in rights:
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


def used(cluster: ApiServer) -> set[Right]:
    """What the operator asked for, as the API server's audit log has it."""
    rights = set()
    for entry in cluster.audit():
        reference = entry.get("objectRef", {})
        if "resource" not in reference:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        group, verb = reference.get("apiGroup", ""), entry["verb"]
        rights.add((group, resource, verb))
        if verb == "patch" and entry.get("responseStatus", {}).get("code") == 201:
            rights.add((group, resource, "create"))  # applying what is not there yet asks for both
    return rights


def stray(kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What an older operator may have left: a child of the fleet that is not wanted any more."""
    version = {"PodDisruptionBudget": "policy/v1"}.get(kind, "v1")
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_FLEET: "sensors.hall"}
    metadata = {"name": "hall-stray", "namespace": namespace, "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **spec}


def test_the_operator_needs_every_right_that_the_chart_gives_and_no_other(
    cluster: ApiServer, namespace: str, role: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with operator(cluster, log, kubeconfig=cluster.operator_kubeconfig):
        cameras = {
            "apiVersion": "embereye.dev/v1alpha1",
            "kind": "CameraFleet",
            "metadata": {"name": "yard", "namespace": namespace},
            "spec": {"cameras": [{"id": "c-1", "zone": "gate", "source": "push"}]},
        }
        fleet = create(cluster, sensor_fleet(namespace, shards=2, sensorsFrom=[{"configMapRef": {"name": "more"}}]))
        create(cluster, cameras)
        settled(cluster, namespace, names(2) | names(1, "cameras", "yard"))
        has_status(cluster, fleet)
        has_status(cluster, cameras)

        pods = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "maxUnavailable": 1}}
        create(cluster, stray("PodDisruptionBudget", namespace, pods))
        create(cluster, stray("ConfigMap", namespace, {"data": {}}))
        cluster.merge(path_of(fleet), {"spec": {"shards": 1}})
        settled(cluster, namespace, names(1) | names(1, "cameras", "yard"))
        events = {"kind": "Event", "metadata": {"namespace": namespace}}
        wait_for(lambda: cluster.get(path_of(events, name=False))["items"], "an event")

    refused = [entry for entry in cluster.audit() if entry.get("responseStatus", {}).get("code") in {401, 403}]
    assert refused == []
    assert "operator ready" in log.read_text()
    assert "forbidden" not in log.read_text().lower()
    # Asked of the role by the admission of owner references, not by a request.
    implied = {("embereye.dev", f"{plural}/finalizers", "update") for plural in ("sensorfleets", "camerafleets")}
    assert used(cluster) | implied == granted(role)


def test_the_rights_in_one_namespace_suffice_for_it(cluster: ApiServer, namespace: str, tmp_path: Path) -> None:
    for manifest in render("--set", "operator.namespaced=true"):
        if "rbac" in manifest["apiVersion"]:
            manifest["metadata"]["namespace"] = namespace
            create(cluster, manifest)
    before, log = len(cluster.audit()), tmp_path / "log"
    with operator(cluster, log, namespace, kubeconfig=cluster.operator_kubeconfig):
        fleet = create(cluster, sensor_fleet(namespace))
        settled(cluster, namespace, names(1))
        has_status(cluster, fleet)
    assert [e for e in cluster.audit()[before:] if e.get("responseStatus", {}).get("code") in {401, 403}] == []
    assert "forbidden" not in log.read_text().lower()


def test_without_the_role_the_operator_may_do_nothing(cluster: ApiServer, namespace: str) -> None:
    with pytest.raises(ApiError, match="forbidden") as refused:
        cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps", token=OPERATOR_TOKEN)
    assert refused.value.code == 403
