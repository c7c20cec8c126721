"""Mode hpa with Kubernetes' controller: the operator's number, served as an external metric, scales the fleet."""

import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import wait_for
from harness.need import CONTROLLER_MANAGER
from harness.servers.apiserver import ApiError, ApiServer, install_crds, path_of, run_api_server

from embereye.process.addresses import free_port
from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES

from .test_operator import answers, create, sensor_fleet

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]
GROUP = "/apis/external.metrics.k8s.io/v1beta1"
METRIC = "embereye_fleet_required_shards"


TOLERANT = "HPAConfigurableTolerance=true"  # the feature gate, by default on from Kubernetes 1.35


@pytest.fixture(scope="module", params=["", TOLERANT], ids=["without tolerance", "with tolerance"])
def autoscaled(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """A server whose controller manager scales, with or without support for a tolerance per autoscaler."""
    CONTROLLER_MANAGER.require()
    with run_api_server("horizontal-pod-autoscaler-controller", gates=request.param) as running:
        install_crds(running, [build_crd(fleet) for fleet in FLEET_TYPES.values()])
        yield running


class Adapter(ThreadingHTTPServer):
    """Serves the operator's /metrics like an adapter for Prometheus."""

    def __init__(self, folder: Path, operator_port: int) -> None:
        super().__init__(("127.0.0.1", 0), AdapterHandler)
        self.operator_port = operator_port
        self.lost = False
        self.fleet = "hall"
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
             "-days", "2", "-subj", "/CN=localhost"],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def value(self, namespace: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operator_port}/metrics", timeout=5) as response:
            text = response.read().decode()
        match = re.search(
            rf'^{METRIC}{{fleet="{self.fleet}",kind="sensors",namespace="{namespace}"}} (\S+)', text, re.MULTILINE
        )
        return match[1].removesuffix(".0") if match and not self.lost else ""


