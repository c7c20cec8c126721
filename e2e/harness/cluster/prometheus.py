"""The real Prometheus Operator and a Prometheus as kube-prometheus-stack declares it.

It selects monitors and rules in every namespace, but only with its release's label.
"""

import asyncio
from pathlib import Path

import yaml

from harness.cluster.cluster import Cluster, Json, node_ports, script, until
from harness.servers.prometheus import SILENT, PrometheusApi

MONITORING = "monitoring"  # its namespace
LABELS = {"release": "stack"}
PROGRAMS = ("prometheus", "prometheus-operator", "prometheus-config-reloader")


async def install_prometheus(cluster: Cluster, node: str = "") -> "Prometheus":
    """Install both, Prometheus on `node` if it is given. Returns when Prometheus answers."""
    binaries = Path(await script("binaries", *PROGRAMS))
    await script("program-image", *PROGRAMS)
    await script("load", *(_image(program) for program in PROGRAMS))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}}
    bundle = await asyncio.to_thread(_upstream_manifests, binaries.parent / "prometheus-operator" / "bundle.yaml")
    definitions = [document for document in bundle if document["kind"] == "CustomResourceDefinition"]
    await cluster.apply(namespace, *definitions)
    names = [f"crd/{document['metadata']['name']}" for document in definitions]
    await cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    await cluster.apply(*(document for document in bundle if document not in definitions), *_prometheus(node))
    door = await cluster.existing("service", "door", MONITORING, 30)
    prometheus = Prometheus(f"{await cluster.entrance()}:{node_ports(door)['web']}")

    async def ready() -> bool:
        try:
            return bool(await prometheus.get("status/runtimeinfo"))
        except SILENT:
            return False

    await until(ready, bool, "Prometheus answers", 180)
    return prometheus


def _image(program: str) -> str:
    return f"e2e-{program}:latest"


def _upstream_manifests(bundle: Path) -> list[Json]:
    """The Prometheus Operator's manifests with our images."""
    # A bare "=" in one of its enumerations has a special meaning in YAML 1.1.
    text = bundle.read_text().replace("- =\n", '- "="\n')
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [document for document in yaml.load_all(text, loader) if document]
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":
            continue
        for place in (document["metadata"], *document.get("subjects", [])):
            if "namespace" in place:
                place["namespace"] = MONITORING
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            container |= {"image": _image("prometheus-operator"), "imagePullPolicy": "Never"}
            container["args"] = [
                f"--prometheus-config-reloader={_image('prometheus-config-reloader')}"
                if "config-reloader=" in word
                else word
                for word in container["args"]
            ]
    return documents


def _prometheus(node: str) -> list[Json]:
    """A Prometheus as kube-prometheus-stack declares it, and a node port to reach it."""
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": MONITORING}
    metadata = {"name": "stack", "namespace": MONITORING}
    name = {"name": "e2e-prometheus"}
    selector = {"matchLabels": LABELS}
    everywhere: Json = {}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": MONITORING}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": name,
            "rules": [{"apiGroups": [""], "resources": ["pods", "services", "endpoints"],
                       "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": name,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-prometheus"},
            "subjects": [subject],
        },
        {
            "apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": metadata,
            "spec": {
                "image": _image("prometheus"), "version": "v3.9.1", "imagePullPolicy": "IfNotPresent",
                "serviceAccountName": "prometheus", "evaluationInterval": "5s",
                "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
                "podMonitorSelector": selector, "podMonitorNamespaceSelector": everywhere,
                "serviceMonitorSelector": selector, "serviceMonitorNamespaceSelector": everywhere,
                "ruleSelector": selector, "ruleNamespaceSelector": everywhere,
            },
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "door", "namespace": MONITORING},
            "spec": {"type": "NodePort", "selector": {"prometheus": "stack"}, "ports": [{"name": "web", "port": 9090}]},
        },
    ]  # fmt: skip


class Prometheus(PrometheusApi):
    """The HTTP API, through a NodePort."""

    async def up(self) -> dict[str, int]:
        """The number of scraped targets per job."""
        rows = await self.query("sum by (job) (up)")
        return {row["metric"].get("job", ""): int(row["value"][1]) for row in rows}

    async def follow(self, cluster: Cluster, rules: Json) -> None:
        """Evaluate `rules`. Returns when everything is scraped and the alerts that fire anyway are known."""
        metadata = {"name": "lapsed", "namespace": MONITORING, "labels": LABELS}
        rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": rules}
        await cluster.apply(rule)

        await until(
            lambda: self.is_stable(targets=2),
            bool,
            "Prometheus scrapes everything and its alerts stay as they are",
            240,
        )
        if self.baseline.names:
            cluster.diary.note("alerts", f"firing before any fault: {', '.join(sorted(self.baseline.names))}")
