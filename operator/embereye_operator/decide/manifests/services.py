"""Services: the addresses of shards, of a fleet, and of cameras that push RTP.

A shard has a Service for our own processes, and the fleet has one for devices, which selects all its shards. With
`spec.expose`, the fleet's Service changes its type, and each shard gets a second Service with gRPC only, so that
control and metrics stay inside. Each camera that pushes RTP has a Service that selects its present owner: a hand-over
changes the selector, and the camera's target stays. `build_children` calls these functions in every pass that builds
objects.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from embereye.units import bracketed
from embereye.v1.shard_pb2 import Assignment, Peer
from embereye_operator.api.exposure import NAME
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.names import LABEL_SHARD
from embereye_operator.api.schema import Manifest, manifest
from embereye_operator.api.shared import CONTROL_PORT, METRICS_PORT

ANNOTATION_DEVICE = "embereye.dev/device"  # on a Service: the camera that pushes to it
# Sources that wait for the camera; others join a multicast group.
PUSHED = r"rtp://(?:0\.0\.0\.0|\[::\])?:(\d{1,5})(?:[/?#]|$)"


def peer_address(fleet: Fleet, shard: str, cluster_ip: str = "") -> Peer:
    """Return a shard's addresses within the cluster, by its Service.

    With `cluster_ip` our own processes need no name resolution; other clients check the name in a certificate.
    """
    host = f"{shard}.{fleet.namespace}.svc"
    control = f"{bracketed(cluster_ip or host)}:{CONTROL_PORT}"
    return Peer(shard=shard, grpc=f"{host}:{fleet.spec.listen.grpc}", control=control)


def _named(ports: Mapping[str, int]) -> list[Manifest]:
    return [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports.items()]


def _service(metadata: Manifest, selector: Mapping[str, str], ports: Sequence[Manifest]) -> Manifest:
    spec = {"type": "ClusterIP", "selector": dict(selector), "ports": list(ports)}
    return manifest("v1", "Service", metadata, spec)


def _ports(fleet: Fleet) -> list[Manifest]:
    ports = _named(fleet.ports)
    secured = fleet.spec.access is not None and fleet.spec.access.tls is not None
    ports[0]["appProtocol"] = "https" if secured else "kubernetes.io/h2c"
    return ports


def build_service(fleet: Fleet, shard: str, *, scraped: bool = False) -> Manifest:
    """Build a shard's Service, which its peers, the operator and Prometheus use.

    The Service has the annotations for Prometheus, because a change of the pod's would replace the pod.
    """
    metadata = fleet.names.metadata(shard, shard)
    if scraped:
        metadata["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/path": "/metrics",
            "prometheus.io/port": str(METRICS_PORT),
        }
    ports = [*_ports(fleet), *_named({"control": CONTROL_PORT, "metrics": METRICS_PORT})]
    return _service(metadata, {**fleet.names.selector, LABEL_SHARD: shard}, ports)


def build_fleet_service(fleet: Fleet) -> Manifest:
    """Build the fleet's Service: the only address that devices need to know."""
    service = _service(fleet.names.metadata(fleet.names.fleet), fleet.names.selector, _ports(fleet))
    fixed = fleet.spec.expose.ports if fleet.spec.expose else None
    names = ("grpc", "tcp", "tls", "http")
    return _exposed(fleet, service, {name: getattr(fixed, name) for name in names} if fixed else {})


def is_exposed_by_services(fleet: Fleet) -> bool:
    """True if devices outside the cluster reach the fleet by Services of other types than ClusterIP."""
    return fleet.spec.expose is not None and fleet.spec.expose.type in {"NodePort", "LoadBalancer"}


def devices_name(shard: str) -> str:
    """Return the name of the Service for devices outside the cluster to reach a shard."""
    return f"{shard}-devices"


def build_devices_service(fleet: Fleet, shard: str) -> Manifest:
    """Build a shard's Service for devices outside, which does not expose its ports for control and metrics.

    It has only gRPC, whose senders are redirected to the right shard; text devices stay connected, and are relayed.
    """
    metadata, selector = fleet.names.metadata(devices_name(shard), shard), {**fleet.names.selector, LABEL_SHARD: shard}
    service = _service(metadata, selector, [port for port in _ports(fleet) if port["name"] == "grpc"])
    first = fleet.spec.expose.ports.shards if fleet.spec.expose else None
    index = fleet.names.index(shard)
    return _exposed(fleet, service, {"grpc": first + index if first and index is not None else None})


def _exposed(fleet: Fleet, service: Manifest, node_ports: Mapping[str, int | None]) -> Manifest:
    """Return `service` as `spec.expose` declares it; `node_ports` are the declared ports by name."""
    expose = fleet.spec.expose
    if expose is None or not is_exposed_by_services(fleet):
        return service
    metadata, spec = service["metadata"], service["spec"]
    policy = "Local" if fleet.spec.access is not None and fleet.spec.access.networks else "Cluster"
    exposed = {
        **spec,
        "type": expose.type,
        "externalTrafficPolicy": expose.external_traffic_policy or policy,
        "ports": [
            {**port, "nodePort": fixed} if (fixed := node_ports.get(port["name"])) else port for port in spec["ports"]
        ],
    }
    if expose.load_balancer_class:
        exposed["loadBalancerClass"] = expose.load_balancer_class
    if annotations := exposed_annotations(fleet, metadata["name"]) | metadata.get("annotations", {}):
        metadata = {**metadata, "annotations": annotations}
    return {**service, "metadata": metadata, "spec": exposed}


def exposed_annotations(fleet: Fleet, name: str) -> dict[str, str]:
    """Return the annotations from `spec.expose` for the Service or route `name`."""
    wanted = fleet.spec.expose.annotations if fleet.spec.expose else {}
    return {key: value.replace(NAME, name) for key, value in wanted.items()}


def push_ports(assignments: Mapping[str, Assignment]) -> dict[str, int]:
    """Return the UDP port of each camera that pushes RTP to its shard (`rtp://:5004`), by id."""
    ports = {}
    for assignment in assignments.values():
        for device in assignment.devices:
            if match := re.match(PUSHED, device.source):
                ports[device.id] = int(match[1])
    return dict(sorted(ports.items()))


def push_name(fleet: Fleet, device: str) -> str:
    """Return the name of a pushing camera's Service: its id as a DNS label, made unique."""
    unique = hashlib.blake2b(device.encode(), digest_size=4).hexdigest()
    name = re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{fleet.names.fleet}-{name[: 62 - len(fleet.names.fleet) - len(unique) - 1].rstrip('-')}-{unique}"


def build_push_service(fleet: Fleet, device: str, port: int, owner: str) -> Manifest:
    """Build the address that a camera pushes RTP to: it stays the same when the owning shard changes."""
    metadata = fleet.names.metadata(push_name(fleet, device))
    metadata["annotations"] = {ANNOTATION_DEVICE: device}
    ports = [{"name": "rtp", "port": port, "targetPort": port, "protocol": "UDP"}]
    service = _service(metadata, {**fleet.names.selector, LABEL_SHARD: owner}, ports)
    return _exposed(fleet, service, {})
