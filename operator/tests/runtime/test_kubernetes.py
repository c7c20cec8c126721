"""The Kubernetes runtime in this process: shards are real gRPC servers, the API server is real."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError as ClientError

from embereye.process.grpc_server import GrpcServer, Service
from embereye.v1.roster_pb2 import (
    FleetRoster,
    FleetScaling,
    HeardResponse,
    HeardShard,
    RetainRequest,
    RosterResponse,
    TellScalingResponse,
)
from embereye.v1.roster_pb2_grpc import RosterServicer, add_RosterServicer_to_server
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.schema import from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.reconcile.reconcile import reconcile
from embereye_operator.runtime.kubernetes.hub_pods import HubPods
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from ..fakes import SETTINGS, FakeShard
from ..processes.test_operator import children, create, sensor_fleet

pytestmark = pytest.mark.apiserver


class ServedShard(ShardServicer):
    """A FakeShard behind a real server."""

    def __init__(self, name: str) -> None:
        self.shard = FakeShard(name)
        self.server = GrpcServer([Service(add_ShardServicer_to_server, self, "embereye.v1.Shard")], control=True)
        self.port = self.server.listen("127.0.0.1:0")

    async def Status(self, request: StatusRequest, context: object) -> ShardStatus:
        return self.shard.status()

    async def Assign(self, request: Assignment, context: object) -> AssignResponse:
        return self.shard.accept(request)

    async def Inherit(self, request: object, context: object) -> Any:
        raise AssertionError("shards ask each other")

    async def Identify(self, request: object, context: object) -> Any:
        raise AssertionError("a shard asks itself")


@dataclass
class ServedHub(RosterServicer):
    """A hub that records its reports."""

    rosters: dict[str, FleetRoster] = field(default_factory=dict)
    scaling: FleetScaling | None = None  # the latest
    calls: int = 0
    silences: dict[tuple[str, str], int] = field(default_factory=dict)  # fleet, shard → nanoseconds
    listening: int = 0  # nanoseconds

    async def Set(self, request: FleetRoster, context: Any) -> RosterResponse:
        self.calls += 1
        if (known := self.rosters.get(request.fleet)) and request.epoch < known.epoch:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it is older than the one in force")
        self.rosters[request.fleet] = request
        return RosterResponse(epochs={name: roster.epoch for name, roster in self.rosters.items()})

    async def TellScaling(self, request: FleetScaling, context: object) -> TellScalingResponse:
        self.scaling = request
        return TellScalingResponse()

    async def Heard(self, request: object, context: object) -> HeardResponse:
        shards = [HeardShard(fleet=fleet, shard=name, silent_ns=ns) for (fleet, name), ns in self.silences.items()]
        return HeardResponse(shards=shards, listening_ns=self.listening)

    async def Retain(self, request: RetainRequest, context: object) -> RosterResponse:
        self.rosters = {name: roster for name, roster in self.rosters.items() if name in request.fleets}
        return RosterResponse(epochs={name: roster.epoch for name, roster in self.rosters.items()})


@dataclass
class Bench:
    """A runtime, the shards it reaches by name, and its hub."""

    runtime: KubernetesRuntime
    shards: dict[str, ServedShard]
    hub: ServedHub
    fleet_path: str = ""
    cluster: Any = None

    async def start(self, name: str) -> ServedShard:
        self.shards[name] = ServedShard(name)
        await self.shards[name].server.start()
        return self.shards[name]

    async def step(self) -> FleetStatus:
        await self.runtime.resync()
        fleet = parse_fleet(await asyncio.to_thread(self.cluster.get, self.fleet_path))
        return (await reconcile(fleet, self.runtime, time.time_ns, SETTINGS)).status

    def condition(self, type_: str) -> tuple[str, str, str]:
        status = from_manifest(FleetStatus, self.cluster.get(self.fleet_path)["status"])
        entry = status.condition(type_)
        return entry.status, entry.reason, entry.message


@pytest.fixture
async def bench(cluster: ApiServer, namespace: str) -> AsyncIterator[Bench]:
    shards: dict[str, ServedShard] = {}
    hub = ServedHub()
    server = GrpcServer([Service(add_RosterServicer_to_server, hub, "embereye.v1.Roster")], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()

    def resolve(fleet: Fleet, shard: str) -> str:
        return f"127.0.0.1:{shards[shard].port if shard in shards else 9}"

    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    runtime = build_runtime(client, KubernetesOptions(hub=f"127.0.0.1:{port}", namespaces=[namespace], resolve=resolve))
    fleet = create(cluster, sensor_fleet(namespace, shards=2))
    yield Bench(runtime, shards, hub, path_of(fleet), cluster)
    await runtime.close()
    for shard in shards.values():
        await shard.server.stop(0)
    await server.stop(0)


async def run_until_complete(bench: Bench) -> FleetStatus:
    await bench.step()
    await bench.step()
    return await bench.step()


async def test_a_fleet_is_covered_when_its_shards_say_so(bench: Bench) -> None:
    await bench.step()
    for index in range(2):
        await bench.start(f"hall-sensors-{index}")
    status = await run_until_complete(bench)
    assert status.devices.summary == "4/4"
    assert bench.condition("Covered") == ("True", "AllCovered", "all 4 devices are watched")
    assert bench.condition("Ready")[0] == "True"
    owned = [device.id for shard in bench.shards.values() for device in shard.shard.assignment.devices]
    assert sorted(owned) == ["s-0", "s-1", "s-2", "s-3"]


async def test_a_dark_device_and_a_dead_shard_are_in_the_status(bench: Bench) -> None:
    await bench.step()
    for index in range(2):
        await bench.start(f"hall-sensors-{index}")
    await run_until_complete(bench)
    owner = next(shard for shard in bench.shards.values() if shard.shard.assignment.devices)
    device = owner.shard.assignment.devices[0].id
    owner.shard.dark[device] = "never heard"
    await bench.step()
    assert bench.condition("Covered") == (
        "False",
        "DevicesDark",
        f"1 of 4 devices is dark: {device} (not heard since its shard started)",
    )
    await owner.server.stop(0)
    del bench.shards[owner.shard.name]
    await bench.step()
    answer, reason, message = bench.condition("Covered")
    assert (answer, reason) == ("False", "ShardUnreachable")
    assert owner.shard.name in message


async def test_a_stable_fleet_is_not_written(bench: Bench, namespace: str) -> None:
    await bench.step()
    for index in range(2):
        await bench.start(f"hall-sensors-{index}")
    await run_until_complete(bench)

    def versions() -> list[str]:
        objects = [*children(bench.cluster, namespace).values(), bench.cluster.get(bench.fleet_path)]
        return [item["metadata"]["resourceVersion"] for item in objects]

    before = versions()
    await run_until_complete(bench)
    assert versions() == before


async def test_the_hub_gets_a_roster_once_and_forgets_unretained_fleets(bench: Bench, namespace: str) -> None:
    await run_until_complete(bench)
    key = f"{namespace}/sensors/hall"
    assert [device.id for device in bench.hub.rosters[key].devices] == ["s-0", "s-1", "s-2", "s-3"]
    assert bench.hub.scaling is not None
    assert bench.hub.scaling.fleet == key
    calls = bench.hub.calls
    await run_until_complete(bench)
    assert bench.hub.calls == calls
    await bench.runtime.links.retain([])
    assert not bench.hub.rosters


async def test_a_hub_that_knows_a_namesake_accepts_a_recreated_fleet(bench: Bench, namespace: str) -> None:
    key = f"{namespace}/sensors/hall"
    bench.hub.rosters[key] = FleetRoster(fleet=key, epoch=17)
    await run_until_complete(bench)
    assert bench.hub.rosters[key].epoch == 17
    await bench.runtime.links.retain([key])
    await run_until_complete(bench)
    assert bench.hub.rosters[key].epoch == 18
    assert len(bench.hub.rosters[key].devices) == 4


async def test_a_record_based_on_an_outdated_one_is_refused_by_the_server(bench: Bench, namespace: str) -> None:
    await run_until_complete(bench)
    placement = ("ConfigMap", namespace, "hall-sensors-placement")
    stale = bench.runtime.world.cache.objects[placement].manifest()
    bench.cluster.merge(path_of(stale), {"metadata": {"annotations": {"another": "leader"}}})
    with pytest.raises(ClientError, match="modified"):
        await bench.runtime.writer.apply({**stale, "metadata": {**stale["metadata"]}})


async def test_a_change_is_announced_by_an_event(bench: Bench, namespace: str) -> None:
    await run_until_complete(bench)
    await bench.runtime.close()  # writes what is due
    events = bench.cluster.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    # The API server records other Events, for example about Services.
    reasons = {event["reason"]: event for event in events if event["involvedObject"]["kind"] == "SensorFleet"}
    assert set(reasons) == {"NotCovered", "NotReady"}
    assert reasons["NotCovered"]["involvedObject"]["name"] == "hall"
    assert reasons["NotCovered"]["type"] == "Warning"


async def test_patches_that_change_nothing_are_counted_separately(bench: Bench) -> None:
    await run_until_complete(bench)
    assert bench.runtime.writer.write_counts["ConfigMap", True] > 0
    assert not any(count for (_, changed), count in bench.runtime.writer.write_counts.items() if not changed)
    fleet = parse_fleet(await asyncio.to_thread(bench.cluster.get, bench.fleet_path))
    (record,) = [child for child in await bench.runtime.world.children(fleet) if child["kind"] == "ConfigMap"]
    ours = ("name", "namespace", "labels", "annotations", "ownerReferences")
    metadata = {key: record["metadata"][key] for key in ours if key in record["metadata"]}
    await bench.runtime.writer.apply({**record, "metadata": metadata})
    assert bench.runtime.writer.write_counts["ConfigMap", False] == 1


async def test_our_processes_find_each_other_without_names(bench: Bench, namespace: str) -> None:
    create(bench.cluster, {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "control", "namespace": namespace},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 50053}]},
    })  # fmt: skip
    bench.runtime.links._hub_pods[""] = HubPods(
        bench.runtime.client, f"control.{namespace}.svc:50053", bench.runtime.cluster.nodes
    )
    await bench.step()
    shards = [await bench.start(f"hall-sensors-{index}") for index in range(2)]
    await run_until_complete(bench)

    def number(service: str) -> str:
        spec = bench.cluster.get(f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]
        return str(spec["clusterIP"])

    first, second = (shard.shard.assignment for shard in shards)
    assert first.hub == second.hub == f"{number('control')}:50053"
    assert [peer.control for peer in first.peers] == [second.own.control] == [f"{number('hall-sensors-1')}:50055"]
    assert second.own.grpc == f"hall-sensors-1.{namespace}.svc:50051", "the address for senders has the name"
    fleet = parse_fleet(await asyncio.to_thread(bench.cluster.get, bench.fleet_path))
    assert bench.runtime.world.address(fleet, "hall-sensors-1") == second.own


async def test_a_hub_that_never_heard_a_shard_has_missed_it_since_it_listens(bench: Bench, namespace: str) -> None:
    await run_until_complete(bench)
    fleet, links = f"{namespace}/sensors/hall", bench.runtime.links
    first, second, gone = ((fleet, f"hall-sensors-{index}") for index in (0, 1, 9))
    assert await links.ask_hubs() == [{}, {}], "a hub of an earlier version, or one that was stalled"
    bench.hub.listening, bench.hub.silences = 9, {first: 7, gone: 8}
    assert await links.ask_hubs() == [{first: 7}, {second: 9}]
