"""Statuses on a real API server, which refuses a map that was emptied by server-side apply."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.schema import to_manifest
from embereye_operator.api.status import (
    Condition,
    DarkDevice,
    DeviceSummary,
    ExposedAddress,
    FleetStatus,
    HoldingOperator,
    LastScale,
    LedgerSummary,
    LoadSummary,
    RolloutSummary,
)
from embereye_operator.decide.status import read_status
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from ..processes.test_operator import camera_fleet, create, sensor_fleet

pytestmark = pytest.mark.apiserver
TIME = "2027-01-01T00:00:00Z"
SCALED = LastScale(TIME, 1, 2, "spec.shards was set to 2", {"lead": 1.0, "cost": 0.5})
FULL = FleetStatus(
    operator=HoldingOperator("embereye/embereye-operator", "embereye:test"),
    shards=2,
    ready_shards=2,
    selector="a=b",
    devices=DeviceSummary(3, 2, "2/3", (DarkDevice("s-1", "hall", "silent"),)),
    load=LoadSummary(arrival_rate=1.5),
    ledger=LedgerSummary(TIME, offered=3),
    last_scale=SCALED,
    rollout=RolloutSummary("b", "a", 1, 1, "waits"),
    addresses=(ExposedAddress("hall", "grpc", "a:1"),),
    conditions=(Condition("Ready", "True", "AllShardsReady", "", TIME),),
)
LESS = {
    "inputs": replace(FULL, last_scale=replace(SCALED, inputs={})),
    "some inputs": replace(FULL, last_scale=replace(SCALED, inputs={"lead": 2.0})),
    "last scale": replace(FULL, last_scale=None),
    "dark devices": replace(FULL, devices=DeviceSummary(3, 3, "3/3")),
    "devices": replace(FULL, devices=DeviceSummary()),
    "addresses": replace(FULL, addresses=()),
    "conditions": replace(FULL, conditions=()),
    "optional parts": replace(FULL, operator=None, load=None, ledger=None, rollout=None),
    "everything": FleetStatus(),
}


@pytest.fixture
async def runtime(cluster: ApiServer, namespace: str) -> AsyncIterator[KubernetesRuntime]:
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.kubeconfig)).get())
    created = build_runtime(client, KubernetesOptions(hub="127.0.0.1:9", namespaces=[namespace]))
    yield created
    await created.close()


async def write(runtime: KubernetesRuntime, fleet: Fleet, status: FleetStatus, cluster: ApiServer) -> Any:
    await runtime.writer.write_status(fleet, to_manifest(status))
    return (cluster.get(path_of({**fleet.manifest, "kind": fleet.type.resource})) or {}).get("status")


@pytest.mark.parametrize("part", LESS)
@pytest.mark.parametrize("kind", ["sensors", "cameras"])
async def test_each_part_of_a_status_can_be_emptied_and_filled_again(
    cluster: ApiServer, namespace: str, runtime: KubernetesRuntime, part: str, kind: str
) -> None:
    declared = sensor_fleet(namespace) if kind == "sensors" else camera_fleet(namespace)
    fleet = parse_fleet(create(cluster, declared))
    for status in (FULL, LESS[part], FULL, LESS[part], LESS[part]):
        assert read_status(await write(runtime, fleet, status, cluster)) == status
