"""The owner of the disruption budgets, and its lifetime."""

import time
from collections.abc import Mapping
from typing import Any, cast

import httpx2 as httpx  # lightkube's HTTP client
import pytest
from harness.servers.apiserver import ApiServer
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError

from embereye.units import SECOND
from embereye_operator.runtime.kubernetes.guard import HOLD, RENEW, Guard


class Server:
    """A server with a role and one Job."""

    def __init__(self) -> None:
        self.job: Any = None
        self.renewals = 0
        self.written: list[Mapping[str, Any]] = []
        self.refusal = 0  # HTTP status with which Jobs are refused; 0: accepted

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if name == "operator":
            return {"metadata": {"uid": "role"}}
        if self.job is None:
            raise ApiError(response=httpx.Response(404, json={"code": 404, "message": "gone"}))
        return self.job

    async def patch(self, kind: Any, name: str, manifest: Mapping[str, Any], **options: Any) -> Any:
        if self.refusal:
            raise ApiError(response=httpx.Response(self.refusal, json={"code": self.refusal, "message": "denied"}))
        self.renewals += 1
        self.written.append(manifest)
        metadata, spec = {**manifest["metadata"], "uid": f"job-{self.renewals}"}, manifest["spec"]
        if self.job is not None:
            metadata["uid"], spec = self.job["metadata"]["uid"], {**self.job["spec"], **spec}
        self.job = {**manifest, "metadata": metadata, "spec": spec}
        return self.job


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which the machine was suspended, which CLOCK_MONOTONIC omits."""
    real, seconds = time.clock_gettime_ns, [0.0]

    def read(which: int) -> int:
        return real(which) + int(seconds[0] * SECOND) * (which == time.CLOCK_BOOTTIME)

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    return seconds


async def test_budgets_are_renewed_in_time_after_a_suspend(suspended: list[float]) -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", "example.org/embereye:1", cluster_wide=True)
    assert (await guard.reference("default") or {})["uid"] == "job-1"
    await guard.renew({"default"})
    assert server.renewals == 1
    suspended[0] = RENEW
    await guard.renew({"default"})
    assert server.renewals == 2


async def test_a_job_that_expired_during_a_suspend_owns_no_budget(suspended: list[float]) -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", "example.org/embereye:1", cluster_wide=True)
    assert await guard.reference("default")
    server.job, suspended[0] = None, 3600.0
    assert (await guard.reference("default") or {})["uid"] == "job-2"


@pytest.mark.parametrize("code", [400, 403, 404, 422, 500])
async def test_if_the_job_is_refused_fleets_own_their_budgets(
    code: int, suspended: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", "example.org/embereye:1", cluster_wide=True)
    server.refusal = code
    for _ in range(2):
        for namespace in ("default", "other"):
            assert await guard.reference(namespace) is None
    assert len(caplog.messages) == 2, "logged once for each namespace"
    server.refusal = 0
    assert await guard.reference("default")
    server.refusal, suspended[0] = code, RENEW
    await guard.renew({"default"})
    assert await guard.reference("default") is None


async def test_an_overloaded_server_is_asked_again() -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", "example.org/embereye:1", cluster_wide=True)
    server.refusal = 429
    with pytest.raises(ApiError):
        await guard.reference("default")


async def test_the_job_satisfies_policies_and_its_template_is_written_once(suspended: list[float]) -> None:
    server = Server()
    await Guard(cast("AsyncClient", server), "operator", "example.org/embereye:1", cluster_wide=True).reference("a")
    (container,) = server.job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.org/embereye:1"
    assert set(container["resources"]) == {"requests", "limits"}
    # From the next version, which renews the Job of the previous one.
    guard = Guard(cast("AsyncClient", server), "operator", "example.org/embereye:2", cluster_wide=True)
    assert (await guard.reference("a") or {})["uid"] == "job-1"
    assert "template" not in server.written[1]["spec"]


@pytest.mark.apiserver
async def test_the_next_version_renews_the_job_on_a_real_server(
    cluster: ApiServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"guard-{namespace}"
    cluster.request(
        "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": role}, "rules": []}
    )
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    try:
        created = await Guard(client, role, "example.org/embereye:1", cluster_wide=True).reference(namespace)
        assert created is not None
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{created['name']}"
        cluster.merge(path, {"spec": {"ttlSecondsAfterFinished": 60}})
        assert await Guard(client, role, "example.org/embereye:2", cluster_wide=True).reference(namespace) == created
        assert cluster.get(path)["spec"]["ttlSecondsAfterFinished"] >= HOLD
        assert not caplog.messages
    finally:
        await client.close()
        cluster.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")
