"""Processes that hang are detected, reported and restarted: hub and shards by `embereye up`, which systemd restarts."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from harness.eventually import eventually

from embereye.process.addresses import free_ports
from embereye_operator.runtime.local import liveness
from embereye_operator.runtime.local.processes import Exit, ProcessSpec, Supervisor
from embereye_operator.up.watchdog import notify_watchdog

from .test_up import house, talking

# Reports that it is alive until the given file exists, and then obeys its content.
PROGRAM = """
import asyncio, pathlib, sys, time
from embereye.process.http.pages import serve_pages
from embereye.process.lifecycle import run

async def main(stop):
    orders, why = pathlib.Path(sys.argv[1]), ""
    answer = lambda: (503 if why else 200, "text/plain", why.encode())
    await asyncio.sleep(float(sys.argv[3]))
    await serve_pages({"/healthz": answer}, "127.0.0.1", int(sys.argv[2]))
    while not stop.is_set():
        await asyncio.sleep(0.02)
        order = orders.read_text() if orders.exists() else ""
        orders.unlink(missing_ok=True)
        if order == "hang":
            time.sleep(60)
        why = order or why

run(main)
"""
UP = f"""
import sys
from embereye_cli.main import main
import {liveness.__name__} as liveness
liveness.PERIOD_SECONDS, liveness.TIMEOUT_SECONDS = 0.7, 1.0
sys.exit(main())
"""


class Watched:
    """A supervisor with one process, and its reports."""

    def __init__(self, folder: Path, awake: float = 0.0) -> None:
        (port,) = free_ports(1)
        self.orders, self.log = folder / "orders", folder / "hub.log"
        self.exits: list[Exit] = []
        self.supervisor = Supervisor(folder, self.exits.append)
        command = (sys.executable, "-c", PROGRAM, str(self.orders), str(port), str(awake))
        self.spec = ProcessSpec("hub", command, alive=f"http://127.0.0.1:{port}/healthz")

    async def run(self, order: str) -> Exit:
        """Make it follow `order` once it runs; return the report of its end."""
        await self.supervisor.ensure(self.spec)
        self.orders.write_text(order)
        await eventually(lambda: self.exits)
        await self.supervisor.stop("hub")
        return self.exits[0]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Check more often than usual; yields the results, one by one."""
    checks: list[str] = []
    real = liveness._check

    async def ask(*arguments: object) -> str:
        checks.append(await real(*arguments))  # type: ignore[arg-type]
        return checks[-1]

    monkeypatch.setattr(liveness, "PERIOD_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(liveness, "_check", ask)
    return checks


async def test_a_process_that_hangs_is_ended_and_its_log_has_the_stacks(
    tmp_path: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye_operator.runtime.local.processes.STOP_SECONDS", 0.5)
    watched = Watched(tmp_path)
    await watched.supervisor.ensure(watched.spec)
    await eventually(lambda: "" in checks)
    ended = await watched.run("hang")
    assert str(ended).startswith(
        "hub hung and was ended (3 times in a row: it did not answer within 0.5 s). Starting it again in "
    )
    assert checks[-4:] == ["", *["it did not answer within 0.5 s"] * 3]
    log = watched.log.read_text()
    assert "most recent call first" in log
    assert 'File "<string>", line 16 in main' in log


async def test_a_process_that_reports_a_failure_is_ended(tmp_path: Path, checks: list[str]) -> None:
    watched = Watched(tmp_path)
    await watched.supervisor.ensure(watched.spec)
    await eventually(lambda: "" in checks)
    ended = await watched.run("its store is gone")
    assert ended.code == 0, "it ended on SIGTERM"
    assert "(3 times in a row: it reported a failure: its store is gone)" in str(ended)


async def test_a_process_that_has_never_reported_is_starting(tmp_path: Path, checks: list[str]) -> None:
    watched = Watched(tmp_path, awake=4)
    await watched.supervisor.ensure(watched.spec)
    await eventually(lambda: len(checks) > 3 and "" in checks)
    assert all(why.startswith("it could not be reached: ") for why in checks[:3])
    assert not watched.exits
    await watched.supervisor.stop("hub")


async def test_a_process_that_answers_at_times_continues(checks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "slow", "slow", "", "slow", "slow", "", "slow", "slow", "slow for good"])

    async def ask(*_: object) -> str:
        return next(answers)

    monkeypatch.setattr(liveness, "_check", ask)
    monkeypatch.setattr(liveness, "PERIOD_SECONDS", 0.0)
    assert await liveness.until_hung("http://127.0.0.1:1/healthz") == "slow for good"


async def test_a_hub_and_a_shard_that_hang_are_restarted(tmp_path: Path) -> None:
    async with house(tmp_path, program=("-c", UP)) as running, talking(running, "s-01", "s-02"):
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))
        for word, name in (("hub", "hub"), ("shard", "default.hall-sensors-0")):
            (pid,) = running.pids(word)
            os.kill(pid, signal.SIGSTOP)
            await running.until(lambda name=name: running.said(f"{name} hung and was ended (3 times in a row:"))
            await running.until(lambda word=word, pid=pid: running.pids(word) not in ([], [pid]))
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))


async def test_systemds_watchdog_is_notified_twice_per_interval(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        keeping = asyncio.ensure_future(notify_watchdog(environment))
        loop = asyncio.get_running_loop()
        for _ in range(3):
            assert await asyncio.wait_for(loop.sock_recv(manager, 100), 10) == b"WATCHDOG=1"
        (tmp_path / "notify").unlink()
        await asyncio.sleep(0.3)
        assert not keeping.done(), "a restarted manager gets the next notification"
        keeping.cancel()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere"},
        {"WATCHDOG_USEC": "1000000"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
async def test_without_a_watchdog_nothing_is_notified(environment: dict[str, str]) -> None:
    await asyncio.wait_for(notify_watchdog(environment), 10)
