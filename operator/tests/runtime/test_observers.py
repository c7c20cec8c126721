"""The life of operators as commands see it, by their Leases on a real API server."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from harness.servers.apiserver import ApiServer
from lightkube import AsyncClient, KubeConfig

from embereye_operator.runtime.kubernetes.lease import Election
from embereye_operator.runtime.kubernetes.observers import absent_operators

from ..processes.test_operator import create

pytestmark = pytest.mark.apiserver


def renewal(ago: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lease(namespace: str, ago: float, holder: str = "pod-1") -> dict[str, object]:
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": namespace, "name": f"operator-{holder or 'none'}"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": renewal(ago)},
    }  # fmt: skip


async def test_operators_whose_leases_are_not_renewed_are_absent(cluster: ApiServer, namespace: str) -> None:
    for manifest in (lease(namespace, 75), lease(namespace, 1, "pod-2"), lease(namespace, 1, "")):
        create(cluster, manifest)
    names = {f"{namespace}/operator-{holder}" for holder in ("pod-1", "pod-2", "none", "gone")}
    async with AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get()) as client:
        absent, problems = await absent_operators(client, {*names, ""}, watch_seconds=0.1)
    reasons = {name.rpartition("-")[2]: why.partition(" ")[2].partition(" ")[2] for name, why in absent.items()}
    assert re.fullmatch(r"has not renewed its Lease for (7[5-9]|[89]\d) s", reasons.pop("1"))  # a busy machine is late
    assert reasons == {
        "none": "does not run: no replica holds its Lease",
        "gone": "has no Lease: it was removed",
    }
    assert not problems


async def test_an_operator_whose_clock_is_behind_lives(cluster: ApiServer, namespace: str) -> None:
    create(cluster, lease(namespace, 75))
    name = f"{namespace}/operator-pod-1"
    async with AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get()) as client:
        election = Election(client, "operator-pod-1", namespace, holder="pod-1")
        asking = asyncio.ensure_future(absent_operators(client, {name}, watch_seconds=2))
        await asyncio.sleep(0.5)
        assert await election._attempt()
        assert await asking == ({}, [])
