"""Fixtures and hooks for every suite: a real API server, namespaces, databases, and skips for missing programs."""

import asyncio
import logging
import os
from collections.abc import Generator, Iterator

import pytest
from harness.need import of_fixtures, program, summary
from harness.running import RunningTests
from harness.servers.apiserver import ApiServer, install_crds, run_api_server
from harness.servers.nats import Nats, run_nats
from harness.servers.postgres import Postgres, run_postgres
from harness.workers import pytest_runtest_logreport, pytest_xdist_make_scheduler
from hypothesis import HealthCheck, settings

from embereye.process.addresses import PORTS_VARIABLE
from embereye_operator.api.crds import build_crd
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.kinds import added_kinds

__all__ = ["pytest_runtest_logreport", "pytest_xdist_make_scheduler"]  # and hooks that pytest finds by name
# The duration of an example depends on the machine more than on the code under test.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def cluster() -> Iterator[ApiServer]:
    """A kube-apiserver with etcd and our CRDs, and with garbage collection and aggregated roles if they are built."""
    with run_api_server("clusterrole-aggregation-controller") as running:
        install_crds(running, [build_crd(kind) for kind in (*FLEET_TYPES.values(), *added_kinds())])
        yield running


@pytest.fixture
def namespace(cluster: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace for one test."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL."""
    with run_postgres() as running:
        yield running


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL for one test, to be stopped, crashed or frozen."""
    with run_postgres() as running:
        yield running


@pytest.fixture
def own_nats() -> Iterator[Nats]:
    """A nats-server for one test, to be stopped, crashed or frozen."""
    with run_nats() as running:
        yield running


def pytest_report_header() -> list[str]:
    """Name the API server, if it is another one than `make programs` builds."""
    return [f"kube-apiserver: {program('kube-apiserver')}"] if "KUBEBUILDER_ASSETS" in os.environ else []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two to four workers, even on one CPU: tests mostly wait. Each worker has a separate API server."""
    return min(max(os.cpu_count() or 1, 2), 4)


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker process a separate range of ports."""
    worker = getattr(config, "workerinput", None)
    if worker:
        shares = worker["workercount"] + 2  # the replacement of a crashed worker has a new number
        share = 22_000 // shares
        first = 10_000 + share * (int(worker["workerid"].removeprefix("gw")) % shares)
        os.environ[PORTS_VARIABLE] = f"{first}-{first + share - 1}"


@pytest.hookimpl(trylast=True)  # after the reporter is registered
def pytest_sessionstart(session: pytest.Session) -> None:
    """Print failures when they happen."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(RunningTests(reporter.write_line))


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with what their fixtures need, so that `-m needs` selects them, too."""
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        for need in of_fixtures(getattr(item, "fixturenames", ()), values):
            item.add_marker(pytest.mark.needs(need))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if the machine lacks a program that it `needs`."""
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            need.require()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print the number of skipped tests by missing program, just before pytest's last line."""
    yield
    skipped = (report.longrepr for report in terminalreporter.stats.get("skipped", []))
    if line := summary(entry[2].removeprefix("Skipped: ") for entry in skipped if isinstance(entry, tuple)):
        terminalreporter.write_line(line)


@pytest.fixture(params=[False, True], ids=["", "asyncio's debug mode"])
async def debugged(request: pytest.FixtureRequest) -> bool:
    """Run the test a second time in asyncio's debug mode, which is ten times slower. True in that mode."""
    loop, debug = asyncio.get_running_loop(), bool(request.param)
    loop.set_debug(debug)
    loop.slow_callback_duration = 60  # seconds; a busy machine must not cause warnings
    return debug


@pytest.fixture(autouse=True)
def restored_log_level() -> Iterator[None]:
    """Commands that run in the test's process set the level of all logs."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
