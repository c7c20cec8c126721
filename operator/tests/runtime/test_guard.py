"""Who holds the disruption budgets, and for how long."""

import time
from collections.abc import Mapping
from typing import Any, cast

import httpx2 as httpx  # what lightkube speaks with
import pytest
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.units import SECOND
from embereye_operator.runtime.kubernetes.guard import RENEW, Guard


class Server:
    """Keeps a role and one Job."""

    def __init__(self) -> None:
        self.job: Any = None
        self.held = 0  # times

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if name == "operator":
            return {"metadata": {"uid": "role"}}
        if self.job is None:
            raise ApiError(response=httpx.Response(404, json={"code": 404, "message": "gone"}))
        return self.job

    async def patch(self, kind: Any, name: str, manifest: Mapping[str, Any], **options: Any) -> Any:
        self.held += 1
        self.job = {**manifest, "metadata": {**manifest["metadata"], "uid": f"job-{self.held}"}}
        return self.job


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which the machine was suspended, which are not on CLOCK_MONOTONIC."""
    real, seconds = time.clock_gettime_ns, [0.0]

    def read(which: int) -> int:
        return real(which) + int(seconds[0] * SECOND) * (which == time.CLOCK_BOOTTIME)

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    return seconds


async def test_budgets_are_held_anew_in_time_where_the_operators_machine_was_suspended(suspended: list[float]) -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", cluster_wide=True)
    assert (await guard.reference("default") or {})["uid"] == "job-1"
    await guard.renew({"default"})
    assert server.held == 1
    suspended[0] = RENEW
    await guard.renew({"default"})
    assert server.held == 2


async def test_a_job_that_went_while_the_operators_machine_was_suspended_owns_no_budget(suspended: list[float]) -> None:
    server = Server()
    guard = Guard(cast("AsyncClient", server), "operator", cluster_wide=True)
    assert await guard.reference("default")
    server.job, suspended[0] = None, 3600.0
    assert (await guard.reference("default") or {})["uid"] == "job-2"
