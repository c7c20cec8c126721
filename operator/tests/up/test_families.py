"""Every server listens on both address families, so that an IPv6-only cluster needs no setting."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.cluster.chart import render
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer
from harness.servers.identity import HUB, Issuer, shard

from embereye.process.addresses import free_ports

from ..processes.test_operator import operator

LOOPBACKS = ("127.0.0.1", "::1")


def has_both() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


both_families = pytest.mark.skipif(not has_both(), reason="there is no ::1 here: enable IPv6 on the loopback device")


def is_accepting(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def check_both_families(ports: dict[str, int], alive: Callable[[], bool]) -> None:
    for name, port in ports.items():
        wait_for(lambda port=port: is_accepting("127.0.0.1", port) or not alive(), f"{name} on port {port}")
    missing = [(name, host) for name, port in ports.items() for host in LOOPBACKS if not is_accepting(host, port)]
    assert missing == []


@both_families
@pytest.mark.parametrize("component", ["sensor", "camera", "hub"])
def test_every_pods_process_answers_on_both_families(component: str, tmp_path: Path) -> None:
    grpc, metrics, tcp, http, control = free_ports(5)
    identity = HUB if component == "hub" else shard("default/sensors/hall", "hall-0")
    environment = {
        **os.environ, "EMBEREYE_SHARD": "hall-0", "EMBEREYE_FLEET": "default/sensors/hall",
        "EMBEREYE_ASSIGNMENT": str(tmp_path / "assignment.json"), "EMBEREYE_HUB": "127.0.0.1:9",
        "EMBEREYE_DATA": str(tmp_path), "EMBEREYE_HOST": "[::]", "EMBEREYE_GRPC_PORT": str(grpc),
        "EMBEREYE_METRICS_PORT": str(metrics), "EMBEREYE_CONTROL_PORT": str(control),
        "EMBEREYE_IDENTITY": str(Issuer(tmp_path).folder(identity)),
    }  # fmt: skip
    ports = {"grpc": grpc, "metrics": metrics, "control": control}
    command = ["shard", component]
    if component == "sensor":
        environment["EMBEREYE_TCP_PORT"], ports["tcp"] = str(tcp), tcp
    if component == "hub":
        # As in the chart.
        hub = next(m for m in render() if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
        (host,) = [text for text in hub["spec"]["template"]["spec"]["containers"][0]["args"] if "--host" in text]
        command, ports["http"] = ["hub", host, f"--grpc-port={grpc}", f"--http-port={http}"], http
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "embereye_cli", *command], env=environment, stdout=log, stderr=log
        )
    try:
        check_both_families(ports, lambda: process.poll() is None)
    finally:
        process.kill()
        process.wait(10)


@both_families
@pytest.mark.apiserver
def test_the_operators_health_is_served_on_both_families(cluster: ApiServer, namespace: str, tmp_path: Path) -> None:
    with operator(cluster, tmp_path / "log", namespace) as (process, port):
        check_both_families({"health": port}, lambda: process.poll() is None)


def test_nothing_in_the_chart_binds_one_family_alone() -> None:
    assert "0.0.0.0" not in str(render())
