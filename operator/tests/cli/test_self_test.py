"""`embereye self-test` that fails: its errors, and that it removes its fleet. e2e tests its success."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import httpx2 as httpx
import pytest
from harness.servers.apiserver import ApiServer
from lightkube.core.exceptions import ApiError

from embereye.process.addresses import free_port
from embereye.process.tasks import beside
from embereye_cli.cluster.self_test import LABEL, NAME, _SelfTest
from embereye_cli.hub.connection import HubConnection
from embereye_operator.runtime.kubernetes.client.client import Target

pytestmark = pytest.mark.apiserver


def fleets(namespace: str) -> str:
    return f"/apis/embereye.dev/v1alpha1/namespaces/{namespace}/sensorfleets"


def declare(cluster: ApiServer, namespace: str, labels: dict[str, str]) -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "embereye.dev/v1alpha1",
        "kind": "SensorFleet",
        "metadata": {"name": NAME, "labels": labels},
        "spec": {"sensors": [{"id": "s", "zone": "z"}]},
    }
    cluster.request("POST", fleets(namespace), manifest)


def self_test(cluster: ApiServer, namespace: str) -> "subprocess.CompletedProcess[str]":
    nowhere = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "embereye_cli", "self-test", "--kubeconfig", str(cluster.kubeconfig),
               "-n", namespace, "--hub", nowhere, "--target", nowhere, "--within", "1"]  # fmt: skip
    environment = {**os.environ, "KUBECONFIG": ""}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_missing_operator_is_reported_and_nothing_remains(cluster: ApiServer, namespace: str) -> None:
    declare(cluster, namespace, {LABEL: "true"})  # what an interrupted one left
    done = self_test(cluster, namespace)
    assert done.returncode == 1
    assert "the sensor was not covered within 1 s" in done.stderr
    assert f'no operator watches "{namespace}"' in done.stderr
    assert "refused" in done.stderr.lower()
    assert cluster.get(fleets(namespace))["items"] == []


def test_a_foreign_fleet_of_the_same_name_is_not_deleted(cluster: ApiServer, namespace: str) -> None:
    declare(cluster, namespace, {})
    done = self_test(cluster, namespace)
    assert done.returncode == 2
    assert f"{namespace}/{NAME} does not belong to a self-test" in done.stderr
    (fleet,) = cluster.get(fleets(namespace))["items"]
    assert fleet["spec"]["sensors"] == [{"id": "s", "zone": "z"}]


class Storing:
    """An API server that has stored a fleet and does not answer."""

    namespace = "site"

    def __init__(self) -> None:
        self.stored = False
        self.creating = asyncio.Event()

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        if not self.stored:
            raise ApiError(response=httpx.Response(404, json={"code": 404, "message": "not found"}))
        return {"metadata": {"labels": {LABEL: "true"}}}

    async def create(self, _: object) -> None:
        self.stored = True
        self.creating.set()
        await asyncio.Event().wait()

    async def delete(self, *_: object, **__: object) -> None:
        self.stored = False


async def test_an_interruption_during_the_declaration_leaves_nothing() -> None:
    client: Any = Storing()
    hub = HubConnection(hub="127.0.0.1:1", tls=None, console="", given_token="", own_token=None)
    test = _SelfTest(hub, Target(), {}, {}, "", 1)

    async def declare() -> None:
        async with test._fleet(client):
            pytest.fail("it was not declared yet")

    async with beside(declare(), name="declare"):
        await client.creating.wait()
    assert not client.stored
