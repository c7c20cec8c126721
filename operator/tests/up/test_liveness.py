"""What hangs is seen, told and started again: hub and shards by `embereye up`, that by systemd."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embereye.process.addresses import free_ports
from embereye_operator.runtime.local import liveness
from embereye_operator.runtime.local.processes import Exit, ProcessSpec, Supervisor
from embereye_operator.up.watchdog import notify_watchdog

from .test_up import house, talking

# Says that it lives, until the file that it is told of is there: then it does what that holds.
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
    """A supervisor with one process, and what it told of it."""

    def __init__(self, folder: Path, awake: float = 0.0) -> None:
        (port,) = free_ports(1)
        self.orders, self.log = folder / "orders", folder / "hub.log"
        self.told: list[Exit] = []
        self.supervisor = Supervisor(folder, self.told.append)
        command = (sys.executable, "-c", PROGRAM, str(self.orders), str(port), str(awake))
        self.spec = ProcessSpec("hub", command, alive=f"http://127.0.0.1:{port}/healthz")

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)

    async def run(self, order: str) -> Exit:
        """Have it do `order` once it runs; what is told of its end."""
        await self.supervisor.ensure(self.spec)
        self.orders.write_text(order)
        await self.until(lambda: self.told)
        await self.supervisor.stop("hub")
        return self.told[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Asked as often as a test can wait for; what came of it, one by one."""
    asked: list[str] = []
    real = liveness._check

    async def ask(*arguments: object) -> str:
        asked.append(await real(*arguments))  # type: ignore[arg-type]
        return asked[-1]

    monkeypatch.setattr(liveness, "PERIOD_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(liveness, "_check", ask)
    return asked


async def test_a_process_that_hangs_is_ended_and_its_log_says_where_it_was(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embereye_operator.runtime.local.processes.STOP_SECONDS", 0.5)
    watched = Watched(tmp_path)
    await watched.supervisor.ensure(watched.spec)
    await watched.until(lambda: "" in asked)
    ended = await watched.run("hang")
    assert str(ended).startswith(
        "hub hung and was ended (3 times in a row: it did not answer within 0.5 s). Starting it again in "
    )
    assert asked[-4:] == ["", *["it did not answer within 0.5 s"] * 3]
    log = watched.log.read_text()
    assert "most recent call first" in log
    assert 'File "<string>", line 16 in main' in log


async def test_a_process_that_says_that_it_does_not_live_is_ended(tmp_path: Path, asked: list[str]) -> None:
    watched = Watched(tmp_path)
    await watched.supervisor.ensure(watched.spec)
    await watched.until(lambda: "" in asked)
    ended = await watched.run("its store is gone")
    assert ended.code == 0, "it was asked to end, and did"
    assert "(3 times in a row it said that it does not live: its store is gone)" in str(ended)


async def test_a_process_that_has_not_said_yet_that_it_lives_is_starting(tmp_path: Path, asked: list[str]) -> None:
    watched = Watched(tmp_path, awake=4)
    await watched.supervisor.ensure(watched.spec)
    await watched.until(lambda: len(asked) > 3 and "" in asked)
    assert all(why.startswith("it could not be reached: ") for why in asked[:3])
    assert not watched.told
    await watched.supervisor.stop("hub")


async def test_a_process_that_answers_now_and_then_goes_on(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "slow", "slow", "", "slow", "slow", "", "slow", "slow", "slow for good"])

    async def ask(*_: object) -> str:
        return next(answers)

    monkeypatch.setattr(liveness, "_check", ask)
    monkeypatch.setattr(liveness, "PERIOD_SECONDS", 0.0)
    assert await liveness.until_hung("http://127.0.0.1:1/healthz") == "slow for good"


async def test_a_hub_and_a_shard_that_stand_still_are_started_again(tmp_path: Path) -> None:
    async with house(tmp_path, program=("-c", UP)) as running, talking(running, "s-01", "s-02"):
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))
        for word, name in (("hub", "hub"), ("shard", "default.hall-sensors-0")):
            (pid,) = running.pids(word)
            os.kill(pid, signal.SIGSTOP)
            await running.until(lambda name=name: running.said(f"{name} hung and was ended (3 times in a row:"))
            await running.until(lambda word=word, pid=pid: running.pids(word) not in ([], [pid]))
        await running.until(lambda: all(device["covered"] for device in running.devices().values()))


async def test_systemd_is_told_that_up_goes_on_twice_in_the_time_that_it_allows(tmp_path: Path) -> None:
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
        assert not keeping.done(), "a manager that is started anew comes back"
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
async def test_where_systemd_asks_for_nothing_nothing_is_told(environment: dict[str, str]) -> None:
    await asyncio.wait_for(notify_watchdog(environment), 10)
