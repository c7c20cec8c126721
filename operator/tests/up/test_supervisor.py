"""Processes that `embereye up` keeps running."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from embereye_operator.runtime.local import processes
from embereye_operator.runtime.local.processes import Exit, ProcessSpec, Supervisor


async def test_a_process_that_cannot_be_started_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = asyncio.create_subprocess_exec, 2

    async def start(*arguments: object, **named: object) -> asyncio.subprocess.Process:
        nonlocal left
        if left:
            left -= 1
            raise OSError(12, "Cannot allocate memory")
        return await real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    told: list[Exit] = []
    supervisor = Supervisor(tmp_path, told.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", "import time; time.sleep(60)")))
    async with asyncio.timeout(20):
        while not supervisor.is_running("hub"):
            await asyncio.sleep(0.05)
    assert len(told) == 2
    assert str(told[0]).startswith("hub cannot be started: [Errno 12] Cannot allocate memory. Trying again in ")
    await supervisor.stop("hub")


async def test_a_process_that_is_stopped_while_it_is_being_started_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, starting, stopping = asyncio.create_subprocess_exec, asyncio.Event(), asyncio.Event()
    started: list[asyncio.subprocess.Process] = []

    async def start(*arguments: object, **named: object) -> asyncio.subprocess.Process:
        starting.set()
        await stopping.wait()
        started.append(await real(*arguments, **named))  # type: ignore[arg-type]
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    supervisor = Supervisor(tmp_path, lambda ended: None)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", "import time; time.sleep(60)")))
    await starting.wait()
    stop = asyncio.create_task(supervisor.stop("hub"))
    await asyncio.sleep(0)  # it has begun
    stopping.set()
    await asyncio.wait([stop], timeout=20)
    assert stop.done()
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("print('once'); print('no room\\x1b[2J'); print(); raise SystemExit(2)", "no room\\x1b[2J"),
        ("raise SystemExit(2)", ""),
        ("print('x' * 3000); raise SystemExit(2)", "x" * 999),
    ],
)  # fmt: skip
async def test_what_a_process_said_last_is_told_as_it_ends(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "hub.log").write_text("from an earlier run\n")
    told: list[Exit] = []
    supervisor = Supervisor(tmp_path, told.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script)))
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.05)
    await supervisor.stop("hub")
    why = f": {said}" if said else ""
    assert str(told[0]).startswith(f"hub ended with code 2{why}. Starting it again in ")


async def test_a_process_that_a_signal_without_a_name_ended_is_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(tmp_path, lambda ended: told.append(str(ended)))
    script = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 1)"
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script)))
    async with asyncio.timeout(20):
        while len(told) < 2:
            await asyncio.sleep(0.05)
    await supervisor.stop("hub")
    assert told[0].startswith(f"hub was killed by signal {signal.SIGRTMIN + 1}. Starting it again in ")


async def test_a_log_that_has_grown_large_is_set_aside_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES", 100_000)
    monkeypatch.setattr(processes, "LOG_SECONDS", 0.05)
    (tmp_path / "hub.log").write_text("before\n" * 15_000)  # longer than what comes after it
    script = """
import pathlib, sys, time
before = pathlib.Path(sys.argv[1])
while not before.exists() or before.stat().st_size < 105_000:
    time.sleep(0.02)
time.sleep(0.5)
print("gone on")
"""
    told: list[Exit] = []
    supervisor = Supervisor(tmp_path, told.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script, str(tmp_path / "hub.log.1"))))
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.05)
    await supervisor.stop("hub")
    assert told[0].last_line == "gone on"
    assert (tmp_path / "hub.log").read_text().startswith("gone on\n")
    assert (tmp_path / "hub.log.1").read_text() == "before\n" * 15_000


async def test_a_log_that_cannot_be_set_aside_is_kept_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (log := tmp_path / "hub.log").write_text("kept")
    (tmp_path / "hub.log.1").mkdir()
    processes._rotate(log)
    assert log.read_text() == "kept"
    assert "is not set aside" in caplog.text
