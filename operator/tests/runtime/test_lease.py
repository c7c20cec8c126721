"""Leader election: which of several operators acts."""

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx2 as httpx  # lightkube's HTTP client
import pytest
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye.units import SECOND
from embereye_operator.runtime.kubernetes import lease
from embereye_operator.runtime.kubernetes.lease import DEADLINE, DURATION, Election


class Server:
    """A server with one Lease, which can only be replaced in the version that was read."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.version = 0
        self.down = False

    def _check(self) -> None:
        if self.down:
            raise httpx.ConnectError("connection refused")

    @staticmethod
    def _error(code: int) -> ApiError:
        return ApiError(response=httpx.Response(code, json={"code": code, "message": str(code)}))

    async def get(self, kind: Any, name: str, namespace: str) -> Any:
        self._check()
        if self.lease is None:
            raise self._error(404)
        return copy.deepcopy(self.lease)

    async def create(self, body: Any) -> None:
        self._check()
        if self.lease is not None:
            raise self._error(409)
        self._store(body)

    async def replace(self, body: Any, name: str) -> None:
        self._check()
        if body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise self._error(409)
        self._store(body)

    def _store(self, body: Any) -> None:
        self.version += 1
        self.lease = copy.deepcopy(dict(body))
        self.lease["metadata"]["resourceVersion"] = str(self.version)


class Clock:
    """A clock in monotonic seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RETRY", 0.0)


def candidate(server: Server, clock: Clock, name: str) -> Election:
    return Election(cast("AsyncClient", server), "operator", "embereye", holder=name, clock=clock)


@contextlib.asynccontextmanager
async def running(*elections: Election) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(election.run()) for election in elections]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def rounds(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_of_two_leads_and_keeps_leading() -> None:
    server, clock = Server(), Clock()
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    async with running(first, second):
        for _ in range(30):
            await rounds()
            assert [first.is_leading(), second.is_leading()].count(True) == 1
            clock.now += 2
    assert server.lease["spec"]["leaseTransitions"] == 0


async def test_a_dead_leader_is_replaced_once_its_lease_is_old() -> None:
    server, clock = Server(), Clock()
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    async with running(first):
        await rounds()
        assert first.is_leading()
    async with running(second):
        await rounds()
        clock.now += DURATION - 1
        await rounds()
        assert not second.is_leading()
        clock.now += 2
        await rounds()
        assert second.is_leading()
        assert not first.is_leading()
    assert server.lease["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_stops_in_order_is_replaced_at_once() -> None:
    server, clock = Server(), Clock()
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    async with running(first):
        await rounds()
    await first.release()
    assert not first.is_leading()
    async with running(second):
        await rounds()
        assert second.is_leading()


async def test_a_leader_stops_even_if_the_server_is_absent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock = Server(), Clock()
    only = candidate(server, clock, "a")
    async with running(only):
        await rounds()
        assert only.is_leading()
    server.down = True
    with caplog.at_level("INFO"):
        await only.release()
    assert not only.is_leading()
    assert "lease embereye/operator is not released: connection refused" in caplog.text


async def test_a_leader_that_cannot_renew_stops_before_another_takes_over() -> None:
    server, clock = Server(), Clock()
    changes: list[bool] = []
    first = candidate(server, clock, "a")
    first.changed = changes.append
    async with running(first):
        await rounds()
        server.down = True
        clock.now += DEADLINE - 1
        await rounds()
        assert first.is_leading()
        clock.now += 1
        assert not first.is_leading()
        await rounds()
        server.down = False
        await rounds()
        assert first.is_leading()
    assert changes == [True, False, True]


async def test_a_suspended_leader_knows_that_it_is_late() -> None:
    server, clock = Server(), Clock()
    first = candidate(server, clock, "a")
    async with running(first):
        await rounds()
    clock.now += DURATION + 1  # it wakes in the middle of a pass
    assert not first.is_leading()


async def test_a_leader_on_a_suspended_machine_knows_that_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Election(cast("AsyncClient", Server()), "operator", "embereye", holder="a")
    async with running(first):
        await rounds()
        assert first.is_leading()
    real, suspended = time.clock_gettime_ns, int((DURATION + 1) * SECOND)
    # CLOCK_MONOTONIC stopped meanwhile.
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda which: real(which) + suspended * (which == time.CLOCK_BOOTTIME)
    )
    assert not first.is_leading()


async def test_clocks_of_others_are_not_trusted() -> None:
    server, clock = Server(), Clock()
    first, second = candidate(server, clock, "a"), candidate(server, clock, "b")
    async with running(first):
        await rounds()
    server.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    async with running(second):
        await rounds()
        assert not second.is_leading(), "an old time may only be from a slow clock"


async def test_missing_renewals_make_the_operator_unhealthy() -> None:
    server, clock = Server(), Clock()
    first = candidate(server, clock, "a")
    clock.now += 1000
    assert not first.unhealthy(), "a replica without its first list does not join the election"
    async with running(first):
        server.down = True
        await rounds()
        clock.now += 1000
        await rounds()
        assert not first.unhealthy(), "an absent server is no reason for a restart"
    clock.now += 1000
    assert "no attempt" in first.unhealthy()
