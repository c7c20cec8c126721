"""prometheus-adapter: passes the operator's numbers from Prometheus to HorizontalPodAutoscalers."""

import re
from typing import Any

import yaml

from harness.cluster.cluster import ROOT, Cluster, Json, script, until
from harness.cluster.prometheus import MONITORING

NAME = "prometheus-adapter"
METRICS = "v1beta1.external.metrics.k8s.io"
READS = "e2e-external-metrics"  # the ClusterRole by which the autoscalers' controller reads metrics
ADAPTER_ROLES = (NAME, READS)
PORT = 6443


def documented_rules() -> list[Any]:
    """The adapter's rules in docs/how-to/operator.md, as values of its Helm chart."""
    text = (ROOT / "docs/how-to/operator.md").read_text()
    match = re.search(r"For prometheus-adapter,.*?  ```yaml\n(.*?)  ```", text, re.DOTALL)
    assert match, "docs/how-to/operator.md has no rules for prometheus-adapter"
    rules: list[Any] = yaml.safe_load(match[1])["rules"]["external"]
    return rules


async def install_adapter(cluster: Cluster) -> None:
    """Install the adapter and wait until it serves external metrics."""
    await script("program-image", NAME)
    await script("load", f"e2e-{NAME}:latest")
    await cluster.apply(*_manifests())

    async def available() -> bool:
        service = await cluster.get("apiservice", METRICS) or {}
        conditions = service.get("status", {}).get("conditions", [])
        return any(entry["type"] == "Available" and entry["status"] == "True" for entry in conditions)

    await until(available, bool, "external metrics are served", 120)


def _manifests() -> list[Json]:
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    metadata: Json = {"name": NAME, "namespace": MONITORING}
    subject: Json = {"kind": "ServiceAccount", **metadata}
    controller: Json = {"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"}

    def role(name: str, api: str, resources: list[str], verbs: list[str]) -> Json:
        rules = [{"apiGroups": [api], "resources": resources, "verbs": verbs}]
        return {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}

    def binding(name: str, role_name: str, to: Json, *, kind: str = "ClusterRole", namespace: str = "") -> Json:
        place = {"name": name} | ({"namespace": namespace} if namespace else {})
        reference = {"apiGroup": group, "kind": kind, "name": role_name}
        bound = "RoleBinding" if namespace else "ClusterRoleBinding"
        return {"apiVersion": rbac, "kind": bound, "metadata": place, "roleRef": reference, "subjects": [to]}

    container = {
        "name": NAME, "image": f"e2e-{NAME}:latest", "imagePullPolicy": "Never",
        "args": [
            "--cert-dir=/tmp/certificate", "--config=/etc/adapter/config.yaml", f"--secure-port={PORT}",
            f"--prometheus-url=http://door.{MONITORING}.svc:9090/", "--metrics-relist-interval=10s",
            "--metrics-max-age=30s",
        ],
        "ports": [{"name": "https", "containerPort": PORT}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/adapter"}, {"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    pod = {
        "serviceAccountName": NAME, "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}, {"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip
    labels = {"app": NAME}
    config = yaml.safe_dump({"externalRules": documented_rules()})
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": config}},
        role(NAME, "", ["nodes", "namespaces", "pods", "services"], ["get", "list", "watch"]),
        role(READS, "external.metrics.k8s.io", ["*"], ["get", "list"]),
        binding(NAME, NAME, subject),
        binding(READS, READS, controller),
        binding(f"{NAME}-delegator", "system:auth-delegator", subject),
        binding(NAME, "extension-apiserver-authentication-reader", subject, kind="Role", namespace="kube-system"),
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": PORT}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": METRICS},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": NAME, "namespace": MONITORING},
            },
        },
    ]  # fmt: skip
