"""The explanation of a hub that does not answer."""

import os
import subprocess
import sys
from typing import Any

import pytest
from harness.servers.apiserver import ApiServer

from embereye_operator.decide.cluster.hub_pod import needed_secrets, why_hub_is_away
from embereye_operator.runtime.kubernetes.hub_pods import service_of


def pod(phase: str = "Running", node: str = "node-1", **status: Any) -> Any:
    return {
        "metadata": {"name": "hub-1", "namespace": "embereye", "uid": "1"},
        "spec": {"nodeName": node, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "hub"}}]},
        "status": {"phase": phase, **status},
    }


def claim(phase: str, storage_class: str | None) -> Any:
    return {"metadata": {"name": "hub"}, "spec": {"storageClassName": storage_class}, "status": {"phase": phase}}


def waiting(reason: str) -> Any:
    return pod("Pending", containerStatuses=[{"image": "embereye:9", "state": {"waiting": {"reason": reason}}}])


NO_CLASS = ["Claim hub", "no default storage class", "hub.persistence.storageClass", "hub.persistence.enabled=false"]
IMAGE = ["embereye:9", "ImagePullBackOff", "image.repository"]
UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]


@pytest.mark.parametrize(
    ("pods", "claims", "words"),
    [
        ([], [], ["no pod"]),
        ([pod()], [claim("Bound", "fast")], []),
        ([pod("Pending", "")], [claim("Pending", None)], NO_CLASS),
        ([pod("Pending", "")], [claim("Pending", "fast")], ["storage class fast", "describe pvc hub"]),
        ([pod("Pending", "")], [], ["does not exist"]),
        ([pod("Pending", "", conditions=UNPLACED)], [claim("Bound", "fast")], ["cannot be placed: 0/3 nodes"]),
        ([waiting("ImagePullBackOff")], [claim("Bound", "fast")], IMAGE),
        ([waiting("CrashLoopBackOff")], [claim("Bound", "fast")], ["crashes repeatedly"]),
    ],
)  # fmt: skip
def test_the_reason_of_an_absent_hub_comes_with_a_remedy(pods: Any, claims: Any, words: list[str]) -> None:
    sentence = why_hub_is_away(pods, claims)
    assert bool(sentence) == bool(words)
    for word in words:
        assert word in sentence


MOUNTS = [
    {"name": "admin", "secret": {"secretName": "hub-admin", "items": [{"key": "token", "path": "token"}]}},
    {"name": "identity", "secret": {"secretName": "hub-identity"}},
    {"name": "mqtt", "secret": {"secretName": "mqtt", "optional": True}},
    {"name": "all", "projected": {"sources": [{"secret": {"name": "tls"}}, {"configMap": {"name": "c"}}]}},
]
VARIABLE = {"name": "DSN", "valueFrom": {"secretKeyRef": {"name": "database", "key": "dsn"}}}
WHOLE = {"hub-admin": {"token"}, "hub-identity": {"tls.crt"}, "tls": {"a"}, "database": {"dsn"}}


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        (WHOLE, []),
        ({**WHOLE, "hub-admin": None}, ["Secret hub-admin does not exist", "helm upgrade"]),
        ({**WHOLE, "hub-identity": None, "tls": None}, ["hub-identity does not exist", "tls does not exist"]),
        ({**WHOLE, "hub-admin": set()}, ["Secret hub-admin has no key token"]),
        ({**WHOLE, "database": {"x"}}, ["Secret database has no key dsn"]),
        ({}, []),
    ],
)
def test_the_secrets_that_a_waiting_hub_lacks_are_named(secrets: Any, words: list[str]) -> None:
    waits = pod("Pending")
    waits["spec"] |= {"volumes": MOUNTS, "containers": [{"name": "hub", "env": [VARIABLE]}]}
    assert needed_secrets(waits).keys() == WHOLE.keys()
    sentence = why_hub_is_away([waits], [], secrets)
    assert ("Secret" in sentence) == bool(words)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("address", "service"),
    [
        ("embereye-hub.embereye.svc:50052", ("embereye-hub", "embereye")),
        ("embereye-hub.embereye.svc.cluster.local:50052", ("embereye-hub", "embereye")),
        ("embereye-hub:50052", ("embereye-hub", "")),
        ("127.0.0.1:9", None),
        ("localhost:50052", None),
        ("hub.example.com:50052", None),
    ],
)
def test_a_hubs_service_is_derived_from_its_address(address: str, service: Any) -> None:
    assert service_of(address) == service


@pytest.mark.apiserver
def test_status_names_a_hub_that_waits_for_its_volume(cluster: ApiServer, namespace: str) -> None:
    labels = {"app.kubernetes.io/name": "embereye", "app.kubernetes.io/component": "hub"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "hub", "image": "embereye:9"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    deployment = {"metadata": {"name": "hub", "labels": labels}, "spec": spec}
    cluster.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    waiting = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core = f"/api/v1/namespaces/{namespace}"
    cluster.request("POST", f"{core}/persistentvolumeclaims", {"metadata": {"name": "hub"}, "spec": waiting})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "hub"}}]
    created = {"metadata": {"name": "hub-1", "labels": labels}, "spec": {**template["spec"], "volumes": volumes}}
    cluster.request("POST", f"{core}/pods", created)
    command = [sys.executable, "-m", "embereye_cli.plugin", "status"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stderr
    (line,) = [line for line in output.splitlines() if line.startswith(f"hub {namespace}/hub does not run: ")]
    assert "no default storage class" in line
    assert "hub.persistence.storageClass" in line
    cluster.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/deployments/hub")
