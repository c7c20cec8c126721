"""Supervised local processes: started, restarted with back-off when they die or hang, and stopped in order.

`Supervisor.ensure` starts a `Supervised` process for a `ProcessSpec`, or replaces one with a different spec. Each has a
task that runs the process, reports its end as an `Exit`, waits, and starts it again. A liveness check ends a process
that hangs. `stop` sends SIGTERM, then SIGKILL.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embereye.process.files import open_appending
from embereye.process.lifecycle import PARENT_VARIABLE, STACKS_SIGNAL
from embereye.process.tasks import beside, failure_of, first_of, start_task
from embereye.process.telemetry.logs import visible
from embereye.process.timing.backoff import Backoff
from embereye_operator.runtime.local.liveness import FAILURES, until_hung

logger = logging.getLogger(__name__)
HEALTHY_SECONDS = 10.0  # a process that lived this long resets its back-off
STOP_SECONDS = 5.0  # after SIGTERM, before SIGKILL
LAST_LINE_BYTES = 1000  # of the last line of a log in a message
LOG_BYTES = 16_000_000  # size of a log at which a new one starts; one old log is retained
LOG_SECONDS = 30.0  # seconds between checks of a log's size


@dataclass(frozen=True)
class ProcessSpec:
    """The command to run. Two specs that differ are two different processes."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    alive: str = ""  # URL of its liveness page; '': none


@dataclass(frozen=True)
class Exit:
    """The unexpected end of a supervised process."""

    name: str
    code: int  # negative: the signal that ended it
    retry_in: float  # seconds
    log: Path | None  # None: our own standard error
    failure: str = ""  # why it could not be started; '': it was
    last_line: str = ""  # of its log; '' without output, without a log, or after a signal
    hung: str = ""  # why it counted as hanging and was ended; '': it did not

    def __str__(self) -> str:
        if self.failure:
            return f"{self.name} cannot be started: {self.failure}. Trying again in {self.retry_in:.1f} s"
        how = f"was killed by {_signal_name(-self.code)}" if self.code < 0 else f"ended with code {self.code}"
        why = f": {self.last_line}" if self.last_line else ""
        if self.hung:
            how, why = f"hung and was ended ({FAILURES} times in a row: {self.hung})", ""
        log = f" (log: {self.log})" if self.log else ""
        return f"{self.name} {how}{why}. Starting it again in {self.retry_in:.1f} s{log}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


class Supervised:
    """One process: running, or waiting to be started again."""

    def __init__(self, spec: ProcessSpec, log: Path | None, on_exit: Callable[[Exit], None]) -> None:
        self.spec = spec
        self.log = log
        self.restarts = 0
        self.last_line = ""  # of its log when it last ended
        self._hung = ""  # why the process that ended last counted as hanging
        self._on_exit = on_exit
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self._task = start_task(self._run_repeatedly(), name=f"run-{spec.name}")

    @property
    def pid(self) -> int | None:
        """The process id, or None while it is not running."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def _run_repeatedly(self) -> None:
        backoff = Backoff(floor=0.2, cap=10.0)
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started, code, failure, self._hung = loop.time(), 0, "", ""
            begin = _size(self.log) if self.log else 0
            try:
                code = await self._run()
            except OSError as error:  # no memory, descriptor or disk space: it may succeed later
                failure = str(error)
            if self._stopping.is_set():
                return
            if loop.time() - started > HEALTHY_SECONDS:
                backoff.reset()
            self.restarts += 1
            pause = backoff.next()
            # After a signal the last line is unrelated; after a crash, it is part of the stacks.
            self.last_line = _last_line(self.log, begin) if self.log and code >= 0 else ""
            self._on_exit(Exit(self.spec.name, code, pause, self.log, failure, self.last_line, self._hung))
            await first_of(self._stopping.wait(), timeout=pause)

    async def _run(self) -> int:
        """Start the process and wait for its end; return its exit code."""
        with open_appending(self.log) if self.log else contextlib.nullcontext(sys.stderr) as log:
            # A separate session: Ctrl-C reaches only this process, which stops the others in an order without losses.
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **self.spec.environment,
                    PARENT_VARIABLE: str(os.getpid()),
                    "PYTHONUNBUFFERED": "1",
                },
                start_new_session=True,
            )
        if self._stopping.is_set():  # `stop` was called before the process existed
            await self._end(self._process)
        async with beside(self._end_hung(self._process), name=f"end-hung-{self.spec.name}"):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOG_SECONDS):
                        return await self._process.wait()
                if self.log and _size(self.log) > LOG_BYTES:
                    await asyncio.to_thread(_rotate, self.log)

    async def _end_hung(self, process: Process) -> None:
        """End `process` once it hangs, after it has written its stacks into its log."""
        if not self.spec.alive:
            return
        self._hung = await until_hung(self.spec.alive)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(STACKS_SIGNAL)
        await self._end(process)

    async def _end(self, process: Process) -> None:
        """Send SIGTERM, and SIGKILL if it does not end in time."""
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            logger.warning("%s did not stop within %g s: killing it", self.spec.name, STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """Stop the process for good."""
        self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            await self._end(process)
        await asyncio.wait([self._task])
        if (error := failure_of(self._task)) is not None:
            logger.error("%s could not be run: %s", self.spec.name, error)


def _size(log: Path) -> int:
    with contextlib.suppress(OSError):
        return log.stat().st_size
    return 0


def _rotate(log: Path) -> None:
    """Move the content of `log` to another file. `log` stays the same file, which its process still writes."""
    before = log.with_name(f"{log.name}.1")
    try:
        before.unlink(missing_ok=True)  # first, because a full disk needs the space
        shutil.copy(log, before)
        os.truncate(log, 0)
    except OSError as error:
        logger.warning("%s: too large, but cannot be rotated: %s", log, error)


def _last_line(log: Path, begin: int) -> str:
    """Return the last line of `log` after byte `begin`, safe for a terminal; '' if there is none."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(begin if begin <= end else 0, end - LAST_LINE_BYTES))
            lines = file.read(LAST_LINE_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((visible(line.strip()) for line in reversed(lines) if line.strip()), "")


class Supervisor:
    """The processes of one `embereye up`, by name."""

    def __init__(self, logs: Path | None, on_exit: Callable[[Exit], None]) -> None:
        """Write logs into the folder `logs`; None: processes use our standard error."""
        self._logs = logs
        self._on_exit = on_exit
        self._running: dict[str, Supervised] = {}
        if logs:
            logs.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name: str) -> Supervised:
        return self._running[name]

    def is_running(self, name: str) -> bool:
        """True if the process `name` is running."""
        return name in self._running and self._running[name].pid is not None

    @property
    def names(self) -> Sequence[str]:
        """Return the names of all processes, in the order they were started."""
        return list(self._running)

    async def ensure(self, spec: ProcessSpec) -> None:
        """Run `spec`; a process of the same name with another spec is replaced."""
        current = self._running.get(spec.name)
        if current is not None:
            if current.spec == spec:
                return
            await self.stop(spec.name)
        self._running[spec.name] = Supervised(
            spec, self._logs / f"{spec.name}.log" if self._logs else None, self._on_exit
        )

    async def stop(self, name: str) -> None:
        """Stop the process `name` if there is one."""
        process = self._running.pop(name, None)
        if process is not None:
            await process.stop()

    async def stop_all(self, names: Sequence[str]) -> None:
        """Stop these processes together."""
        await asyncio.gather(*(self.stop(name) for name in names))