class AdapterHandler(BaseHTTPRequestHandler):
    server: Adapter

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        body: Any = None
        if path == GROUP:
            resource = {"name": METRIC, "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            body = {"kind": "APIResourceList", "groupVersion": GROUP.removeprefix("/apis/"), "resources": [resource]}
        elif match := re.fullmatch(f"{GROUP}/namespaces/([^/]+)/{METRIC}", path):
            value = self.server.value(match[1])
            now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": value}
            body = {"kind": "ExternalMetricValueList", "items": [item] if value else []}
            body |= {"apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}}
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def adapter(autoscaled: ApiServer, tmp_path: Path) -> Iterator[tuple[Adapter, Path]]:
    """A simulated operator, its number as the cluster's metric, and the file with the amount of work."""
    port = free_port()
    work = tmp_path / "cores"
    work.write_text("0.1")
    environment = {**os.environ, "KUBECONFIG": str(autoscaled.kubeconfig), "EMBEREYE_SIMULATED_CORES": str(work)}
    command = [sys.executable, "-m", "embereye_bench.operator.simulated", "--image=test", "--hub=127.0.0.1:9",
               "--all-namespaces", f"--health-port={port}"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    wait_for(lambda: answers(port), "an operator that answers")
    server = Adapter(tmp_path, port)
    yield server, work
    process.kill()
    process.wait(10)
    server.shutdown()
    with contextlib.suppress(ApiError):
        autoscaled.request("DELETE", f"{APISERVICES}/v1beta1.external.metrics.k8s.io")
    for name in ("hall", "crowd"):
        with contextlib.suppress(ApiError):
            autoscaled.request("DELETE", f"/apis/embereye.dev/v1alpha1/namespaces/default/sensorfleets/{name}")
            path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}-sensors"
            wait_for(lambda path=path: autoscaled.get(path) is None, "no autoscaler")


APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def register(cluster: ApiServer, adapter: Adapter) -> None:
    """Make the API server query `adapter` for external metrics."""
    service = {"name": "adapter", "namespace": "default", "port": adapter.server_address[1]}
    name = {"kind": "Service", "metadata": {"name": "adapter", "namespace": "default"}}
    if not cluster.get(path_of(name)):
        create(cluster, {**name, "spec": {"type": "ExternalName", "externalName": "localhost"}})
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {
            "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "insecureSkipTLSVerify": True, "service": service,
        },
    }  # fmt: skip
    cluster.request("POST", APISERVICES, registration)


def test_only_the_controller_scales_the_fleet_by_the_operators_number(
    autoscaled: ApiServer, adapter: tuple[Adapter, Path]
) -> None:
    server, work = adapter
    register(autoscaled, server)
    limits = {"mode": "hpa", "minShards": 1, "maxShards": 5, "scaleDown": {"stabilization": "2s"}}
    fleet = path_of(create(autoscaled, sensor_fleet("default", autoscaling=limits)))

    def shards() -> int:
        return int(autoscaled.get(fleet)["spec"]["shards"])

    def conditions() -> dict[str, str]:
        conditions_ = (autoscaled.get(autoscaler) or {}).get("status", {}).get("conditions", [])
        return {entry["type"]: f"{entry['status']} {entry['message']}" for entry in conditions_}

    def wait_until_stable(count: int) -> None:
        wait_for(
            lambda: shards() == count == autoscaled.get(fleet)["status"].get("readyShards"),
            lambda: (shards(), count, server.value("default"), conditions()),
        )

    autoscaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/hall-sensors"
    wait_for(lambda: autoscaled.get(autoscaler), "an autoscaler")
    work.write_text("1.9")  # at 0.7 cores each, and a little for a new shard's start
    wait_until_stable(3)
    server.lost = True
    time.sleep(5)
    assert shards() == 3, "a missing metric removes no shard"
    server.lost = False
    work.write_text("0.1")
    wait_until_stable(1)
    managers = autoscaled.get(fleet)["metadata"]["managedFields"]
    writers = {entry["manager"] for entry in managers if entry.get("subresource") == "scale"}
    assert writers == {"kube-controller-manager"}
    wait_for(lambda: conditions()["ScalingActive"].startswith("True"), "an autoscaler that is well")


def condition(cluster: ApiServer, fleet: str, type_: str = "ScalingActive") -> tuple[str, str, str]:
    conditions = cluster.get(fleet).get("status", {}).get("conditions", [])
    matching = [entry for entry in conditions if entry["type"] == type_]
    return (
        (matching[0]["status"], matching[0].get("reason", ""), matching[0].get("message", ""))
        if matching
        else ("", "", "")
    )


def test_an_autoscaler_without_metric_or_object_is_not_active(
    autoscaled: ApiServer, adapter: tuple[Adapter, Path]
) -> None:
    server, _ = adapter
    limits = {"mode": "hpa", "minShards": 1, "maxShards": 5, "observe": True}
    fleet = path_of(create(autoscaled, sensor_fleet("default", autoscaling=limits)))
    wait_for(lambda: condition(autoscaled, fleet)[:2] == ("False", "Observing"), "a fleet that is only observed")
    autoscaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/hall-sensors"
    assert autoscaled.get(autoscaler) is None
    seen = set()
    autoscaled.merge(fleet, {"spec": {"autoscaling": {"observe": False}}})

    def is_condition(status: str, reason: str) -> bool:
        seen.add(condition(autoscaled, fleet)[:2])
        return condition(autoscaled, fleet)[:2] == (status, reason)

    wait_for(lambda: is_condition("False", "FailedGetExternalMetric"), "no metric", 90)
    assert "HorizontalPodAutoscaler hall-sensors" in condition(autoscaled, fleet)[2]
    assert ("True", "External") not in seen
    register(autoscaled, server)
    wait_for(lambda: is_condition("True", "External"), "an autoscaler that acts", 90)


def test_an_autoscaler_follows_a_step_of_less_than_a_tenth(
    autoscaled: ApiServer, adapter: tuple[Adapter, Path], request: pytest.FixtureRequest
) -> None:
    server, work = adapter
    server.fleet = "crowd"
    tolerant = "with tolerance" in request.node.name
    register(autoscaled, server)
    limits = {"mode": "hpa", "minShards": 1, "maxShards": 20, "scaleDown": {"stabilization": "2s"}}
    work.write_text("6.5")
    fleet = path_of(create(autoscaled, sensor_fleet("default", name="crowd", shards=10, autoscaling=limits)))
    autoscaler = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/crowd-sensors"

    def wait_until_stable(required: int, *counts: int) -> None:
        def state() -> tuple[int, int, int]:
            stored = autoscaled.get(fleet)
            status = stored.get("status", {})
            return status.get("requiredShards", 0), stored["spec"]["shards"], status.get("readyShards", 0)

        wait_for(
            lambda: state() in [(required, count, count) for count in counts],
            lambda: (state(), counts, server.value("default"), autoscaled.get(autoscaler)),
            90,
        )

    wait_until_stable(10, 10)
    behavior = autoscaled.get(autoscaler)["spec"]["behavior"]
    assert [rules.get("tolerance") for rules in behavior.values()] == ["0" if tolerant else None] * 2
    work.write_text("7.15")
    # Without its own tolerance it gets 12. If it reads that while the status still has 10 shards and the number is 11
    # again, it sees a step of 10 % plus a rounding error, and goes to 11, which is the required number.
    wait_until_stable(11, *([11] if tolerant else [11, 12]))
    if tolerant:
        work.write_text("6.5")
        wait_until_stable(10, 10)
