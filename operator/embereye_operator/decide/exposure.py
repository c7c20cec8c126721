"""The addresses at which devices outside the cluster reach a fleet, and what is missing, read from its objects.

A pass calls `read_exposure` with the fleet's children, as the cluster has filled them in: node ports, load balancers'
addresses, conditions of routes. Complete addresses go into the status, and shards advertise theirs to senders. Each
reason for a missing one becomes a sentence with a remedy, for the condition Exposed. Nothing is created here; Services
and routes come from `manifests/`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from embereye.units import bracketed, listed
from embereye.v1.shard_pb2 import Peer
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.api.status import ExposedAddress
from embereye_operator.decide.manifests.names import advertised_host
from embereye_operator.decide.manifests.routes import route_names, routes_text
from embereye_operator.decide.manifests.services import ANNOTATION_DEVICE, devices_name, is_exposed_by_services
from embereye_operator.decide.snapshot import Identity

Protocol = Literal["grpc", "tcp", "tls", "http", "rtp"]
Children = Mapping[Identity, Manifest]


@dataclass(frozen=True)
class Exposure:
    """The current result of `spec.expose`."""

    addresses: tuple[ExposedAddress, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # reason → sentences, worst first

    def advertise(self, peer: Peer) -> Peer:
        """Return `peer` with the address that devices outside the cluster use, if there is one."""
        for known in self.addresses:
            if known.shard == peer.shard and known.protocol == "grpc":
                return Peer(shard=peer.shard, grpc=known.address, control=peer.control)
        return peer


def read_exposure(fleet: Fleet, children: Children, shards: Sequence[str], offered: Sequence[str]) -> Exposure | None:
    """Read the state of `spec.expose`; None if it is not set. `offered`: optional kinds that exist here."""
    if is_exposed_by_services(fleet):
        return _by_services(fleet, children, shards)
    if fleet.spec.expose is not None and fleet.spec.expose.type == "Gateway":
        return _by_gateway(fleet, children, shards, offered)
    return None


def _by_services(fleet: Fleet, children: Children, shards: Sequence[str]) -> Exposure:
    assert fleet.spec.expose
    type_ = fleet.spec.expose.type
    reachable: list[ExposedAddress] = []
    pending: list[str] = []
    for name, shard, device in _exposed_services(fleet, children, shards):
        service = children.get(("Service", name), {})
        has_type = service.get("spec", {}).get("type") == type_
        addresses = list(_addresses(fleet, service, name, shard, device)) if has_type else []
        reachable += addresses
        if not addresses:
            pending.append(name)
    if not pending:
        return Exposure(tuple(reachable))
    some_names = listed(pending)
    if type_ == "NodePort":
        return Exposure(tuple(reachable), {"NodePortPending": (f"no node port yet: {some_names}",)})
    sentence = (
        f"no address yet from a load balancer: {some_names}. If none arrives, the cluster has no load balancer, or "
        "none of spec.expose.loadBalancerClass: install one, such as MetalLB, or use NodePort"
    )
    return Exposure(tuple(reachable), {"LoadBalancerPending": (sentence,)})


def _exposed_services(fleet: Fleet, children: Children, shards: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, shard and camera of each Service that devices outside the cluster reach."""
    yield fleet.names.fleet, "", ""
    for shard in shards:
        yield devices_name(shard), shard, ""
    for name, device in _camera_services(children):
        yield name, "", device


def _camera_services(children: Children) -> Iterator[tuple[str, str]]:
    """Yield name and camera of each Service that receives pushed RTP."""
    for (kind, name), child in sorted(children.items()):
        if kind == "Service" and (device := (child["metadata"].get("annotations") or {}).get(ANNOTATION_DEVICE)):
            yield name, str(device)


def _addresses(
    fleet: Fleet, service: Mapping[str, Any], name: str, shard: str, device: str
) -> Iterator[ExposedAddress]:
    spec = service["spec"]
    host = advertised_host(fleet, name)
    if spec["type"] == "LoadBalancer":
        balancer_host = _balancer_host((service.get("status") or {}).get("loadBalancer") or {})
        host = (host or balancer_host) if balancer_host else ""  # a host name is useless before the balancer exists
    for port in spec["ports"]:
        number = port.get("nodePort") if spec["type"] == "NodePort" else port["port"]
        if host and number:
            yield ExposedAddress(name, port["name"], f"{bracketed(host)}:{number}", device, shard)


def _balancer_host(balancer: Mapping[str, Any]) -> str:
    """Return a balancer's first address, IP addresses before host names."""
    ingresses = balancer.get("ingress") or []
    known = [entry["ip"] for entry in ingresses if entry.get("ip")] + [
        entry["hostname"] for entry in ingresses if entry.get("hostname")
    ]
    return str(known[0]) if known else ""


def _by_gateway(fleet: Fleet, children: Children, shards: Sequence[str], offered: Sequence[str]) -> Exposure:
    assert fleet.spec.expose
    assert fleet.spec.expose.gateway
    ports, listen = fleet.spec.expose.ports, fleet.spec.listen
    routes: list[tuple[str, str, str, Protocol, int]] = [
        ("GRPCRoute", name, shard, "grpc", ports.grpc or listen.grpc) for name, shard in route_names(fleet, shards)
    ]
    if routes_text(fleet) and isinstance(fleet.spec, SensorFleetSpec):
        routes.append(("TCPRoute", fleet.names.fleet, "", "tcp", ports.tcp or fleet.spec.listen.tcp))
    reachable: list[ExposedAddress] = []
    missing: dict[str, tuple[str, ...]] = {}
    if lacking := sorted({kind for kind, *_ in routes} - set(offered)):
        missing["GatewayApiMissing"] = (
            f"this cluster has no {' and no '.join(lacking)}: install Gateway API's CRDs (TCPRoute "
            "is in its experimental channel), let the operator list them, or use another type",
        )
    refused = []
    for kind, name, shard, protocol, port in routes:
        if kind in lacking:
            continue
        if why := _why_not_routed(children.get((kind, name), {})):
            refused.append(f"{kind} {name}: {why}")
        else:
            reachable.append(
                ExposedAddress(name, protocol, f"{bracketed(advertised_host(fleet, name))}:{port}", "", shard)
            )
    if refused:
        missing["RouteNotAccepted"] = tuple(refused)
    if cameras := sorted(device for _, device in _camera_services(children)):
        some_cameras = ", ".join(cameras[:5]) + (" and others" if len(cameras) > 5 else "")
        missing["NotThroughGateway"] = (f"a Gateway cannot forward RTP ({some_cameras}): use NodePort or LoadBalancer",)
    return Exposure(tuple(reachable), missing)


def _why_not_routed(route: Mapping[str, Any]) -> str:
    """Return the reason why the Gateway does not serve `route`; '' if it does."""
    if not route:
        return "it does not exist yet"
    parents = (route.get("status") or {}).get("parents") or []
    if not parents:
        return "no Gateway has accepted it: check its name, and the controller of its class"
    for parent in parents:
        for condition in parent.get("conditions") or ():
            if condition.get("type") in {"Accepted", "ResolvedRefs"} and condition.get("status") != "True":
                return f"{condition.get('reason', '')} {condition.get('message', '')}".strip() or "it is not accepted"
    return ""
