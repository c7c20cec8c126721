"""The NetworkPolicy of a fleet: the traffic that may reach a shard."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, manifest
from embereye_operator.api.shared import METRICS_PORT


def build_network_policy(
    fleet: Fleet, metadata: Manifest, selector: Mapping[str, str], udp: Sequence[int] = ()
) -> Manifest:
    """Allow devices, senders and Prometheus on their ports, and peers and operators on the control port.

    `udp` are the ports that receive pushed RTP.
    """
    operators = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "operator"}
    ports: list[Any] = ["grpc", METRICS_PORT, *(name for name in fleet.ports if name != "grpc")]
    devices = {
        "ports": [
            *({"port": port, "protocol": "TCP"} for port in ports),
            *({"port": port, "protocol": "UDP"} for port in udp),
        ]
    }
    control = {
        "ports": [{"port": "control", "protocol": "TCP"}],
        "from": [
            {"podSelector": {"matchLabels": dict(selector)}},
            {"namespaceSelector": {}, "podSelector": {"matchLabels": operators}},
        ],
    }
    spec = {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress"],
        "ingress": [devices, control],
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", metadata, spec)
