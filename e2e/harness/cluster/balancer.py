"""MetalLB with images built here: gives each Service an address on the nodes' network."""

import asyncio
from pathlib import Path

import yaml

from harness.cluster.cluster import Cluster, CommandError, Json, script, until

BALANCER = "metallb-system"  # its namespace
PROGRAMS = ("metallb-controller", "metallb-speaker")
LAST_BYTES = (200, 230)  # range of the last byte of the addresses that it assigns
BALANCER_ROLES = ("metallb-system:controller", "metallb-system:speaker")


async def install_balancer(cluster: Cluster) -> None:
    """Install the load balancer with a few addresses of the nodes' network."""
    folder = Path(await script("binaries", *PROGRAMS))
    await script("program-image", *PROGRAMS)
    await script("load", *(f"e2e-{program}:latest" for program in PROGRAMS))
    parts = await asyncio.to_thread(
        _upstream_manifests, folder.parent / "metallb" / "config/manifests/metallb-native.yaml"
    )
    first = [part for part in parts if part["kind"] in {"CustomResourceDefinition", "Namespace"}]
    await cluster.apply(*first)
    names = [f"crd/{part['metadata']['name']}" for part in first if part["kind"] != "Namespace"]
    await cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    await cluster.apply(*(part for part in parts if part not in first))
    network = (await cluster.entrance()).rpartition(".")[0].rpartition(".")[0]
    addresses = "-".join(f"{network}.255.{byte}" for byte in LAST_BYTES)

    async def configure_addresses() -> str:
        try:
            await cluster.apply(
                _resource("IPAddressPool", {"addresses": [addresses]}),
                _resource("L2Advertisement", {"ipAddressPools": ["e2e"]}),
            )
        except CommandError as error:
            return str(error)
        return ""

    await until(configure_addresses, lambda problem: not problem, "MetalLB accepts its addresses", 60)
    for workload in ("deployment/controller", "daemonset/speaker"):
        await cluster.kubectl("rollout", "status", workload, "--namespace", BALANCER, "--timeout=120s", limit=130)


def _resource(kind: str, spec: Json) -> Json:
    metadata = {"name": "e2e", "namespace": BALANCER}
    return {"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def _upstream_manifests(manifests: Path) -> list[Json]:
    """MetalLB's manifests with our images and without webhooks, whose certificates take a minute."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parts = [part for part in yaml.load_all(manifests.read_text(), loader) if part]
    for part in parts:
        if part["kind"] not in {"Deployment", "DaemonSet"}:
            continue
        pod = part["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container |= {"image": f"e2e-metallb-{container['name']}:latest", "imagePullPolicy": "Never"}
        if container["name"] == "controller":
            container["args"] = [*container["args"], "--webhook-mode=disabled"]
        else:
            # The upstream image runs as root; its capability has an effect for root only.
            container["securityContext"]["runAsUser"] = 0
    return [part for part in parts if part["kind"] != "ValidatingWebhookConfiguration"]
