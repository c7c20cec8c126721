"""Print failures and hanging tests at once: a run may be stopped before pytest prints its summary."""

import threading
import time
from collections.abc import Callable

import pytest

PHASES = {"setup", "call", "teardown"}


class RunningTests:
    """A plugin that prints each failure when it happens, and each test or pause that takes too long.

    `write` prints a line; `patience` is in seconds and longer than the time limit of a test. Slow tests are printed
    only if tests run in other processes: in the same process, pytest captures the output of a running test.
    """

    def __init__(self, write: Callable[[str], None], patience: float = 330.0) -> None:
        self._write = write
        self._patience = patience
        self._since: dict[str, float] = {}  # running test: monotonic seconds of its start
        self._reported: set[str] = set()
        self._heard = time.monotonic()
        self._ended = threading.Event()

    def report_slow(self, now: float) -> None:
        """Print each test once that has run for too long at `now`, in monotonic seconds."""
        since = dict(self._since) or {"no test": self._heard}
        for name, started in since.items():
            if now - started >= self._patience and name not in self._reported:
                self._reported.add(name)
                self._write(f"{name} has been running for {now - started:.0f} s")

    def _watch(self) -> None:
        while not self._ended.wait(min(self._patience / 4, 10)):
            self.report_slow(time.monotonic())

    def pytest_runtestloop(self) -> None:
        """Start the watching thread."""
        self._heard = time.monotonic()
        threading.Thread(target=self._watch, name="running tests", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        """Stop the watching thread."""
        self._ended.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the start of a test."""
        self._since[nodeid] = self._heard = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note the end of a test and its fixtures."""
        self._since.pop(nodeid, None)
        self._heard = time.monotonic()
        self._reported.discard("no test")

    @pytest.hookimpl(trylast=True)  # after pytest's progress letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure and where it happened."""
        crashed = report.when not in PHASES  # the worker process crashed: no other hook reports the test's end
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = f": {next(iter(crash.message.splitlines()), '')[:200]}" if crash else ""
            self._write(f"failed in its {'process' if crashed else report.when}: {report.nodeid}{why}")
        if crashed:
            self.pytest_runtest_logfinish(report.nodeid)
