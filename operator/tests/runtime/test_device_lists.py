"""ConfigMaps of users as lists of devices, on a real API server."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye_operator import controller as controller_module
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.controller import Controller
from embereye_operator.decide.cluster.watch_lag import LIMIT
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from ..fakes import SETTINGS
from ..processes.test_operator import create, operator, sensor_fleet

pytestmark = pytest.mark.apiserver


def config_map(namespace: str, name: str, devices: str = "[{id: c-1, zone: yard}]") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"list": devices}}


def from_map(namespace: str, name: str = "list") -> dict[str, Any]:
    fleet = sensor_fleet(namespace)
    fleet["spec"]["sensorsFrom"] = [{"configMapRef": {"name": name}}]
    return fleet


@pytest.fixture
async def runtime(cluster: ApiServer, namespace: str) -> AsyncIterator[KubernetesRuntime]:
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.kubeconfig)).get())
    created = build_runtime(client, KubernetesOptions(hub="127.0.0.1:9", namespaces=[namespace]))
    yield created
    await created.close()


async def test_an_unchanged_list_is_no_news(cluster: ApiServer, namespace: str, runtime: KubernetesRuntime) -> None:
    create(cluster, config_map(namespace, "list"))
    fleet = parse_fleet(create(cluster, from_map(namespace)))
    await runtime.resync()
    for _ in range(3):
        await runtime.world.versions(fleet)
        assert await runtime.cluster.config_maps(fleet) == {"list": {"list": "[{id: c-1, zone: yard}]"}}
        assert await runtime.resync() == []


async def test_a_change_without_a_watch_event_is_found_by_the_next_resync(
    cluster: ApiServer, namespace: str, runtime: KubernetesRuntime
) -> None:
    path = path_of(create(cluster, config_map(namespace, "list")))
    fleet = parse_fleet(create(cluster, from_map(namespace)))
    await runtime.resync()
    before = await runtime.world.versions(fleet)
    cluster.merge(path, {"data": {"list": "[]"}})
    assert ("ConfigMap", namespace, "list") in await runtime.resync()
    assert await runtime.world.versions(fleet) != before
    cluster.request("DELETE", path)
    assert ("ConfigMap", namespace, "list") in await runtime.resync()
    assert (await runtime.world.versions(fleet))["ConfigMap", "list"] == "absent"


async def test_foreign_objects_are_not_cached(cluster: ApiServer, namespace: str, runtime: KubernetesRuntime) -> None:
    foreign = create(cluster, config_map(namespace, "foreign"))
    create(cluster, config_map(namespace, "list"))
    document = create(cluster, from_map(namespace))
    fleet = parse_fleet(document)
    await runtime.resync()
    await runtime.world.versions(fleet)
    assert not runtime.world.observe("ADDED", {**foreign, "kind": "ConfigMap"})
    assert {key[2] for key in runtime.world.cache.objects if key[0] == "ConfigMap"} == {"list"}
    del document["spec"]["sensorsFrom"]
    await runtime.world.versions(parse_fleet(document))
    assert not [key for key in runtime.world.cache.objects if key[0] == "ConfigMap"], "no fleet refers to it any more"


async def test_a_record_that_loses_its_label_is_noticed(
    cluster: ApiServer, namespace: str, runtime: KubernetesRuntime
) -> None:
    labels = {"app.kubernetes.io/managed-by": "embereye-operator", "embereye.dev/fleet": "sensors.hall"}
    document = config_map(namespace, "hall-sensors-placement")
    document["metadata"]["labels"] = labels
    path = path_of(create(cluster, document))
    await runtime.resync()
    stripped = {**cluster.merge(path, {"metadata": {"labels": None}}), "kind": "ConfigMap"}
    assert runtime.world.observe("MODIFIED", stripped) == {("SensorFleet", namespace, "hall")}


async def test_a_fleet_with_a_list_leaves_the_operator_healthy(
    cluster: ApiServer, namespace: str, runtime: KubernetesRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each resync, no event is expected for unchanged objects."""
    monkeypatch.setattr(controller_module, "RESYNC_PERIOD", 0.2)
    monkeypatch.setattr(controller_module, "OBJECT_SECONDS", 0.0)
    create(cluster, config_map(namespace, "list"))
    create(cluster, from_map(namespace))
    running = Controller(runtime, SETTINGS)
    task = asyncio.create_task(running.run())
    try:
        await asyncio.wait_for(running.synced(), 60)
        for _ in range(30):
            await asyncio.sleep(0.1)
            assert not running.unhealthy()
            assert not runtime.world.lag.death_reason(time.monotonic() + 10 * LIMIT), (
                "no watch runs here, and none is needed"
            )
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_devices_of_a_list_are_watched_and_follow_its_changes(
    cluster: ApiServer, namespace: str, tmp_path: Any
) -> None:
    path = path_of(create(cluster, config_map(namespace, "list")))
    fleet = create(cluster, from_map(namespace))

    def declared() -> int:
        status = (cluster.get(path_of(fleet)) or {}).get("status") or {}
        return int((status.get("devices") or {}).get("declared") or 0)

    def become(count: int) -> None:
        wait_for(lambda: declared() == count, lambda: f"{declared()} devices, not {count}", 90)

    with operator(cluster, tmp_path / "log", namespace):
        become(5)
        cluster.merge(path, {"data": {"list": "[{id: c-1, zone: yard}, {id: c-2, zone: yard}]"}})
        become(6)


def test_a_deleted_list_leaves_its_devices_declared_without_placement_and_operator(
    cluster: ApiServer, namespace: str, tmp_path: Any
) -> None:
    path = path_of(create(cluster, config_map(namespace, "list")))
    fleet = create(cluster, from_map(namespace))
    placement = path.removesuffix("list") + "hall-sensors-placement"

    def status() -> Any:
        return (cluster.get(path_of(fleet)) or {}).get("status") or {}

    def reasons() -> set[str]:
        return {entry["reason"] for entry in status().get("conditions") or ()}

    def rewritten(uid: str) -> bool:
        return (cluster.get(placement) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid

    with operator(cluster, tmp_path / "first", namespace):
        wait_for(lambda: status().get("devices", {}).get("declared") == 5, "the devices of the list")
        cluster.request("DELETE", path)
        wait_for(lambda: "DeviceListMissing" in reasons(), "the missing list in the status")
        uid = cluster.get(placement)["metadata"]["uid"]
        cluster.request("DELETE", placement)
        wait_for(lambda: rewritten(uid), "a new placement")
        assert status()["devices"]["declared"] == 5
    uid = cluster.get(placement)["metadata"]["uid"]
    cluster.request("DELETE", placement)
    with operator(cluster, tmp_path / "second", namespace):
        wait_for(lambda: rewritten(uid), "a placement by the next leader")
        assert "c-1" in cluster.get(placement)["data"]["placement.json"]
        assert status()["devices"]["declared"] == 5
