"""Fixtures for the operator's tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer

from embereye.process.addresses import free_port

from .faulty import FaultyServer
from .processes.test_operator import answers
from .site import Site


def foreign_crds() -> list[Any]:
    """The kinds of Prometheus' operator, KEDA and the Gateway API, in the minimal form for an API server."""
    crds = []
    for group, version, kind in (
        ("monitoring.coreos.com", "v1", "ServiceMonitor"),
        ("monitoring.coreos.com", "v1", "PrometheusRule"),
        ("keda.sh", "v1alpha1", "ScaledObject"),
        ("gateway.networking.k8s.io", "v1", "GRPCRoute"),
        ("gateway.networking.k8s.io", "v1alpha2", "TCPRoute"),
    ):
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        crds.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.{group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
                },
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                    "versions": [served],
                },
            }
        )
    return crds


@pytest.fixture
def foreign(cluster: ApiServer) -> Iterator[list[str]]:
    """Install kinds of other projects for one test; yields their API paths."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    served = []
    for crd in foreign_crds():
        cluster.request("POST", path, crd)
        spec = crd["spec"]
        served.append(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{{}}{spec['names']['plural']}")
    for entry in served:
        wait_for(lambda entry=entry: cluster.get(entry.format("")), entry)
    yield served
    delete_crds(cluster, foreign_crds())


def delete_crds(cluster: ApiServer, crds: list[Any]) -> None:
    """Delete them and wait until they are gone, because another test may create the same names."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    gone = [f"{path}/{crd['metadata']['name']}" for crd in crds]
    for entry in gone:
        cluster.request("DELETE", entry)
    for crd in crds:
        spec = crd["spec"]
        gone += [f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}" for version in spec["versions"]]
    for entry in gone:
        wait_for(lambda entry=entry: cluster.get(entry) is None, f"no {entry}")


@pytest.fixture
def site(cluster: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Site]:
    log = tmp_path / "log"
    port = free_port()
    with FaultyServer(cluster, tmp_path) as proxy:
        command = [sys.executable, "-m", "embereye_bench.operator.simulated", "--image=test", "--hub=127.0.0.1:9",
                   f"--namespace={namespace}", f"--health-port={port}"]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**os.environ, "KUBECONFIG": str(proxy.kubeconfig)}, stdout=out, stderr=out
            )
        try:
            site = Site(cluster, namespace, proxy, log, port)
            wait_for(lambda: answers(port), "an operator that answers")
            site.wait_until_healed(2)
            yield site
            assert process.poll() is None, "it lives on"
            wait_for(lambda: answers(port), "an operator that is well")
        finally:
            process.kill()
            process.wait(10)
