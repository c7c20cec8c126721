"""A hub as a real process, and words to talk to it with."""

import asyncio
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
from pathlib import Path

import grpc
import pytest
from harness.servers.nats import Nats
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """Each of the databases that a hub can have, empty."""
    if request.param == "sqlite":
        return Stored(tmp_path)
    in_postgres: Stored = request.getfixturevalue("stored_in_postgres")
    return in_postgres


@pytest.fixture
def stored_in_postgres(tmp_path: Path, postgres: Postgres) -> Iterator[Stored]:
    """A database in PostgreSQL, empty."""
    stored = Stored.in_postgres(tmp_path, postgres)
    yield stored
    postgres.drop_database(stored.database)


@pytest.fixture
def stored_apart(tmp_path: Path, own_postgres: Postgres) -> Stored:
    """A database in a PostgreSQL of the test's own."""
    return Stored.in_postgres(tmp_path, own_postgres)


@dataclass(frozen=True)
class Bus:
    """How evidence comes to a hub under test: from its shards' streams alone, or by way of a NATS."""

    server: Nats | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the hub is told of it."""
        return ("--nats", self.server.address) if self.server else ()


@pytest.fixture(params=["in process", "jetstream"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """Each of the ways that evidence can come to a hub."""
    return Bus(request.getfixturevalue("own_nats")) if request.param == "jetstream" else Bus()


class HubProcess:
    """`embereye hub` on loopback; may be killed and started again on the same ports and data."""

    def __init__(self, stored: Stored, *arguments: str) -> None:
        self.stored = stored
        self.arguments = arguments
        self.data = stored.folder
        grpc, control, self.http_port = free_ports(3)
        self.control = f"127.0.0.1:{control}"
        self.grpc = f"127.0.0.1:{grpc}"
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0  # where in its log the present process begins
        self.start_seconds = 0.0  # that it took to answer, last

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
        deadline = began + 60
        while time.monotonic() < deadline:
            try:
                self.get("/healthz")
            except OSError:
                assert self.process is not None
                assert self.process.poll() is None, self.log()
                await asyncio.sleep(0.05)
            else:
                self.start_seconds = time.monotonic() - began
                return
        raise AssertionError(f"the hub did not start:\n{self.log()}")

    def log(self) -> str:
        file = self.data / "log"
        return file.read_text() if file.exists() else ""

    def get(self, path: str) -> object:
        shown = {} if path == "/healthz" else {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", headers=shown)
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
        # A hub that was restarted is dialled again without gRPC's own long back-off.
        options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
        return channel(address or self.grpc, options, token=self.token)

    @property
    def token(self) -> str:
        """The admin's, which the hub wrote to its folder when it started first."""
        file = self.data / "admin-token"
        return file.read_text().strip() if file.exists() else ""

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@pytest.fixture
def make_hub() -> Iterator[Callable[[Stored], HubProcess]]:
    """Makes hubs, and ends them."""
    with contextlib.ExitStack() as stack:

        def make(stored: Stored, *arguments: str) -> HubProcess:
            hub = HubProcess(stored, *arguments)
            stack.callback(hub.close)
            return hub

        yield make


@pytest.fixture
def hub_process(stored: Stored, make_hub: Callable[[Stored], HubProcess]) -> HubProcess:
    return make_hub(stored)
