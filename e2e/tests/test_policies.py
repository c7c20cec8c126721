"""The iptables rules that the enforcer builds from NetworkPolicies."""

from typing import Any

from harness.cluster.policies import build_rules

NAMESPACES = {name: {"metadata": {"name": name, "labels": {"name": name}}} for name in ("site", "system")}
PORTS = [{"name": "grpc", "containerPort": 50051}, {"name": "control", "containerPort": 50055}]


def pod(name: str, address: str, node: str = "here", namespace: str = "site", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"ports": PORTS}]},
        "status": {"podIP": address, "phase": "Running"},
    }


def policy(*ingress: dict[str, Any], **labels: str) -> dict[str, Any]:
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": list(ingress)}
    return {"metadata": {"name": "p", "namespace": "site"}, "spec": spec}


SHARD = pod("shard", "10.0.0.1", app="shard")
OPERATOR = pod("operator", "10.0.1.2", "there", "system", app="operator")
STRANGER = pod("stranger", "10.0.1.3", "there", app="stranger")


def rules_to(*policies: dict[str, Any]) -> list[str]:
    rules = build_rules("here", [SHARD, OPERATOR, STRANGER], NAMESPACES, policies)
    return [line.partition("10.0.0.1/32 ")[2] for line in rules.splitlines() if "-d " in line]


def test_a_pod_that_no_policy_selects_is_open() -> None:
    assert rules_to(policy(app="other")) == []


def test_a_policy_without_rules_lets_nobody_in() -> None:
    assert rules_to(policy(app="shard")) == ["-j DROP"]


def test_a_named_port_is_open_to_everybody_where_nobody_is_named() -> None:
    rules = rules_to(policy({"ports": [{"port": "grpc", "protocol": "TCP"}]}, app="shard"))
    assert rules == ["-p tcp --dport 50051 -j RETURN", "-j DROP"]


def test_pods_of_other_namespaces_are_let_in_by_their_namespace_and_labels() -> None:
    peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "operator"}}}
    rules = rules_to(policy({"from": [peer], "ports": [{"port": "control"}]}, app="shard"))
    assert rules == ["-s 10.0.1.2/32 -p tcp --dport 50055 -j RETURN", "-j DROP"]


def test_pods_without_a_namespace_selector_are_those_of_the_policys_own_namespace() -> None:
    rules = rules_to(policy({"from": [{"podSelector": {}}]}, app="shard"))
    assert rules == ["-s 10.0.0.1/32 -j RETURN", "-s 10.0.1.3/32 -j RETURN", "-j DROP"]


def test_blocks_of_addresses_are_let_in() -> None:
    rules = rules_to(
        policy({"from": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 5004, "protocol": "UDP"}]})
    )
    assert rules == ["-s 10.20.0.0/16 -p udp --dport 5004 -j RETURN", "-j DROP"]
