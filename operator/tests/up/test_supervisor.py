"""Processes that `embereye up` supervises."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from harness.eventually import eventually

from embereye_operator.runtime.local import processes
from embereye_operator.runtime.local.processes import Exit, ProcessSpec, Supervisor


async def test_a_process_that_cannot_be_started_is_reported_and_retried(
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
    exits: list[Exit] = []
    supervisor = Supervisor(tmp_path, exits.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", "import time; time.sleep(60)")))
    await eventually(lambda: supervisor.is_running("hub"), 20)
    assert len(exits) == 2
    assert str(exits[0]).startswith("hub cannot be started: [Errno 12] Cannot allocate memory. Trying again in ")
    await supervisor.stop("hub")


async def test_a_process_stopped_during_its_start_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    await asyncio.sleep(0)  # its start has begun
    stopping.set()
    await asyncio.wait([stop], timeout=20)
    assert stop.done()
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("print('once'); print('no room\\x1b[2J'); print(); raise SystemExit(2)", "no room\\x1b[2J"),
        ("raise SystemExit(2)", ""),
        ("print('x' * 3000); raise SystemExit(2)", "x" * 999),
    ],
)  # fmt: skip
async def test_the_last_line_of_a_process_is_reported_with_its_end(tmp_path: Path, script: str, expected: str) -> None:
    (tmp_path / "hub.log").write_text("from an earlier run\n")
    exits: list[Exit] = []
    supervisor = Supervisor(tmp_path, exits.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script)))
    await eventually(lambda: exits, 20)
    await supervisor.stop("hub")
    why = f": {expected}" if expected else ""
    assert str(exits[0]).startswith(f"hub ended with code 2{why}. Starting it again in ")


async def test_a_process_ended_by_an_unnamed_signal_is_restarted(tmp_path: Path) -> None:
    exits: list[str] = []
    supervisor = Supervisor(tmp_path, lambda ended: exits.append(str(ended)))
    script = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 1)"
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script)))
    await eventually(lambda: len(exits) >= 2, 20)
    await supervisor.stop("hub")
    assert exits[0].startswith(f"hub was killed by signal {signal.SIGRTMIN + 1}. Starting it again in ")


async def test_a_large_log_is_rotated_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    exits: list[Exit] = []
    supervisor = Supervisor(tmp_path, exits.append)
    await supervisor.ensure(ProcessSpec("hub", (sys.executable, "-c", script, str(tmp_path / "hub.log.1"))))
    await eventually(lambda: exits, 20)
    await supervisor.stop("hub")
    assert exits[0].last_line == "gone on"
    assert (tmp_path / "hub.log").read_text().startswith("gone on\n")
    assert (tmp_path / "hub.log.1").read_text() == "before\n" * 15_000


async def test_a_log_that_cannot_be_rotated_stays_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (log := tmp_path / "hub.log").write_text("kept")
    (tmp_path / "hub.log.1").mkdir()
    processes._rotate(log)
    assert log.read_text() == "kept"
    assert "cannot be rotated" in caplog.text
