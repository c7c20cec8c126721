"""An operator with two hubs on a real API server: each gets reports on its fleets only, and has a certificate."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.identity.credentials import read_certificate
from embereye.process.identity.names import Identity, Role
from embereye.v1.roster_pb2_grpc import add_RosterServicer_to_server
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.schema import from_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.errors import UnavailableError
from embereye_operator.reconcile.reconcile import reconcile
from embereye_operator.runtime.kubernetes.hub_pods import HubPods
from embereye_operator.runtime.kubernetes.hub_status import hub_troubles
from embereye_operator.runtime.kubernetes.identities import Identities
from embereye_operator.runtime.kubernetes.nodes import Nodes
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from ..fakes import SETTINGS
from ..processes.test_operator import create, sensor_fleet
from .test_kubernetes import ServedHub

pytestmark = pytest.mark.apiserver


@dataclass
class Tenants:
    """Two fleets in one namespace, and the hubs."""

    cluster: ApiServer
    namespace: str
    runtime: KubernetesRuntime
    default: ServedHub
    north: ServedHub
    north_server: GrpcServer
    hubs: tuple[NamedHub, ...]
    address: str

    async def step(self, *names: str) -> None:
        for name in names:
            await self.runtime.resync()
            fleet = parse_fleet(await asyncio.to_thread(self.cluster.get, self.path(name)))
            settings = replace(SETTINGS, hub=self.address, hubs=self.hubs)
            await reconcile(fleet, self.runtime, time.time_ns, settings)

    def path(self, name: str) -> str:
        return path_of({"kind": "SensorFleet", "metadata": {"name": name, "namespace": self.namespace}})

    def degraded(self, name: str) -> tuple[str, str]:
        condition = from_manifest(FleetStatus, self.cluster.get(self.path(name))["status"]).condition("Degraded")
        return condition.reason, condition.message


@pytest.fixture
async def tenants(cluster: ApiServer, namespace: str) -> AsyncIterator[Tenants]:
    served, servers, addresses = [ServedHub(), ServedHub()], [], []
    for hub in served:
        servers.append(GrpcServer([Service(add_RosterServicer_to_server, hub, "embereye.v1.Roster")], control=True))
        addresses.append(f"127.0.0.1:{servers[-1].listen('127.0.0.1:0')}")
        await servers[-1].start()
    hubs = (NamedHub("north", addresses[1], "embereye-north-hub"),)
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    runtime = build_runtime(
        client, KubernetesOptions(hub=addresses[0], namespaces=[namespace], resolve=lambda *_: "127.0.0.1:9", hubs=hubs)
    )
    for name, chosen in (("hall", ""), ("annex", "north")):
        create(cluster, sensor_fleet(namespace, name=name, hub=chosen))
    default, north = served
    yield Tenants(cluster, namespace, runtime, default, north, servers[1], hubs, addresses[0])
    await runtime.close()
    for server in servers:
        await server.stop(0)


async def test_each_hub_gets_reports_on_its_fleets_only(tenants: Tenants) -> None:
    await tenants.step("hall", "annex", "hall", "annex")
    assert set(tenants.default.rosters) == {f"{tenants.namespace}/sensors/hall"}
    assert set(tenants.north.rosters) == {f"{tenants.namespace}/sensors/annex"}
    for hub, name in ((tenants.default, "hall"), (tenants.north, "annex")):
        assert hub.scaling is not None, "including the load of its fleets"
        assert hub.scaling.fleet == f"{tenants.namespace}/sensors/{name}"


async def test_the_hub_that_a_fleet_leaves_forgets_it(tenants: Tenants) -> None:
    await tenants.step("hall", "annex", "hall", "annex")
    fleets = [f"{tenants.namespace}/sensors/{name}" for name in ("annex", "hall")]
    await tenants.runtime.links.retain(fleets)
    assert [len(hub.rosters) for hub in (tenants.default, tenants.north)] == [1, 1]
    await asyncio.to_thread(tenants.cluster.merge, tenants.path("hall"), {"spec": {"hub": "north"}})
    await tenants.step("hall", "hall")
    await tenants.runtime.links.retain(fleets)
    assert not tenants.default.rosters
    assert set(tenants.north.rosters) == set(fleets)
    await tenants.runtime.links.retain(fleets[:1])
    assert list(tenants.runtime.links._reports_to) == fleets[:1]


async def test_an_absent_hub_is_reported_only_by_its_fleets(tenants: Tenants) -> None:
    await tenants.north_server.stop(0)
    await tenants.step("hall", "annex", "hall", "annex")
    assert tenants.degraded("annex")[0] == "HubUnreachable"
    assert tenants.hubs[0].address in tenants.degraded("annex")[1]
    assert tenants.degraded("hall")[0] != "HubUnreachable"
    with pytest.raises(UnavailableError):
        await tenants.runtime.links.retain([f"{tenants.namespace}/sensors/annex"])
    assert not tenants.default.rosters, "the other hub got its report"


async def test_a_fleet_with_a_missing_hub_reports_it(tenants: Tenants) -> None:
    create(tenants.cluster, sensor_fleet(tenants.namespace, name="shed", hub="south"))
    await tenants.step("shed")
    reason, message = tenants.degraded("shed")
    assert reason == "HubUnknown"
    assert 'no hub "south"' in message
    assert "north" in message
    deployments = f"/apis/apps/v1/namespaces/{tenants.namespace}/deployments"
    assert tenants.cluster.get(deployments)["items"] == []


async def test_the_refusal_of_a_hubs_pod_is_explained(cluster: ApiServer, namespace: str) -> None:
    labels = {"app.kubernetes.io/component": "hub"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "hub", "image": "embereye"}]}}
    metadata = {"name": "embereye-hub", "namespace": namespace, "labels": labels}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {**metadata, "name": "embereye-hub-control"},
        "spec": {"selector": labels, "ports": [{"port": 50053}]},
    }  # fmt: skip
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    pods = HubPods(client, f"embereye-hub-control.{namespace}.svc:50053", Nodes(client))
    for manifest in (deployment, service):
        create(cluster, manifest)
    await pods.diagnose(is_serving=False)
    assert pods.trouble == "the hub has no pod: kubectl describe on its Deployment shows why"
    refusal = {"type": "ReplicaFailure", "status": "True", "message": "forbidden: exceeded quota"}
    await asyncio.to_thread(cluster.merge, f"{path_of(deployment)}/status", {"status": {"conditions": [refusal]}})
    await pods.diagnose(is_serving=False)
    assert pods.trouble == "its pod is refused: forbidden: exceeded quota"
    await pods.diagnose(is_serving=True)
    assert not pods.trouble
    await client.close()


async def test_the_secret_that_a_hubs_pod_waits_for_is_named(cluster: ApiServer, namespace: str) -> None:
    labels = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "hub"}
    metadata = {"namespace": namespace, "labels": labels}
    mounted = [{"name": "admin", "secret": {"secretName": "embereye-hub-admin"}}]
    spec = {"containers": [{"name": "hub", "image": "embereye"}], "volumes": mounted}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": "hub-1"}, "spec": spec}
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {**metadata, "name": "embereye-hub-control"},
        "spec": {"selector": labels, "ports": [{"port": 50053}]},
    }  # fmt: skip
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**metadata, "name": "embereye-hub"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip
    for manifest in (service, deployment, pod):
        create(cluster, manifest)
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    pods = HubPods(client, f"embereye-hub-control.{namespace}.svc:50053", Nodes(client))
    await pods.diagnose(is_serving=False)
    assert "Secret embereye-hub-admin does not exist" in pods.trouble
    assert any("Secret embereye-hub-admin does not exist" in line for line in await hub_troubles(client))
    create(cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "embereye-hub-admin"}})
    await pods.diagnose(is_serving=False)
    assert "Secret" not in pods.trouble
    cluster.request("DELETE", path_of(deployment))
    await client.close()


async def test_every_hub_gets_a_separate_certificate(cluster: ApiServer, namespace: str, tmp_path: Path) -> None:
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    hubs = (NamedHub("north", "north:50053", "embereye-north-hub", names=("north.example.com",)),)
    identities = Identities(
        client, name="embereye", namespace=namespace, fence=lambda: None, hub_names=("fire.example.com",), hubs=hubs
    )
    await identities.renew([namespace])
    for process, name in (("embereye-hub", "fire.example.com"), ("embereye-north-hub", "north.example.com")):
        stored = cluster.get(f"/api/v1/namespaces/{namespace}/secrets/{process}-identity")
        folder = tmp_path / process
        folder.mkdir()
        for file, content in stored["data"].items():
            (folder / file).write_bytes(base64.b64decode(content))
        assert read_certificate(folder).identity == Identity(Role.HUB, namespace, process)
        assert stored["metadata"]["annotations"]["embereye.dev/names"] == name
    identities.close()
    await client.close()
