"""Enforcement of NetworkPolicies on nodes that are built here, by a pod on each; kindest/node enforces them already.

`EMBEREYE_POLICIES=kube-router` of e2e/cluster/up chooses kube-router instead.
"""

from pathlib import Path

from harness.cluster.cluster import Cluster, Json

ENFORCER = "e2e-policies"  # in kube-system
OTHERS = ("kindnet", "kube-router")  # DaemonSets that enforce policies
PROGRAM = Path(__file__).with_name("policies.py")


async def enforce_policies(cluster: Cluster, image: str) -> None:
    """Start an enforcing pod on every node, unless the nodes' network enforces policies."""
    for name in OTHERS:
        if await cluster.get("daemonset", name, "--namespace", "kube-system"):
            return
    await cluster.apply(*_manifests(image))
    await cluster.kubectl(
        "rollout", "status", f"daemonset/{ENFORCER}", "--namespace", "kube-system", "--timeout=90s", limit=100
    )


def _manifests(image: str) -> list[Json]:
    metadata: Json = {"name": ENFORCER, "namespace": "kube-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ENFORCER}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": ENFORCER}}
    rules = [
        {"apiGroups": [group], "resources": resources, "verbs": ["list"]}
        for group, resources in (("", ["pods", "namespaces"]), ("networking.k8s.io", ["networkpolicies"]))
    ]
    subject = {"kind": "ServiceAccount", **metadata}
    container = {
        "name": "policies", "image": image, "imagePullPolicy": "Never",
        "securityContext": {"privileged": True, "runAsUser": 0},
        "command": ["python", "-c", PROGRAM.read_text()],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [{"name": "node", "mountPath": "/node"}],
    }  # fmt: skip
    pod = {
        "serviceAccountName": ENFORCER, "hostNetwork": True, "terminationGracePeriodSeconds": 1,
        "priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}],
        "containers": [container], "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
    }  # fmt: skip
    labels = {"app": ENFORCER}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {**rbac, "kind": "ClusterRole", "rules": rules},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
        {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
    ]  # fmt: skip
