"""The access of devices outside the cluster to a fleet.

`spec.expose` chooses Services of another type or routes of a Gateway. `decide/manifests/services.py` and `routes.py`
build them from it, and `decide/exposure.py` reads the resulting addresses. Both kinds of fleets use these fields; rules
reject combinations that cannot work.
"""

from collections.abc import Mapping
from typing import Any, Literal

from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Resource, Rule, described

NAME = "{name}"  # in a host or an annotation: placeholder for the name of the Service or route
HOST = r"^[A-Za-z0-9{:]([A-Za-z0-9{}.:-]*[A-Za-z0-9}:])?$"
LISTENER = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
ExposeType = Literal["ClusterIP", "NodePort", "LoadBalancer", "Gateway"]


def _port(description: str, most: int = 65535) -> Any:
    return described(description, default=None, between=(1, most))


def _listener(description: str) -> Any:
    return described(description, default="", pattern=LISTENER, hint="is not the name of a listener", max_length=253)


class ExposedPorts(Resource):
    """Fixed ports, which survive the deletion of a Service; the cluster chooses the others."""

    grpc: int | None = _port("The fleet's port for gRPC: a node port, or the port of the gateway's listener.")
    tcp: int | None = _port("The fleet's port for text lines: a node port, or the port of the gateway's listener.")
    tls: int | None = _port("The fleet's node port for text lines over TLS.")
    http: int | None = _port("The fleet's node port for readings by HTTP.")
    shards: int | None = _port("Node port for gRPC of the first shard; each further shard has the next number.", 65000)


class GatewayReference(Resource):
    """A Gateway of the Gateway API to which routes are attached."""

    name: str = described(
        "Name of the Gateway.",
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        hint="is not the name of a Gateway",
        max_length=253,
    )
    namespace: str = described(
        "Its namespace; empty: the fleet's.",
        default="",
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        hint="is not a namespace",
        max_length=63,
    )
    grpc_listener: str = _listener("Name of its listener for gRPC; empty: any that accepts GRPCRoutes.")
    tcp_listener: str = _listener("Name of its TCP listener for text lines; empty: they are not routed.")


def _host_holds_name(value: Any) -> bool:
    return NAME in value.get("advertisedHost", "")


def _tls_behind_gateway(value: Any) -> bool:
    exposed = (value.get("expose") or {}).get("type")
    return exposed == "Gateway" and bool((value.get("access") or {}).get("tls"))


# A GRPCRoute ends the devices' TLS at the gateway, so that a shard would never see their certificates.
NO_TLS_BEHIND_GATEWAY = Rule(
    "!(has(self.access) && has(self.access.tls) && has(self.expose) && self.expose.type == 'Gateway')",
    "does not go with access.tls: a gateway ends TLS itself; choose NodePort or LoadBalancer",
    lambda value, _: not _tls_behind_gateway(value),
    ".expose.type",
)


class Expose(Resource):
    """The access of devices outside the cluster to the fleet, to each of its shards, and to cameras' RTP ports."""

    RULES = (
        Rule(
            "self.type != 'NodePort' || has(self.advertisedHost)",
            "is required with NodePort: the address or name by which devices reach the cluster's nodes",
            lambda value, _: value["type"] != "NodePort" or "advertisedHost" in value,
            ".advertisedHost",
        ),
        Rule(
            f"self.type != 'LoadBalancer' || !has(self.advertisedHost) || self.advertisedHost.contains('{NAME}')",
            f"must contain {NAME} with LoadBalancer, because every Service has another address",
            lambda value, _: (
                value["type"] != "LoadBalancer" or "advertisedHost" not in value or _host_holds_name(value)
            ),
            ".advertisedHost",
        ),
        Rule(
            f"self.type != 'Gateway' || (has(self.advertisedHost) && self.advertisedHost.contains('{NAME}'))",
            f"must contain {NAME} with Gateway, whose routes distinguish shards by their host names",
            lambda value, _: value["type"] != "Gateway" or _host_holds_name(value),
            ".advertisedHost",
        ),
        Rule(
            "(self.type == 'Gateway') == has(self.gateway)",
            "goes with type Gateway, and only with that",
            lambda value, _: (value["type"] == "Gateway") == ("gateway" in value),
            ".gateway",
        ),
        Rule(
            "!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",
            "goes with type LoadBalancer only",
            lambda value, _: "loadBalancerClass" not in value or value["type"] == "LoadBalancer",
            ".loadBalancerClass",
        ),
    )
    type: ExposeType = described(
        "ClusterIP: only pods can reach it; NodePort: a port of every node; LoadBalancer: an address for each Service, "
        "from the cluster's load balancer; Gateway: routes of the Gateway API.",
        default="ClusterIP",
    )
    annotations: Mapping[str, str] = described(
        f"Annotations of these Services or routes, as external-dns needs; {NAME} is replaced by the object's name.",
        default=dict,
        max_items=32,
        item=Limit(max_length=1024),
    )
    load_balancer_class: str | None = described(
        "The class of the load balancer; by default the cluster's.",
        default=None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$",
        hint="is not a load balancer class",
        max_length=253,
    )
    external_traffic_policy: Literal["Cluster", "Local"] | None = described(
        "Local preserves the devices' addresses, and only nodes with a pod answer. By default Local if "
        "spec.access.networks checks these addresses, otherwise Cluster.",
        default=None,
    )
    advertised_host: str | None = described(
        f"The host name or address for devices; {NAME} is replaced by the Service's name. By default that of the load "
        "balancer.",
        default=None,
        pattern=HOST,
        hint="is not a host name or an address",
        max_length=253,
    )
    ports: ExposedPorts = described("Fixed ports.", default=ExposedPorts)
    gateway: GatewayReference | None = described("The Gateway, for type Gateway.", default=None)
