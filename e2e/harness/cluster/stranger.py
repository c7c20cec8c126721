"""A pod that does not belong to us: the ports it reaches show which NetworkPolicies the cluster enforces.

It tries all ports at once by TCP, and sends a datagram to each.
"""

from collections.abc import Mapping
from typing import Any

from harness.cluster.cluster import Cluster, Json, until

PATIENCE = 3  # seconds to wait for a connection
KNOWN_SECONDS = 3  # for the network to learn the pod's address and labels
KNOCK = f"""
import concurrent.futures, socket, sys, time
def knock(target):
    name, _, address = target.partition("=")
    host, _, port = address.rpartition(":")
    try:
        socket.socket(type=socket.SOCK_DGRAM).sendto(b"", (host, int(port)))
        socket.create_connection((host, int(port)), {PATIENCE}).close()
        return name, "open"
    except OSError:
        return name, "closed"
time.sleep({KNOWN_SECONDS})
with concurrent.futures.ThreadPoolExecutor(len(sys.argv)) as pool:
    for name, state in pool.map(knock, sys.argv[1:]):
        print(name, state)
"""
LISTEN = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')"
LISTENER = "shut-door"  # a pod that a policy closes to everybody


def build_pod(
    name: str, namespace: str, image: str, program: str, *arguments: str, labels: Mapping[str, str] | None = None
) -> Json:
    """A pod that runs a Python `program` and satisfies the restricted pod security standard."""
    restricted: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "python", "image": image, "imagePullPolicy": "Never", "securityContext": restricted,
                 "command": ["python", "-c", program, *arguments], "workingDir": "/tmp"}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"stranger": name, **(labels or {})}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }  # fmt: skip


def build_shut_door(namespace: str) -> Json:
    """The policy that closes LISTENER to everybody."""
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": LISTENER, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"stranger": LISTENER}}, "policyTypes": ["Ingress"], "ingress": []},
    }  # fmt: skip


async def knock(
    cluster: Cluster, namespace: str, image: str, targets: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> dict[str, bool]:
    """Try `targets`, name → host:port, from a stranger's pod in `namespace`. Returns True for each open one.

    `labels` are those by which the pod poses as another.
    """
    arguments = (f"{name}={address}" for name, address in targets.items())
    await cluster.apply(build_pod("stranger", namespace, image, KNOCK, *arguments, labels=labels))
    try:
        await until(
            lambda: cluster.existing("pod", "stranger", namespace, 30),
            lambda pod: pod["status"].get("phase") == "Succeeded",
            "the stranger has tried every target", 90 + PATIENCE,
        )  # fmt: skip
        log = await cluster.kubectl("logs", "stranger", "--namespace", namespace)
    finally:
        await cluster.kubectl("delete", "pod", "stranger", "--namespace", namespace, "--ignore-not-found")
    return {name: state == "open" for name, state in (line.split() for line in log.splitlines())}
