"""KEDA's kinds on a real API server, and a server without them; e2e/test_scaling.py has KEDA itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from harness.need import KEDA_CRDS, program
from harness.servers.apiserver import ApiServer, install_crds

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.manifests.autoscalers import build_scaled_object

from ..conftest import delete_crds
from ..fakes import SETTINGS
from .test_kubernetes import Bench, bench, run_until_complete

__all__ = ["bench"]
pytestmark = pytest.mark.apiserver


def kedas_crds() -> list[Any]:
    KEDA_CRDS.require()
    folder = program("keda-crds")
    assert folder
    return [yaml.safe_load((folder / "keda.sh_scaledobjects.yaml").read_text())]


@pytest.fixture
def keda(cluster: ApiServer) -> Iterator[None]:
    """Install KEDA's CustomResourceDefinition for one test."""
    crds = kedas_crds()
    install_crds(cluster, crds)
    yield
    delete_crds(cluster, crds)


async def ready(bench: Bench) -> None:
    """Wait for a complete fleet of two shards, which KEDA should scale."""
    spec = {"autoscaling": {"mode": "keda", "minShards": 2, "maxShards": 9, "scaleDown": {"stabilization": "90s"}}}
    await asyncio.to_thread(bench.cluster.merge, bench.fleet_path, {"spec": spec})
    await bench.step()
    for index in range(2):
        await bench.start(f"hall-sensors-{index}")
    await run_until_complete(bench)


def scaled_object(bench: Bench, namespace: str) -> Any:
    return bench.cluster.get(f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/hall-sensors")


async def test_a_missing_keda_is_reported_and_nothing_else_affected(bench: Bench) -> None:
    await ready(bench)
    sentence = "autoscaling.mode is keda, but the cluster has no ScaledObject: use embedded"
    assert bench.condition("ScalingActive") == ("False", "NotInstalled", sentence)
    assert bench.condition("Degraded") == ("True", "ScalerMissing", sentence)
    assert bench.condition("Covered")[0] == "True"


@pytest.mark.usefixtures("keda")
async def test_keda_stores_every_declared_field(bench: Bench, namespace: str) -> None:
    await ready(bench)
    assert bench.condition("Degraded")[0] == "False"
    fleet = parse_fleet(bench.cluster.get(bench.fleet_path))
    built = build_scaled_object(fleet, fleet.names.metadata("hall-sensors"), SETTINGS.prometheus)
    stored = scaled_object(bench, namespace)["spec"]
    assert stored == built["spec"], "its schema knows every field, and none is dropped"
    # Not even with strict validation of fields.
    built["metadata"] |= {"name": "strict", "namespace": namespace}
    group = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"
    bench.cluster.request("POST", f"{group}?dryRun=All&fieldValidation=Strict", built)


@pytest.mark.usefixtures("keda")
async def test_kedas_own_conditions_are_reported(bench: Bench, namespace: str) -> None:
    await ready(bench)
    assert bench.condition("ScalingActive")[:2] == ("Unknown", "NotJudged")
    path = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/hall-sensors/status"

    async def judged(**conditions: str) -> tuple[str, str, str]:
        reported = [{"type": type_, "status": status, "reason": "Because"} for type_, status in conditions.items()]
        await asyncio.to_thread(bench.cluster.merge, path, {"status": {"conditions": reported}})
        await run_until_complete(bench)
        return bench.condition("ScalingActive")

    assert (await judged(Ready="True", Active="True", Fallback="False"))[:2] == ("True", "External")
    assert (await judged(Ready="True", Active="True", Fallback="True"))[:2] == ("False", "Fallback")
    assert (await judged(Ready="False"))[:2] == ("False", "Because")


async def test_a_cluster_that_loses_keda_reports_it_and_nothing_else_is_affected(
    bench: Bench, cluster: ApiServer, namespace: str
) -> None:
    crds = kedas_crds()
    install_crds(cluster, crds)
    try:
        await ready(bench)
        assert scaled_object(bench, namespace)
    finally:
        delete_crds(cluster, crds)
    await run_until_complete(bench)
    assert bench.condition("ScalingActive")[:2] == ("False", "NotInstalled")
    assert bench.condition("Covered")[0] == "True"
