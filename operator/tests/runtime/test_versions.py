"""Two versions of the custom resources on a real API server: conversion loses nothing, either may be stored."""

import copy
import json
import os
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.cluster.chart import helm
from harness.eventually import wait_for
from harness.need import HELM, KUBECTL, program
from harness.servers.apiserver import ApiServer, install_crds, run_api_server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES, parse_fleet
from embereye_operator.api.shared import GROUP, VERSIONS
from embereye_operator.runtime.kubernetes.world import owners_of

from ..api.test_agreement import VALID

pytestmark = pytest.mark.apiserver
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
text = st.text(string.ascii_letters + string.digits + " .äß✓", max_size=30)
names = st.text(string.ascii_lowercase, min_size=1, max_size=20)
statuses = st.fixed_dictionaries(
    {"shards": st.integers(0, 64), "placementEpoch": st.integers(0, 2**53), "selector": text}
)


def path(version: str, resource: str, namespace: str, name: str = "") -> str:
    plural = FLEET_TYPES[resource].plural
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def said(manifest: Any) -> Any:
    """Return an object's content without its version, and without counters that change at each write."""
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key in {"name", "namespace", "uid", "labels", "annotations", "generation"}
    }
    return {"spec": manifest["spec"], "status": manifest.get("status"), "metadata": metadata}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.sampled_from(VALID), versions=st.permutations(VERSIONS),
    annotations=st.dictionaries(names, text, max_size=3), labels=st.dictionaries(names, names, max_size=3),
    status=statuses,
)  # fmt: skip
def test_an_object_written_in_one_version_is_readable_in_the_other(
    cluster: ApiServer, namespace: str, spec: Any, versions: Any, annotations: Any, labels: Any, status: Any
) -> None:
    (resource, declared), (first, second) = spec, versions
    metadata = {"name": "hall", "namespace": namespace, "labels": labels, "annotations": annotations}
    manifest = {"apiVersion": f"{GROUP}/{first}", "kind": resource, "metadata": metadata, "spec": declared}
    written = cluster.request("POST", path(first, resource, namespace), manifest)
    try:
        cluster.merge(f"{path(first, resource, namespace, 'hall')}/status", {"status": status})
        here = cluster.get(path(first, resource, namespace, "hall"))
        there = cluster.get(path(second, resource, namespace, "hall"))
        assert said(there) == said(here)
        assert there["status"] == status
        # And back: reading and writing in the other version changes nothing.
        cluster.request("PUT", path(second, resource, namespace, "hall"), there)
        back = cluster.get(path(first, resource, namespace, "hall"))
        assert said(back) == said(here)
        assert parse_fleet(there, strict=False).spec == parse_fleet(here, strict=False).spec
        assert written["apiVersion"] == f"{GROUP}/{first}"
    finally:
        cluster.request("DELETE", path(first, resource, namespace, "hall"))


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[ApiServer]:
    with run_api_server() as running:
        install_crds(running, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield running


def plugin(cluster: ApiServer) -> str:
    program = Path(sys.executable).parent / "kubectl-embereye"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([program, "migrate-storage"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_version_can_be_removed_once_nothing_is_stored_in_it(own_cluster: ApiServer) -> None:
    assert "sensorfleets.embereye.dev: everything is stored as v1alpha1" in plugin(own_cluster)
    old, new = VERSIONS
    for number in range(3):
        metadata = {"name": f"hall-{number}", "namespace": "default"}
        manifest = {"apiVersion": f"{GROUP}/{old}", "kind": "SensorFleet", "metadata": metadata, "spec": {"shards": 3}}
        own_cluster.request("POST", path(old, "SensorFleet", "default"), manifest)
    before = [own_cluster.get(path(new, "SensorFleet", "default", f"hall-{number}")) for number in range(3)]

    definition = f"{CRDS}/sensorfleets.{GROUP}"
    versions = copy.deepcopy(own_cluster.get(definition)["spec"]["versions"])
    for version in versions:
        version["storage"] = version["name"] == new
    own_cluster.merge(definition, {"spec": {"versions": versions}})
    assert own_cluster.get(definition)["status"]["storedVersions"] == [old, new]
    assert "3 fleets are stored as v1beta1 now, none as v1alpha1" in plugin(own_cluster)
    assert own_cluster.get(definition)["status"]["storedVersions"] == [new]

    # The server refuses this while any object is stored in it.
    own_cluster.merge(definition, {"spec": {"versions": [version for version in versions if version["name"] == new]}})
    after = [own_cluster.get(path(new, "SensorFleet", "default", f"hall-{number}")) for number in range(3)]
    assert [said(fleet) for fleet in after] == [said(fleet) for fleet in before]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_owner_is_recognised_in_both_versions(version: str) -> None:
    owner = {"apiVersion": f"{GROUP}/{version}", "kind": "SensorFleet", "name": "hall", "uid": "0f"}
    metadata = {"name": "hall-sensors-0", "namespace": "default", "ownerReferences": [owner]}
    assert list(owners_of({"kind": "Service", "metadata": metadata})) == [("SensorFleet", "default", "hall")]


# Each step writes a fleet in a version and with some fields. Others get their defaults, which are false or empty.
STEPS: list[tuple[str, dict[str, Any]]] = [
    (VERSIONS[0], {"shards": 3, "paused": True}),
    (VERSIONS[1], {"shards": 2}),
    (VERSIONS[0], {"shards": 4, "hub": "north"}),
]


def assert_written(cluster: ApiServer, namespace: str, spec: dict[str, Any]) -> str:
    """Check the fields of a step in both versions, and return the fleet's uid."""
    (fleet, other) = (cluster.get(path(version, "SensorFleet", namespace, "hall")) for version in VERSIONS)
    assert said(fleet) == said(other)
    written = {field: value for field in ("shards", "paused", "hub") if (value := fleet["spec"].get(field))}
    assert written == spec
    return str(fleet["metadata"]["uid"])


@pytest.mark.needs(KUBECTL)
@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["apply", "apply --server-side"])
def test_a_manifest_changes_its_version_and_back_without_replacing_the_fleet(
    cluster: ApiServer, namespace: str, tmp_path: Path, how: tuple[str, ...]
) -> None:
    uids = set()
    for version, spec in STEPS:
        metadata = {"name": "hall", "namespace": namespace}
        manifest = {"apiVersion": f"{GROUP}/{version}", "kind": "SensorFleet", "metadata": metadata, "spec": spec}
        command = [str(program("kubectl")), "--kubeconfig", str(cluster.kubeconfig), "--cache-dir", str(tmp_path)]
        done = subprocess.run(
            [*command, "apply", *how, "--filename", "-"],
            input=json.dumps(manifest), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        uids.add(assert_written(cluster, namespace, spec))
    assert len(uids) == 1


@pytest.mark.needs(HELM)
def test_a_chart_of_fleets_changes_its_version_and_back_without_replacing_the_fleet(
    cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: fleets, version: 1.0.0}")
    place = ("fleets", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace)
    uids = set()
    for version, spec in STEPS:
        manifest = {"apiVersion": f"{GROUP}/{version}", "kind": "SensorFleet", "metadata": {"name": "hall"}}
        (tmp_path / "templates" / "hall.yaml").write_text(json.dumps({**manifest, "spec": spec}))
        done = helm("upgrade", "--install", *place, str(tmp_path))
        assert done.returncode == 0, done.stderr
        uids.add(assert_written(cluster, namespace, spec))
    done = helm("rollback", "fleets", "2", *place[1:])
    assert done.returncode == 0, done.stderr
    uids.add(assert_written(cluster, namespace, STEPS[1][1]))
    assert len(uids) == 1


def test_the_definition_of_a_chart_that_knows_only_the_first_version_can_return(own_cluster: ApiServer) -> None:
    old, new = VERSIONS
    device = {"id": "c-1", "zone": "hall", "source": "push"}
    manifest = {"apiVersion": f"{GROUP}/{new}", "kind": "CameraFleet", "metadata": {"name": "yard"}}
    own_cluster.request("POST", path(new, "CameraFleet", "default"), {**manifest, "spec": {"cameras": [device]}})
    before = own_cluster.get(path(old, "CameraFleet", "default", "yard"))

    definition = f"{CRDS}/camerafleets.{GROUP}"
    versions = own_cluster.get(definition)["spec"]["versions"]
    own_cluster.merge(definition, {"spec": {"versions": [entry for entry in versions if entry["name"] == old]}})
    wait_for(lambda: own_cluster.get(path(new, "CameraFleet", "default")) is None, f"an end of {new}")
    own_cluster.merge(path(old, "CameraFleet", "default", "yard"), {"spec": {"shards": 2}})
    own_cluster.merge(definition, {"spec": {"versions": versions}})
    after = wait_for(lambda: own_cluster.get(path(new, "CameraFleet", "default", "yard")), f"{new} again")
    assert after["spec"] == {**before["spec"], "shards": 2}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
