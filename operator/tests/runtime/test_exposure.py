"""Devices outside the cluster: Services and routes on a real API server with a simulated load balancer and Gateway."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from harness.need import GATEWAY_API, program
from harness.servers.apiserver import ApiServer, install_crds, path_of

from embereye_operator.api.status import FleetStatus

from ..api.test_schema import camera
from ..conftest import delete_crds
from ..processes.test_operator import camera_fleet, create
from .test_kubernetes import Bench, bench, run_until_complete

__all__ = ["bench"]
pytestmark = pytest.mark.apiserver
NODE_PORT = {"type": "NodePort", "advertisedHost": "10.20.30.40"}


async def ready(bench: Bench, expose: Any) -> FleetStatus:
    """Return the status of a complete fleet of two shards with this exposure."""
    await asyncio.to_thread(bench.cluster.merge, bench.fleet_path, {"spec": {"expose": expose}})
    await bench.step()
    for index in range(2):
        if f"hall-sensors-{index}" not in bench.shards:
            await bench.start(f"hall-sensors-{index}")
    return await run_until_complete(bench)


async def service(bench: Bench, namespace: str, name: str) -> Any:
    path = path_of({"kind": "Service", "metadata": {"namespace": namespace, "name": name}})
    return await asyncio.to_thread(bench.cluster.get, path)


def addresses(status: FleetStatus) -> dict[tuple[str, str], str]:
    return {(known.name, known.protocol): known.address for known in status.addresses}


def redirections(bench: Bench) -> dict[str, str]:
    """Return the address at which each shard redirects gRPC senders to the other."""
    return {peer.shard: peer.grpc for shard in bench.shards.values() for peer in shard.shard.assignment.peers}


async def node_port(bench: Bench, namespace: str, name: str, port: str) -> int:
    service_ = await service(bench, namespace, name)
    return next(entry["nodePort"] for entry in service_["spec"]["ports"] if entry["name"] == port)


async def test_without_exposure_nothing_is_reachable_from_outside(bench: Bench, namespace: str) -> None:
    status = await ready(bench, None)
    listed = await asyncio.to_thread(bench.cluster.get, f"/api/v1/namespaces/{namespace}/services")
    assert {item["spec"]["type"] for item in listed["items"]} == {"ClusterIP"}
    assert status.addresses == ()
    assert status.condition("Exposed") is None
    assert set(redirections(bench).values()) == {f"hall-sensors-{index}.{namespace}.svc:50051" for index in range(2)}


async def test_node_ports_are_advertised_to_senders_and_in_the_status(bench: Bench, namespace: str) -> None:
    status = await ready(bench, NODE_PORT)
    fleet = [await node_port(bench, namespace, "hall-sensors", port) for port in ("grpc", "tcp")]
    shards = [await node_port(bench, namespace, f"hall-sensors-{index}-devices", "grpc") for index in range(2)]
    assert addresses(status) == {
        ("hall-sensors", "grpc"): f"10.20.30.40:{fleet[0]}",
        ("hall-sensors", "tcp"): f"10.20.30.40:{fleet[1]}",
        ("hall-sensors-0-devices", "grpc"): f"10.20.30.40:{shards[0]}",
        ("hall-sensors-1-devices", "grpc"): f"10.20.30.40:{shards[1]}",
    }
    assert redirections(bench) == {f"hall-sensors-{index}": f"10.20.30.40:{shards[index]}" for index in range(2)}
    assert bench.condition("Exposed")[:2] == ("True", "Advertised")


async def test_ports_for_control_and_metrics_stay_inside(bench: Bench, namespace: str) -> None:
    await ready(bench, NODE_PORT)
    internal = await service(bench, namespace, "hall-sensors-0")
    assert internal["spec"]["type"] == "ClusterIP"
    outside = await service(bench, namespace, "hall-sensors-0-devices")
    assert [port["name"] for port in outside["spec"]["ports"]] == ["grpc"]


async def test_node_ports_can_be_fixed(bench: Bench, namespace: str) -> None:
    # From the range that the API server never assigns automatically, as it does for fleets of other tests.
    ports = {"grpc": 30051, "tcp": 30061, "shards": 30070}
    status = await ready(bench, {**NODE_PORT, "ports": ports})
    assert addresses(status) == {
        ("hall-sensors", "grpc"): "10.20.30.40:30051",
        ("hall-sensors", "tcp"): "10.20.30.40:30061",
        ("hall-sensors-0-devices", "grpc"): "10.20.30.40:30070",
        ("hall-sensors-1-devices", "grpc"): "10.20.30.40:30071",
    }


async def test_the_status_may_have_the_address_for_readings_by_http(bench: Bench, namespace: str) -> None:
    listen = {"spec": {"listen": {"http": 9080}}}
    await asyncio.to_thread(bench.cluster.merge, bench.fleet_path, listen)
    status = await ready(bench, {**NODE_PORT, "ports": {"http": 30080}})
    assert addresses(status)["hall-sensors", "http"] == "10.20.30.40:30080"


async def test_device_addresses_are_preserved_if_networks_check_them(bench: Bench, namespace: str) -> None:
    async def policies() -> set[str]:
        names = ("hall-sensors", "hall-sensors-0-devices")
        return {(await service(bench, namespace, name))["spec"]["externalTrafficPolicy"] for name in names}

    await ready(bench, NODE_PORT)
    assert await policies() == {"Cluster"}
    access = {"networks": ["10.0.0.0/8"]}
    await asyncio.to_thread(bench.cluster.merge, bench.fleet_path, {"spec": {"access": access}})
    await run_until_complete(bench)
    assert await policies() == {"Local"}
    await ready(bench, {**NODE_PORT, "externalTrafficPolicy": "Cluster"})
    assert await policies() == {"Cluster"}


async def test_a_missing_load_balancer_is_reported_and_does_not_affect_the_inside(bench: Bench, namespace: str) -> None:
    status = await ready(bench, {"type": "LoadBalancer", "annotations": {"dns": "{name}.example.com"}})
    answer, reason, message = bench.condition("Exposed")
    assert (answer, reason) == ("False", "LoadBalancerPending")
    assert "hall-sensors, hall-sensors-0-devices, hall-sensors-1-devices" in message
    assert "MetalLB" in message
    assert status.addresses == ()
    assert bench.condition("Covered")[0] == "True"
    assert set(redirections(bench).values()) == {f"hall-sensors-{index}.{namespace}.svc:50051" for index in range(2)}
    annotations = (await service(bench, namespace, "hall-sensors-1-devices"))["metadata"]["annotations"]
    assert annotations["dns"] == "hall-sensors-1-devices.example.com"


async def test_a_balancers_addresses_are_advertised_once_assigned(bench: Bench, namespace: str) -> None:
    await ready(bench, {"type": "LoadBalancer", "loadBalancerClass": "example.com/edge"})
    given = {"hall-sensors": {"ip": "192.0.2.1"}, "hall-sensors-0-devices": {"hostname": "lb.example.com"},
             "hall-sensors-1-devices": {"ip": "2001:db8::1"}}  # fmt: skip
    for name, ingress in given.items():
        path = path_of({"kind": "Service", "metadata": {"namespace": namespace, "name": name}})
        patch = {"status": {"loadBalancer": {"ingress": [ingress]}}}
        await asyncio.to_thread(bench.cluster.merge, f"{path}/status", patch)
    status = await run_until_complete(bench)
    assert addresses(status) == {
        ("hall-sensors", "grpc"): "192.0.2.1:50051",
        ("hall-sensors", "tcp"): "192.0.2.1:9001",
        ("hall-sensors-0-devices", "grpc"): "lb.example.com:50051",
        ("hall-sensors-1-devices", "grpc"): "[2001:db8::1]:50051",
    }
    assert redirections(bench) == {"hall-sensors-0": "lb.example.com:50051", "hall-sensors-1": "[2001:db8::1]:50051"}
    assert bench.condition("Exposed")[:2] == ("True", "Advertised")


async def test_a_fleet_that_is_no_longer_exposed_has_its_old_services(bench: Bench, namespace: str) -> None:
    await ready(bench, {**NODE_PORT, "annotations": {"a": "b"}})
    status = await ready(bench, None)
    internal = await service(bench, namespace, "hall-sensors")
    assert internal["spec"]["type"] == "ClusterIP"
    assert not any("nodePort" in port for port in internal["spec"]["ports"])
    assert "a" not in internal["metadata"]["annotations"]
    assert await service(bench, namespace, "hall-sensors-0-devices") is None
    assert status.addresses == ()
    assert status.condition("Exposed") is None
    assert set(redirections(bench).values()) == {f"hall-sensors-{index}.{namespace}.svc:50051" for index in range(2)}


async def test_an_exposed_fleet_at_rest_is_not_written(bench: Bench, namespace: str) -> None:
    await ready(bench, NODE_PORT)

    def versions() -> list[str]:
        services = bench.cluster.get(f"/api/v1/namespaces/{namespace}/services")["items"]
        return [item["metadata"]["resourceVersion"] for item in [*services, bench.cluster.get(bench.fleet_path)]]

    before = versions()
    await run_until_complete(bench)
    assert versions() == before


async def test_a_shards_exposed_service_is_deleted_with_it(bench: Bench, namespace: str) -> None:
    await ready(bench, NODE_PORT)
    await asyncio.to_thread(bench.cluster.merge, bench.fleet_path, {"spec": {"shards": 1}})
    status = await run_until_complete(bench)
    assert await service(bench, namespace, "hall-sensors-1-devices") is None
    assert await service(bench, namespace, "hall-sensors-1") is not None, "that address stays"
    assert ("hall-sensors-1-devices", "grpc") not in addresses(status)


async def test_a_pushing_camera_gets_an_address_outside(bench: Bench, namespace: str) -> None:
    fleet = camera_fleet(namespace)
    fleet["spec"] = {"cameras": [camera(source="rtp://:5004")], "expose": NODE_PORT}
    bench.fleet_path = path_of(await asyncio.to_thread(create, bench.cluster, fleet))
    await bench.step()
    await bench.start("hall-cameras-0")
    status = await run_until_complete(bench)
    (rtp,) = [known for known in status.addresses if known.protocol == "rtp"]
    assert rtp.device == "c-1"
    rtp_service = await service(bench, namespace, rtp.name)
    assert rtp_service["spec"]["ports"][0]["protocol"] == "UDP"
    assert rtp.address == f"10.20.30.40:{rtp_service['spec']['ports'][0]['nodePort']}"


@pytest.fixture
def gateway_api(cluster: ApiServer) -> Iterator[None]:
    """Install Gateway API's CustomResourceDefinitions for one test."""
    GATEWAY_API.require()
    folder = program("gateway-api")
    assert folder
    crds = [
        yaml.safe_load((folder / f"gateway.networking.k8s.io_{plural}.yaml").read_text())
        for plural in ("grpcroutes", "tcproutes")
    ]
    install_crds(cluster, crds)
    yield
    delete_crds(cluster, crds)


