"""Routes of the Gateway API, by which devices outside the cluster reach a fleet and its shards through a Gateway.

`build_children` adds them if `spec.expose` names a Gateway and the cluster has the kind. The fleet has a route to its
Service, and each shard one to its own Service, because gRPC senders are redirected to the shard of their device. Text
lines need a separate listener. `decide/exposure.py` reads from a route's status if the Gateway accepted it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.manifests.names import advertised_host
from embereye_operator.decide.manifests.services import exposed_annotations

GATEWAY_GROUP = "gateway.networking.k8s.io"


def build_routes(fleet: Fleet, shards: Sequence[str], is_offered: Callable[[str], bool]) -> list[Manifest]:
    """Build routes for the fleet and each of `shards`, of the kinds that the cluster has; none without a Gateway."""
    expose = fleet.spec.expose
    if expose is None or expose.gateway is None or expose.type != "Gateway":
        return []
    built = []
    if is_offered("GRPCRoute"):
        built += [_grpc_route(fleet, name, shard) for name, shard in route_names(fleet, shards)]
    if is_offered("TCPRoute") and routes_text(fleet):
        assert isinstance(fleet.spec, SensorFleetSpec)
        built.append(
            _route(
                fleet,
                "TCPRoute",
                "v1alpha2",
                fleet.names.fleet,
                listener=expose.gateway.tcp_listener,
                spec={"rules": [{"backendRefs": [_backend(fleet.names.fleet, fleet.spec.listen.tcp)]}]},
            )
        )
    return built


def route_names(fleet: Fleet, shards: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and shard of each gRPC route: first the fleet's, without a shard."""
    return [(fleet.names.fleet, ""), *((shard, shard) for shard in shards)]


def routes_text(fleet: Fleet) -> bool:
    """True if text lines should come through the Gateway."""
    expose = fleet.spec.expose
    listener = expose.gateway.tcp_listener if expose and expose.gateway else ""
    return isinstance(fleet.spec, SensorFleetSpec) and bool(listener)


def _grpc_route(fleet: Fleet, name: str, shard: str) -> Manifest:
    assert fleet.spec.expose
    assert fleet.spec.expose.gateway
    return _route(
        fleet,
        "GRPCRoute",
        "v1",
        name,
        shard=shard,
        listener=fleet.spec.expose.gateway.grpc_listener,
        spec={
            "hostnames": [advertised_host(fleet, name)],
            "rules": [{"backendRefs": [_backend(name, fleet.spec.listen.grpc)]}],
        },
    )


def _route(
    fleet: Fleet, kind: str, version: str, name: str, *, listener: str, spec: Manifest, shard: str = ""
) -> Manifest:
    assert fleet.spec.expose
    assert fleet.spec.expose.gateway
    gateway = fleet.spec.expose.gateway
    parent: dict[str, Any] = {
        "group": GATEWAY_GROUP,
        "kind": "Gateway",
        "name": gateway.name,
        "namespace": gateway.namespace or fleet.namespace,
    }
    if listener:
        parent["sectionName"] = listener
    metadata = fleet.names.metadata(name, shard)
    if annotations := exposed_annotations(fleet, name):
        metadata["annotations"] = annotations
    return {
        "apiVersion": f"{GATEWAY_GROUP}/{version}",
        "kind": kind,
        "metadata": metadata,
        "spec": {"parentRefs": [parent], **spec},
    }


def _backend(service: str, port: int) -> Manifest:
    return {"group": "", "kind": "Service", "name": service, "port": port, "weight": 1}
