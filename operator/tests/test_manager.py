"""The life of an operator process: startup, failure, end."""

import asyncio
import contextlib
import copy
import logging
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from harness.eventually import wait_for
from harness.servers.apiserver import ApiServer

from embereye_operator.controller import Controller
from embereye_operator.handlers import MAX_REMEMBERED, REPEAT_SECONDS, RepetitionFilter, run_operator
from embereye_operator.manager import Manager
from embereye_operator.runtime.kubernetes.lease import Election

from .faulty import FaultyServer, status
from .processes.test_operator import answers, create, operator, sensor_fleet, wait_for_children
from .processes.test_operator import names as child_names


class FakeController:
    """A controller that has listed everything at once, and fails on request."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        try:
            await self.fails.wait()
            raise RuntimeError("a bug")
        finally:
            self.ended = True

    async def synced(self) -> None:
        await asyncio.sleep(0)

    def lead(self, leading: bool) -> None: ...


class FakeElection:
    """An election that records its release."""

    def __init__(self, controller: FakeController) -> None:
        self.controller = controller
        self.released = 0

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        assert self.controller.ended, "all work has stopped"
        self.released += 1


async def made() -> tuple[Any, Any, Manager, list[str]]:
    controller, closed = FakeController(), list[str]()
    election = FakeElection(controller)
    stack = AsyncExitStack()
    stack.callback(closed.append, "closed")
    manager = Manager(cast("Controller", controller), cast("Election", election), asyncio.Event(), stack)
    await manager.start()
    return controller, election, manager, closed


async def test_the_lease_is_released_after_all_work_and_before_closing() -> None:
    controller, election, manager, closed = await made()
    assert not controller.ended
    await manager.stop()
    assert controller.ended
    assert (election.released, closed) == (1, ["closed"])
    await manager.stop()
    assert (election.released, closed) == (1, ["closed"]), "a second stop does nothing"
    assert not manager.failed


async def test_a_failed_task_ends_the_operator() -> None:
    controller, _, manager, _ = await made()
    controller.fails.set()
    await asyncio.wait_for(manager.stopping.wait(), 20)
    assert manager.failed
    await manager.stop()


async def test_one_manager_serves_all_objects() -> None:
    _, _, manager, _ = await made()
    assert copy.copy(manager) is manager
    await manager.stop()


async def test_kopf_does_not_wait_for_a_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = list[str]()
    monkeypatch.setattr("socket.gethostbyaddr", lambda name: lookups.append(name) or (name, [], []))
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    _, _, manager, _ = await made()
    manager.stopping.set()
    with contextlib.suppress(Exception):  # there is no cluster
        await asyncio.wait_for(run_operator(manager, namespaces=["default"]), 60)
    assert not lookups, "everything would wait for the resolver"


def test_only_kopfs_repeated_messages_are_dropped_for_a_while() -> None:
    now = [1000.0]
    seen = RepetitionFilter("kopf", clock=lambda: now[0])

    def shown(name: str, text: str) -> bool:
        return bool(seen.filter(logging.LogRecord(name, logging.ERROR, "", 0, text, (), None)))

    assert shown("kopf.clients", "Request attempt #1 failed: GET /a")
    assert not shown("kopf.clients", "Request attempt #2 failed: GET /b")
    assert shown("kopf.clients", "Something else")
    assert shown("kopf.watching", "Request attempt #1 failed")
    assert shown("embereye", "Request attempt #1 failed")
    assert shown("embereye", "Request attempt #1 failed")
    now[0] += REPEAT_SECONDS
    assert shown("kopf.clients", "Request attempt #3 failed: GET /a")


def test_old_messages_of_kopf_are_forgotten() -> None:
    now = [1000.0]
    seen = RepetitionFilter("kopf", clock=lambda: now[0])
    for number in range(10 * MAX_REMEMBERED):
        now[0] += 10.0
        assert seen.filter(logging.LogRecord("kopf.objects", logging.ERROR, "", 0, f"[default/{number}] x", (), None))
    assert len(seen._logged) <= MAX_REMEMBERED


@pytest.mark.apiserver
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_and_soon(
    cluster: ApiServer, namespace: str, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_LEASE", f"{namespace}/operator")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"
    with operator(cluster, tmp_path / "log", namespace) as (process, _):
        create(cluster, sensor_fleet(namespace))
        wait_for_children(cluster, namespace, child_names(1))
        assert cluster.get(lease)["spec"]["holderIdentity"]
        process.send_signal(number)
        assert process.wait(30) == 0
    assert not cluster.get(lease)["spec"].get("holderIdentity")
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert " ERROR " not in log


@pytest.mark.apiserver
def test_it_waits_for_definitions_alive_and_ends_on_request(cluster: ApiServer, namespace: str, tmp_path: Path) -> None:
    def without_definitions(request: web.Request) -> web.StreamResponse | None:
        return status(404, "the server could not find it") if "/embereye.dev/" in request.path else None

    with FaultyServer(cluster, tmp_path) as proxy:
        proxy.judge = without_definitions
        with operator(cluster, tmp_path / "a", namespace, kubeconfig=proxy.kubeconfig) as (process, port):
            wait_for(lambda: answers(port), "an operator that answers")
            time.sleep(3)
            assert answers(port)
            process.terminate()
            assert process.wait(30) == 0
        with operator(cluster, tmp_path / "b", namespace, kubeconfig=proxy.kubeconfig) as (_, port):
            wait_for(lambda: answers(port), "an operator that answers")
            time.sleep(2)
            proxy.judge = lambda _: None
            create(cluster, sensor_fleet(namespace))
            wait_for_children(cluster, namespace, child_names(1))