GATEWAY = {
    "type": "Gateway",
    "advertisedHost": "{name}.fire.example.com",
    "ports": {"grpc": 443, "tcp": 9001},
    "gateway": {"name": "edge", "namespace": "infra", "grpcListener": "grpc", "tcpListener": "text"},
}


async def test_a_missing_gateway_api_is_reported_and_does_not_affect_the_inside(bench: Bench) -> None:
    status = await ready(bench, GATEWAY)
    answer, reason, message = bench.condition("Exposed")
    assert (answer, reason) == ("False", "GatewayApiMissing")
    assert "no GRPCRoute and no TCPRoute" in message
    assert status.addresses == ()
    assert bench.condition("Covered")[0] == "True"
    assert bench.condition("Degraded")[0] == "False"


@pytest.mark.usefixtures("gateway_api")
async def test_routes_are_created_and_advertised_once_a_gateway_accepts_them(bench: Bench, namespace: str) -> None:
    await ready(bench, GATEWAY)
    answer, reason, message = bench.condition("Exposed")
    assert (answer, reason) == ("False", "RouteNotAccepted")
    assert "GRPCRoute hall-sensors: no Gateway has accepted it" in message
    group = "/apis/gateway.networking.k8s.io"
    paths = [
        *(f"{group}/v1/namespaces/{namespace}/grpcroutes/hall-sensors{suffix}" for suffix in ("", "-0", "-1")),
        f"{group}/v1alpha2/namespaces/{namespace}/tcproutes/hall-sensors",
    ]
    routes = [await asyncio.to_thread(bench.cluster.get, path) for path in paths]
    assert [route["spec"].get("hostnames") for route in routes] == [
        ["hall-sensors.fire.example.com"],
        ["hall-sensors-0.fire.example.com"],
        ["hall-sensors-1.fire.example.com"],
        None,
    ]
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge", "namespace": "infra"}
    assert routes[0]["spec"]["parentRefs"] == [{**parent, "sectionName": "grpc"}]
    assert routes[3]["spec"]["parentRefs"] == [{**parent, "sectionName": "text"}]
    backends = [route["spec"]["rules"][0]["backendRefs"][0] for route in routes]
    assert [(backend["name"], backend["port"]) for backend in backends] == [
        ("hall-sensors", 50051), ("hall-sensors-0", 50051), ("hall-sensors-1", 50051), ("hall-sensors", 9001),
    ]  # fmt: skip

    def accept(path: str, answer: str) -> None:
        conditions = [{"type": "Accepted", "status": answer, "reason": "NoMatchingListenerHostname", "message": "no",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]  # fmt: skip
        parents = [{"parentRef": parent, "controllerName": "example.com/edge", "conditions": conditions}]
        bench.cluster.merge(f"{path}/status", {"status": {"parents": parents}})

    for path in paths:
        await asyncio.to_thread(accept, path, "False" if path is paths[2] else "True")
    status = await run_until_complete(bench)
    assert bench.condition("Exposed")[2] == "GRPCRoute hall-sensors-1: NoMatchingListenerHostname no"
    await asyncio.to_thread(accept, paths[2], "True")
    status = await run_until_complete(bench)
    assert addresses(status) == {
        ("hall-sensors", "grpc"): "hall-sensors.fire.example.com:443",
        ("hall-sensors", "tcp"): "hall-sensors.fire.example.com:9001",
        ("hall-sensors-0", "grpc"): "hall-sensors-0.fire.example.com:443",
        ("hall-sensors-1", "grpc"): "hall-sensors-1.fire.example.com:443",
    }
    assert redirections(bench)["hall-sensors-1"] == "hall-sensors-1.fire.example.com:443"
    assert bench.condition("Exposed")[:2] == ("True", "Advertised")
    await ready(bench, None)
    assert [await asyncio.to_thread(bench.cluster.get, path) for path in paths] == [None] * 4
