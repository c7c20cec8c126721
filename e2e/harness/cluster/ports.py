"""The ports of pods: those that docs/concepts/identity.md lists, and those on which a pod listens."""

import re
from collections.abc import Mapping

from harness.cluster.cluster import ROOT, Json

PAGE = ROOT / "docs/concepts/identity.md"
LISTENING = "0A"  # state of a TCP socket in /proc/net/tcp
LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as the same file has it


def documented_ports() -> dict[str, dict[int, str]]:
    """The page's table: hub, operator or shard → port → the senders that reach it."""
    pods: dict[str, dict[int, str]] = {}
    for pod, ports, senders in re.findall(
        r"^\| (hub|operator|shard) \| (.*?\d.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE
    ):
        pods.setdefault(pod, {}).update(dict.fromkeys(map(int, re.findall(r"\d+", ports)), senders))
    return pods


def listening_ports(table: str) -> set[int]:
    """The ports on which sockets of `table`, as in /proc/net/tcp, listen beyond loopback."""
    ports = set()
    for line in table.splitlines():
        slot, local, _, state, *_ = line.split()
        address, _, port = local.rpartition(":")
        if slot.endswith(":") and state == LISTENING and address not in LOOPBACK:
            ports.add(int(port, 16))
    return ports


def node_ports_of(service: Json, pods: Mapping[str, Json]) -> dict[int, str]:
    """The node ports of a Service → "name:port" of the one of `pods`, by name, to which each leads."""
    selector = service["spec"].get("selector", {}).items()
    node_ports = {}
    for name, pod in pods.items():
        if not selector <= pod["metadata"]["labels"].items():
            continue
        known = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
        for port in service["spec"]["ports"]:
            if "nodePort" in port:
                node_ports[port["nodePort"]] = f"{name}:{known[port['targetPort']]}"
    return node_ports
