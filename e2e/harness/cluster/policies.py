"""Enforce NetworkPolicies with iptables, in a pod on every node, where the pod network does not.

Every second it lists pods, namespaces and policies, and builds the rules of one chain for the pods of its node. If they
differ from the last ones, it loads them in one step. A pod that some policy selects gets only what a rule admits.

It supports `ingress` by pods, namespaces, addresses and ports. Egress is not supported, because our policies have none.
It runs in our image, which has lightkube, and imports none of our modules.
"""

import asyncio
import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
CHAIN = "NETWORK-POLICIES"
PERIOD = 1.0  # seconds


def is_selected(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """True if a label selector selects an object with `labels`. An empty selector selects everything."""
    for key, value in ((selector or {}).get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in (selector or {}).get("matchExpressions") or ():
        present, values = term["key"] in labels, term.get("values") or ()
        among = labels.get(term["key"]) in values
        if not {"In": among, "NotIn": not among, "Exists": present, "DoesNotExist": not present}[term["operator"]]:
            return False
    return True


def labels_of(manifest: Json) -> Mapping[str, str]:
    """An object's labels."""
    labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return labels


def has_address(pod: Json) -> bool:
    """True if a pod runs, or starts, with an address in the pod network."""
    status = pod.get("status") or {}
    return (
        bool(status.get("podIP"))
        and not pod["spec"].get("hostNetwork")
        and status.get("phase") in {"Pending", "Running"}
    )


def sources(
    rule: Json, namespace: str, pods: Sequence[Json], namespaces: Mapping[str, Json]
) -> Iterator[tuple[str, ...]]:
    """Yield iptables arguments that match the senders which a rule admits."""
    for peer in rule.get("from") or [{}]:
        if block := peer.get("ipBlock"):
            if not block.get("except"):  # none of our policies uses it; such a block admits nobody
                yield ("-s", str(ipaddress.ip_network(block["cidr"])))
            continue
        if not peer:
            yield ()
            continue
        for pod in filter(has_address, pods):
            home = pod["metadata"]["namespace"]
            near = (
                home == namespace
                if "namespaceSelector" not in peer
                else is_selected(peer["namespaceSelector"], labels_of(namespaces.get(home) or {"metadata": {}}))
            )
            if near and is_selected(peer.get("podSelector"), labels_of(pod)):
                yield ("-s", f"{pod['status']['podIP']}/32")


def ports(rule: Json, pod: Json) -> Iterator[tuple[str, ...]]:
    """Yield iptables arguments that match the ports of `pod` which a rule opens."""
    if not rule.get("ports"):
        yield ()
    for port in rule.get("ports") or ():
        protocol, wanted = port.get("protocol", "TCP").lower(), port.get("port")
        numbers = (
            [wanted]
            if isinstance(wanted, int)
            else [
                known["containerPort"]
                for container in pod["spec"]["containers"]
                for known in container.get("ports") or ()
                if known.get("name") == wanted and known.get("protocol", "TCP").lower() == protocol
            ]
        )
        if wanted is None:
            yield ("-p", protocol)
        for number in numbers:
            yield ("-p", protocol, "--dport", f"{number}:{port['endPort']}" if port.get("endPort") else str(number))


def build_rules(node: str, pods: Sequence[Json], namespaces: Mapping[str, Json], policies: Sequence[Json]) -> str:
    """Build the input of iptables-restore for the pods of `node`."""
    lines = ["*mangle", f":{CHAIN} - [0:0]", f"-A {CHAIN} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"]
    for pod in pods:
        if not has_address(pod) or pod["spec"].get("nodeName") != node:
            continue
        here = pod["metadata"]["namespace"]
        selecting = [
            policy["spec"] for policy in policies
            if policy["metadata"]["namespace"] == here
            and "Ingress" in (policy["spec"].get("policyTypes") or ["Ingress"])
            and is_selected(policy["spec"].get("podSelector"), labels_of(pod))
        ]  # fmt: skip
        if not selecting:
            continue
        to = ("-d", f"{pod['status']['podIP']}/32")
        for rule in (rule for spec in selecting for rule in spec.get("ingress") or ()):
            for source in sources(rule, here, pods, namespaces):
                lines += [" ".join(("-A", CHAIN, *to, *source, *port, "-j", "RETURN")) for port in ports(rule, pod)]
        lines.append(" ".join(("-A", CHAIN, *to, "-j", "DROP")))
    return "\n".join([*dict.fromkeys(lines), "COMMIT", ""])


def on_node(*command: str, stdin: str = "") -> int:
    """Run a program of the node in the node's network. Returns its exit code."""
    done = subprocess.run(["chroot", "/node", *command], input=stdin, text=True, capture_output=True, check=False)
    if done.returncode and stdin:
        print(done.stderr, file=sys.stderr, flush=True)
    return done.returncode


async def main() -> None:
    """Update the rules every `PERIOD`, for ever."""
    from lightkube import AsyncClient
    from lightkube.generic_resource import create_global_resource, create_namespaced_resource

    pod_kind = create_namespaced_resource("", "v1", "Pod", "pods")
    policy_kind = create_namespaced_resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
    namespace_kind = create_global_resource("", "v1", "Namespace", "namespaces")
    client, before = AsyncClient(), ""
    while True:
        pods: list[Any] = [item async for item in client.list(pod_kind, namespace="*")]
        policies: list[Any] = [item async for item in client.list(policy_kind, namespace="*")]
        spaces: dict[str, Any] = {
            item.metadata.name: item
            async for item in client.list(namespace_kind)
            if item.metadata and item.metadata.name
        }
        rules = build_rules(os.environ["NODE"], pods, spaces, policies)
        if rules != before and not on_node("iptables-restore", "-w", "5", "--noflush", stdin=rules):
            before = rules
            if on_node("iptables", "-w", "-t", "mangle", "-C", "FORWARD", "-j", CHAIN):
                on_node("iptables", "-w", "-t", "mangle", "-A", "FORWARD", "-j", CHAIN)
        await asyncio.sleep(PERIOD)


if __name__ == "__main__":
    asyncio.run(main())
