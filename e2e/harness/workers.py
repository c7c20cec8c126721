"""For pytest-xdist: what a test that fails, or crashes its worker process, leaves to the others."""

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
    """Keep gRPC's poller for as long as the process, once a test has failed.

    Such a test may leave a server that was not stopped. Where that is the last one, gRPC ends its poller once the
    server is collected as garbage, and waits for that for ever, in no test, where nothing ends what hangs.
    """
    if report.failed:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(_keep_poller())


async def _keep_poller() -> None:
    grpc.aio.init_grpc_aio()  # in a loop, where it is the first


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """As `--dist loadfile`, which waits for ever once a worker has crashed.

    It hands out all files of that worker again, those too that nothing is left of, which no result ever follows.
    """

    def remove_node(self, node: "WorkerController") -> str | None:
        """Leave to others what `node` has not run; returns the test that it crashed in, or None where it ended."""
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
            return  # it is being started in the place of another one
        super()._reschedule(node)
        # A worker begins with a test once it knows the next one.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> LoadFileScheduling | None:
    """Have our scheduler in the place of the one that it mends."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
