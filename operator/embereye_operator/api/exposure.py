"""How devices outside the cluster reach a fleet."""
# ruff: noqa: RUF009 (every field is made by `described`, which is dataclasses.field with a schema)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Resource, Rule, described

NAME = "{name}"  # in a host or an annotation: stands for the name of the Service or route
HOST = r"^[A-Za-z0-9{:]([A-Za-z0-9{}.:-]*[A-Za-z0-9}:])?$"
LISTENER = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
ExposeType = Literal["ClusterIP", "NodePort", "LoadBalancer", "Gateway"]


@dataclass(frozen=True, slots=True)
class ExposedPorts(Resource):
    """Ports that stay the same when a Service is made anew; what is not given the cluster chooses."""

    grpc: int | None = described(
        "Of the fleet, for gRPC: its node port, or the port of the gateway's listener.",
        default=None,
        minimum=1,
        maximum=65535,
    )
    tcp: int | None = described("Of the fleet, for text lines: likewise.", default=None, minimum=1, maximum=65535)
    shards: int | None = described(
        "Node port for gRPC of the first shard; the next one has the next, and so on.",
        default=None,
        minimum=1,
        maximum=65000,
    )


@dataclass(frozen=True, slots=True)
class GatewayReference(Resource):
    """A Gateway of the Gateway API that routes are attached to."""

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
    grpc_listener: str = described(
        "Name of its listener for gRPC; empty: any that takes GRPCRoutes.",
        default="",
        pattern=LISTENER,
        hint="is not the name of a listener",
        max_length=253,
    )
    tcp_listener: str = described(
        "Name of its TCP listener for text lines; empty: they are not routed.",
        default="",
        pattern=LISTENER,
        hint="is not the name of a listener",
        max_length=253,
    )


def _host_holds_name(value: Any) -> bool:
    return NAME in value.get("advertisedHost", "")


@dataclass(frozen=True, slots=True)
class Expose(Resource):
    """How devices outside the cluster reach the fleet, each of its shards, and cameras' RTP ports."""

    RULES = (
        Rule(
            "self.type != 'NodePort' || has(self.advertisedHost)",
            "is required with NodePort: the address or name by which devices reach the cluster's nodes",
            lambda value, _: value["type"] != "NodePort" or "advertisedHost" in value,
            ".advertisedHost",
        ),
        Rule(
            f"self.type != 'LoadBalancer' || !has(self.advertisedHost) || self.advertisedHost.contains('{NAME}')",
            f"must contain {NAME} with LoadBalancer, where every Service has an address of its own",
            lambda value, _: (
                value["type"] != "LoadBalancer" or "advertisedHost" not in value or _host_holds_name(value)
            ),
            ".advertisedHost",
        ),
        Rule(
            f"self.type != 'Gateway' || (has(self.advertisedHost) && self.advertisedHost.contains('{NAME}'))",
            f"must contain {NAME} with Gateway, whose routes tell shards apart by their host names",
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
        "ClusterIP: only pods reach it; NodePort: a port of every node; LoadBalancer: an address for each Service, "
        "from the cluster's load balancer; Gateway: routes of the Gateway API.",
        default="ClusterIP",
    )
    annotations: Mapping[str, str] = described(
        f"Of these Services or routes, for whoever makes addresses for them; {NAME} stands for its name.",
        default=dict,
        max_items=32,
        item=Limit(max_length=1024),
    )
    load_balancer_class: str | None = described(
        "Which load balancer; where not given, the cluster's default one.",
        default=None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$",
        hint="is not a load balancer class",
        max_length=253,
    )
    external_traffic_policy: Literal["Cluster", "Local"] | None = described(
        "Local keeps the devices' own addresses, and only nodes with a pod answer. Where not given: Local where "
        "spec.access.networks judges by these addresses, otherwise Cluster.",
        default=None,
    )
    advertised_host: str | None = described(
        f"The name or address that devices are told; {NAME} stands for the Service's name. Where not given, that of "
        "the load balancer.",
        default=None,
        pattern=HOST,
        hint="is not a host name or an address",
        max_length=253,
    )
    ports: ExposedPorts = described("Ports that do not change.", default=ExposedPorts)
    gateway: GatewayReference | None = described("The Gateway, with type Gateway.", default=None)


def exposure() -> Any:
    """The field `expose` of a fleet's spec."""
    return described(
        "How devices outside the cluster reach it. Where it is not given only pods do, as with ClusterIP.", default=None
    )
