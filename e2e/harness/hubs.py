"""Fixtures for tests of the hub: its databases and buses, and a hub as a real process.

A test that takes `stored` runs once for each database, one that takes `bus` once for each way of evidence. `make_hub`
creates a `HubProcess` on an empty database; the test starts, kills and restarts it on the same ports and data. Every
hub is killed after its test.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import grpc
import pytest

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from harness.eventually import eventually
from harness.servers.nats import Nats
from harness.servers.postgres import Postgres
from harness.stored import Stored

DATABASES = ("sqlite", "postgres")
BUSES = ("in process", *(["jetstream"] if find_spec("embereye.addons.nats") else []))


@pytest.fixture(params=DATABASES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """An empty database of each kind that a hub can use."""
    if request.param == "sqlite":
        return Stored(tmp_path)
    in_postgres: Stored = request.getfixturevalue("stored_in_postgres")
    return in_postgres


def few_hubs(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module by the simplest hub and by the one with all parts, as its `pytest_generate_tests`.

    The other combinations of `stored` and `bus` are marked slow, because tests of whole processes take seconds each.
    """
    buses = [name for name in BUSES if "bus" in metafunc.fixturenames]
    if "stored" in metafunc.fixturenames and buses:
        usual = {("sqlite", buses[0]), ("postgres", buses[-1])}
        hubs = [pytest.param(*hub, marks=() if hub in usual else pytest.mark.slow) for hub in product(DATABASES, buses)]
        metafunc.definition.add_marker(pytest.mark.parametrize(("stored", "bus"), hubs, indirect=True))
    elif "stored" in metafunc.fixturenames:
        databases = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
        metafunc.definition.add_marker(pytest.mark.parametrize("stored", databases, indirect=True))


@pytest.fixture
def stored_in_postgres(tmp_path: Path, postgres: Postgres) -> Iterator[Stored]:
    """An empty database in PostgreSQL."""
    stored = Stored.in_postgres(tmp_path, postgres)
    yield stored
    postgres.drop_database(stored.database)


@pytest.fixture
def stored_apart(tmp_path: Path, own_postgres: Postgres) -> Stored:
    """An empty database in a separate PostgreSQL, which the test may stop."""
    return Stored.in_postgres(tmp_path, own_postgres)


@dataclass(frozen=True)
class Bus:
    """The way of evidence to the hub under test: from shards' streams only, or through NATS."""

    server: Nats | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The hub's command-line arguments for it."""
        return ("--nats", self.server.address) if self.server else ()


@pytest.fixture(params=BUSES)
def bus(request: pytest.FixtureRequest) -> Bus:
    """Each way of evidence to a hub."""
    return Bus(request.getfixturevalue("own_nats")) if request.param == "jetstream" else Bus()


class HubProcess:
    """`embereye hub` on loopback, which can be killed and started again on the same ports and data."""

    def __init__(self, stored: Stored, *arguments: str) -> None:
        self.stored = stored
        self.arguments = arguments
        self.data = stored.folder
        grpc, control, self.http_port = free_ports(3)
        self.control = f"127.0.0.1:{control}"
        self.grpc = f"127.0.0.1:{grpc}"
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0  # offset in its log where the current process starts
        self.start_seconds = 0.0  # until the latest process answered

    def start(self, *arguments: str) -> None:
        self.began = len(self.log())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "embereye_cli", "hub", "--host", "127.0.0.1",
             "--grpc-port", self.grpc.rpartition(":")[2], "--control-port", self.control.rpartition(":")[2],
             "--http-port", str(self.http_port), "--data", str(self.data), *self.arguments, *arguments],
            stderr=(self.data / "log").open("ab"),
            env={**os.environ, "GRPC_VERBOSITY": "NONE", "EMBEREYE_DATABASE": self.stored.address},
        )  # fmt: skip

    async def ready(self) -> None:
        began = time.monotonic()
        await eventually(self._answers, goal=lambda: f"a hub that answers:\n{self.log()}", pause=0.05)
        self.start_seconds = time.monotonic() - began

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError):
            self.get("/healthz")
            return True
        return False

    def log(self) -> str:
        file = self.data / "log"
        return file.read_text() if file.exists() else ""

    def get(self, path: str) -> object:
        headers = {} if path == "/healthz" else {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            text = response.read().decode()
        return json.loads(text) if path.startswith("/v1/") else text

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def channel(self, address: str = "") -> grpc.aio.Channel:
        # Redial a restarted hub without gRPC's long back-off.
        options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
        return channel(address or self.grpc, options, token=self.token)

    @property
    def token(self) -> str:
        """The admin's token, which the hub wrote to its folder at its first start."""
        file = self.data / "admin-token"
        return file.read_text().strip() if file.exists() else ""

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@pytest.fixture
def make_hub() -> Iterator[Callable[[Stored], HubProcess]]:
    """A function that creates hubs, which are killed after the test."""
    with contextlib.ExitStack() as stack:

        def make(stored: Stored, *arguments: str) -> HubProcess:
            hub = HubProcess(stored, *arguments)
            stack.callback(hub.close)
            return hub

        yield make


@pytest.fixture
def hub_process(stored: Stored, make_hub: Callable[[Stored], HubProcess]) -> HubProcess:
    return make_hub(stored)
