"""KEDA with images built here: creates a HorizontalPodAutoscaler for each ScaledObject."""

import asyncio
from pathlib import Path

import yaml

from harness.cluster.adapter import METRICS
from harness.cluster.cluster import Cluster, Json, script, until

KEDA = "keda"  # its namespace
PROGRAMS = {"keda-operator": "keda-operator", "keda-metrics-apiserver": "keda-adapter"}  # container → program
# Its config folder without the webhooks, which only refuse objects that the operator never declares.
PARTS = ("crd/bases", "general", "service_account", "rbac", "manager", "metrics-server")
KEDA_ROLES = (
    "keda-operator",
    "keda-external-metrics-reader",
    "keda-hpa-controller-external-metrics",
    "keda-system-auth-delegator",
)
KEDA_READER = "keda-auth-reader"  # a RoleBinding in kube-system


async def install_keda(cluster: Cluster) -> None:
    """Install KEDA as the cluster's only server of external metrics."""
    folder = Path(await script("binaries", *PROGRAMS.values()))
    await script("program-image", *PROGRAMS.values())
    await script("load", *(f"e2e-{program}:latest" for program in PROGRAMS.values()))
    parts = await asyncio.to_thread(_upstream_manifests, folder.parent / "keda" / "config")
    await cluster.kubectl("delete", "apiservice", METRICS, "--ignore-not-found")
    first = [part for part in parts if part["kind"] in {"CustomResourceDefinition", "Namespace"}]
    await cluster.apply(*first)
    names = [f"crd/{part['metadata']['name']}" for part in first if part["kind"] != "Namespace"]
    await cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    await cluster.apply(*(part for part in parts if part not in first))

    async def available() -> bool:
        service = await cluster.get("apiservice", METRICS) or {}
        conditions = service.get("status", {}).get("conditions", [])
        return any(entry["type"] == "Available" and entry["status"] == "True" for entry in conditions)

    await until(available, bool, "KEDA serves external metrics", 240)


def _upstream_manifests(config: Path) -> list[Json]:
    """KEDA's manifests with our images."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = [path for part in PARTS for path in sorted((config / part).glob("*.yaml"))]
    texts = [path.read_text() for path in files if path.name != "kustomization.yaml"]
    parts = [part for text in texts for part in yaml.load_all(text, loader) if part]
    for part in parts:
        if part["kind"] != "Deployment":
            continue
        (container,) = part["spec"]["template"]["spec"]["containers"]
        container |= {"image": f"e2e-{PROGRAMS[container['name']]}:latest", "imagePullPolicy": "Never"}
        container.pop("command", None)  # our image has an entry point; so it needs neither command nor program name
        container["args"] = [word for word in container["args"] if word.startswith("--")]
        if container["name"] == "keda-operator":
            container["args"].append("--enable-webhook-patching=false")
        # The upstream image names its user; ours needs a number.
        part["spec"]["template"]["spec"]["securityContext"]["runAsUser"] = 65532
    return parts
