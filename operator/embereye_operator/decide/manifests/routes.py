"""Routes of the Gateway API, by which devices outside the cluster reach a fleet and its shards through a Gateway.

`build_children` adds them if `spec.expose` names a Gateway and the cluster has the kind. The fleet has a route to its
Service, and each shard one to its own Service, because gRPC senders are redirected to the shard of their device. Text
lines need a separate listener. `decide/exposure.py` reads from a route's status if the Gateway accepted it.
"""

from collections.abc import Callable, Sequence

from embereye_operator.api.exposure import GatewayReference
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.manifests.names import advertised_host
from embereye_operator.decide.manifests.services import exposed_annotations

GATEWAY_GROUP = "gateway.networking.k8s.io"


def build_routes(fleet: Fleet, shards: Sequence[str], is_offered: Callable[[str], bool]) -> list[Manifest]:
    """Build routes for the fleet and each of `shards`, of the kinds that the cluster has; none without a Gateway."""
    expose = fleet.spec.expose
    if expose is None or expose.gateway is None or expose.type != "Gateway":
        return []
    gateway = expose.gateway
    routes = []
    if is_offered("GRPCRoute"):
        for name, shard in route_names(fleet, shards):
            spec = {
                "parentRefs": [_parent(fleet, gateway, gateway.grpc_listener)],
                "hostnames": [advertised_host(fleet, name)],
                "rules": _rules(name, fleet.spec.listen.grpc),
            }
            routes.append(manifest(f"{GATEWAY_GROUP}/v1", "GRPCRoute", _metadata(fleet, name, shard), spec))
    if is_offered("TCPRoute") and routes_text(fleet):
        assert isinstance(fleet.spec, SensorFleetSpec)
        name = fleet.names.fleet
        spec = {
            "parentRefs": [_parent(fleet, gateway, gateway.tcp_listener)],
            "rules": _rules(name, fleet.spec.listen.tcp),
        }
        routes.append(manifest(f"{GATEWAY_GROUP}/v1alpha2", "TCPRoute", _metadata(fleet, name), spec))
    return routes


def route_names(fleet: Fleet, shards: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and shard of each gRPC route: first the fleet's, without a shard."""
    return [(fleet.names.fleet, ""), *((shard, shard) for shard in shards)]


def routes_text(fleet: Fleet) -> bool:
    """True if text lines should come through the Gateway."""
    expose = fleet.spec.expose
    listener = expose.gateway.tcp_listener if expose and expose.gateway else ""
    return isinstance(fleet.spec, SensorFleetSpec) and bool(listener)


def _metadata(fleet: Fleet, name: str, shard: str = "") -> Manifest:
    metadata = fleet.names.metadata(name, shard)
    if annotations := exposed_annotations(fleet, name):
        metadata["annotations"] = annotations
    return metadata


def _parent(fleet: Fleet, gateway: GatewayReference, listener: str) -> Manifest:
    parent = {
        "group": GATEWAY_GROUP,
        "kind": "Gateway",
        "name": gateway.name,
        "namespace": gateway.namespace or fleet.namespace,
    }
    if listener:
        parent["sectionName"] = listener
    return parent


def _rules(service: str, port: int) -> list[Manifest]:
    return [{"backendRefs": [{"group": "", "kind": "Service", "name": service, "port": port, "weight": 1}]}]
