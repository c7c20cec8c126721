"""One site for a module of ordered steps, one progress line per step, the numbers at the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
from harness.cluster.cluster import Cluster
from harness.cluster.keep import save_records
from harness.cluster.site import SITE, SYSTEM, Site, results_folder
from harness.need import CLUSTER, HELM, KUBECTL
from harness.records.diary import Diary
from harness.records.page import write_page

DIARIES: pytest.StashKey[list[Diary]] = pytest.StashKey()
FAILED: pytest.StashKey[bool] = pytest.StashKey()
CLEAN: pytest.StashKey[bool] = pytest.StashKey()  # the module before has cleaned the cluster


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Print no dots between the progress lines of cluster tests; tests of `make test` have dots."""
    has_line = report.nodeid.startswith("e2e/test_") and report.when == "call" and report.passed
    return ("passed", "", "PASSED") if has_line else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember that a step failed, because later steps depend on it."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed and item.parent:
        item.parent.stash[FAILED] = True
    return report  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _in_order(request: pytest.FixtureRequest) -> None:
    if request.node.parent.stash.get(FAILED, False):
        pytest.skip("an earlier step failed")


@pytest.fixture(scope="session")
def print_line(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """A function that prints a line at once, past pytest's capturing."""
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.showfspath = False  # otherwise the module's name appears between the lines

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()

    return write


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, print_line: Callable[[str], None]
) -> AsyncIterator[Site]:
    """A clean cluster for a module. It is cleaned at the end; after a failure, its records are saved instead."""
    for need in (KUBECTL, HELM, CLUSTER):
        need.require()
    diary = Diary(results_folder(), print_line)
    pytestconfig.stash.setdefault(DIARIES, []).append(diary)
    print_line(f"results: {diary.folder}")
    with diary.step("a clean cluster with the image"):
        cluster = await Cluster.connect(diary)
        site = Site(cluster)
        if not pytestconfig.stash.get(CLEAN, False):
            await site.clean()
        pytestconfig.stash[CLEAN] = False
        await site.prepare()
    site.start(site.follow_events(), "follow-events")
    try:
        yield site
    finally:
        failed = request.node.stash.get(FAILED, False)
        await asyncio.shield(_close(site, failed=failed))
        pytestconfig.stash[CLEAN] = not failed


async def _close(site: Site, *, failed: bool) -> None:
    if failed:
        await save_records(site.cluster, [SITE, SYSTEM, "kube-system"])
        for node in await site.cluster.nodes():
            await site.cluster.power_on(node)
    await site.stop()
    if not failed:
        await site.clean()
    site.diary.close()
    write_page(site.diary)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the numbers of every run."""
    for diary in config.stash.get(DIARIES, []):
        terminalreporter.section("numbers")
        for line in diary.table():
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"  {diary.folder}/index.html has the timeline")
