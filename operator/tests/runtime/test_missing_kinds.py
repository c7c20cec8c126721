"""CustomResourceDefinitions that go and come back, and a namespace that is deleted and made again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, install_crds, path_of, run_api_server
from lightkube import AsyncClient, KubeConfig

from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.errors import KindMissingError
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, build_runtime

from ..conftest import delete_crds
from ..processes.test_operator import children, create, has_status, operator, sensor_fleet

pytestmark = pytest.mark.apiserver
NAME = "CustomResourceDefinition sensorfleets.embereye.dev, camerafleets.embereye.dev is missing"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    """A server of this module: after kinds were removed, its garbage collector needs a while to learn them again."""
    with run_api_server() as running:
        install_crds(running, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield running


@pytest.mark.slow
def test_a_namespace_that_is_made_again_is_served_like_a_new_one(
    cluster: ApiServer, namespace: str, tmp_path: Path
) -> None:
    log, path = tmp_path / "log", f"/api/v1/namespaces/{namespace}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}

    def gone() -> bool:
        stored = cluster.get(path)
        if stored and stored["spec"].get("finalizers"):  # without its controller nobody empties the namespace
            cluster.request("DELETE", path_of(sensor_fleet(namespace)))
            wait_for(lambda: not children(cluster, namespace), "children to be collected", 60)
            cluster.request("PUT", f"{path}/finalize", {**stored, "spec": {"finalizers": []}})
        return cluster.get(path) is None

    with operator(cluster, log):
        has_status(cluster, create(cluster, sensor_fleet(namespace)))
        for _ in range(2):
            cluster.request("DELETE", path)
            wait_for(gone, "the namespace to go", 60)
            cluster.request("POST", "/api/v1/namespaces", body)
            fleet = create(cluster, sensor_fleet(namespace))
            assert has_status(cluster, fleet)["conditions"]
            wait_for(
                lambda: ("Deployment", "hall-sensors-0") in children(cluster, namespace), "a shard in the namespace", 60
            )
            events = f"/api/v1/namespaces/{namespace}/events"
            wait_for(lambda path=events: cluster.get(path)["items"], "an Event", 60)
    assert "Traceback" not in log.read_text()


@pytest.fixture
def removed(cluster: ApiServer) -> Iterator[list[Any]]:
    """Remove the kinds of fleets in a test, which calls `delete_crds` itself; they exist again after it."""
    crds = [build_crd(fleet) for fleet in FLEET_TYPES.values()]
    yield crds
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    missing = [crd for crd in crds if cluster.get(f"{path}/{crd['metadata']['name']}") is None]
    install_crds(cluster, missing)


async def test_removed_kinds_are_named_and_their_fleets_not_taken_for_deleted(
    cluster: ApiServer, namespace: str, removed: list[Any]
) -> None:
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    runtime = build_runtime(client, KubernetesOptions(hub="127.0.0.1:9", namespaces=[namespace]))
    fleet = create(cluster, sensor_fleet(namespace))
    cluster.merge(path_of(fleet), {"metadata": {"finalizers": ["example.org/wait"]}})
    await runtime.resync()
    await runtime.world.check_kinds()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sensorfleets.embereye.dev"
    cluster.request("DELETE", path)  # it waits for the fleet
    wait_for(lambda: "Terminating" in str(cluster.get(path)), "the end of the kind to begin")

    async def missing() -> str:
        try:
            await runtime.world.check_kinds()
        except KindMissingError as error:
            return str(error)
        return ""

    while not (why := await missing()):
        continue
    assert why.startswith("CustomResourceDefinition sensorfleets.embereye.dev is missing")
    cluster.merge(path_of(fleet), {"metadata": {"finalizers": None}})
    delete_crds(cluster, removed)
    with pytest.raises(KindMissingError, match=r"helm upgrade with crds\.enabled=true"):
        await runtime.resync()
    assert (await missing()).startswith(NAME)
    install_crds(cluster, removed)
    await runtime.resync()
    await runtime.world.check_kinds()
    await client.close()


@pytest.mark.slow
def test_an_operator_names_removed_kinds_and_continues_when_they_are_back(
    cluster: ApiServer, namespace: str, tmp_path: Path, removed: list[Any]
) -> None:
    log = tmp_path / "log"
    with operator(cluster, log) as (process, _):
        has_status(cluster, create(cluster, sensor_fleet(namespace)))
        delete_crds(cluster, removed)
        assert process.wait(120) == 1
    with operator(cluster, log):  # as Kubernetes restarts it
        wait_for(lambda: "is missing, and with it all its fleets" in log.read_text(), "a line about the kinds", 60)
        install_crds(cluster, removed)
        has_status(cluster, create(cluster, sensor_fleet(namespace)))
    text = log.read_text()
    assert "Traceback" not in text
    assert text.count("a watch has ended, and the operator with it") == 1
    assert 1 <= text.count("cannot list the cluster's objects") <= 2, "the second kind comes back later"
    assert "the cluster's objects can be listed again" in text
