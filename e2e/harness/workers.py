"""Plugins for pytest-xdist: a test that fails or crashes its worker process must not stop the other tests."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Retain gRPC's poller until the process ends, once a test has failed.

    A failed test may leave a running server behind. When that server is garbage-collected as the last one, gRPC waits
    for its poller to end, possibly for ever. No time limit applies there, because no test is running.
    """
    if report.failed:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(_retain_poller())


async def _retain_poller() -> None:
    grpc.aio.init_grpc_aio()  # needs a running loop


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """The scheduler of `--dist loadfile`, without its endless wait after a worker has crashed.

    The original reassigns all files of that worker, including finished ones, for which no result ever arrives.
    """

    def remove_node(self, node: "WorkerController") -> str | None:
        """Reassign the tests that `node` has not run. Returns the test that crashed it; None if it ended normally."""
        files = self.assigned_work.pop(node)
        left = {name: [test for test, done in tests.items() if not done] for name, tests in files.items()}
        crashed = next((tests[0] for tests in left.values() if tests), None)
        for name, tests in left.items():
            if rest := dict.fromkeys((test for test in tests if test != crashed), False):
                self.workqueue[name] = rest
        for other in self.assigned_work if crashed else ():
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: "WorkerController") -> None:
        if node not in self.registered_collections:
            return  # it is still starting, as the replacement of another worker
        super()._reschedule(node)
        # A worker starts a test only when it knows the next one.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> LoadFileScheduling | None:
    """Replace the scheduler of `--dist loadfile` by ours."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
