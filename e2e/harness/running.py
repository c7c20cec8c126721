"""What a run of tests tells before its summary, as somebody may end it before that: what failed, and what hangs."""

import threading
import time
from collections.abc import Callable

import pytest

PHASES = {"setup", "call", "teardown"}


class RunningTests:
    """A plugin that tells each failure as it comes, and each test, or pause between tests, that lasts too long.

    `write` prints a line; `patience` is in seconds, and longer than a test may take before it is ended. What lasts is
    told where tests run in other processes: in their own, pytest captures what is written meanwhile.
    """

    def __init__(self, write: Callable[[str], None], patience: float = 330.0) -> None:
        self._write = write
        self._patience = patience
        self._since: dict[str, float] = {}  # of each test that runs
        self._told: set[str] = set()
        self._heard = time.monotonic()
        self._ended = threading.Event()

    def look(self, now: float) -> None:
        """Tell once of each test that has run for too long by `now`, a monotonic time in seconds."""
        since = dict(self._since) or {"no test": self._heard}
        for name, began in since.items():
            if now - began >= self._patience and name not in self._told:
                self._told.add(name)
                self._write(f"{name} has been running for {now - began:.0f} s")

    def _watch(self) -> None:
        while not self._ended.wait(min(self._patience / 4, 10)):
            self.look(time.monotonic())

    def pytest_runtestloop(self) -> None:
        """Begin to watch."""
        self._heard = time.monotonic()
        threading.Thread(target=self._watch, name="running tests", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._since[nodeid] = self._heard = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended, with its fixtures."""
        self._since.pop(nodeid, None)
        self._heard = time.monotonic()
        self._told.discard("no test")

    @pytest.hookimpl(trylast=True)  # after the letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a failure, and where it was."""
        crashed = report.when not in PHASES  # its process did: nothing else tells the test's end
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = f": {next(iter(crash.message.splitlines()), '')[:200]}" if crash else ""
            self._write(f"failed in its {'process' if crashed else report.when}: {report.nodeid}{why}")
        if crashed:
            self.pytest_runtest_logfinish(report.nodeid)
