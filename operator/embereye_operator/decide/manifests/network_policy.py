"""The NetworkPolicy of a fleet: what may come in to a shard."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.api.shared import METRICS_PORT


def build_network_policy(
    fleet: Fleet, metadata: Manifest, selector: Mapping[str, str], udp: Sequence[int] = ()
) -> Manifest:
    """What may come in to a shard: devices, senders, peers, operator and Prometheus, on their ports.

    `udp` are the ports that cameras push RTP to.
    """
    ports: list[Any] = ["grpc", METRICS_PORT]
    if isinstance(fleet.spec, SensorFleetSpec):
        ports.append("tcp")
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [
                        *({"port": port, "protocol": "TCP"} for port in ports),
                        *({"port": port, "protocol": "UDP"} for port in udp),
                    ]
                }
            ],
        },
    }
