"""A real PostgreSQL for tests: a new cluster in a folder, on a free port; never the system's.

`run_postgres` creates the cluster, starts the server and ends it. Tests create a database each, and can crash, freeze
and restart the server on the same port and data. If the tests run as root, which PostgreSQL refuses, it runs as
`nobody`. A process initialises one cluster; all others are copies of its files, which takes a tenth of the time.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from embereye.process.addresses import free_port
from harness.eventually import wait_for
from harness.need import POSTGRES, postgres_programs
from harness.servers.program import LOOPBACK

USER = "embereye"
PASSWORD = "a word: with/marks?"
ADDRESS_PASSWORD = "a%20word%3A%20with%2Fmarks%3F"


class Postgres:
    """A PostgreSQL that can be stopped, crashed or frozen, and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._programs = postgres_programs()
        # PostgreSQL refuses to run as root. (Popen's `user` forks, which is forbidden in a process that uses gRPC.)
        self._as = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if not os.geteuid() else []
        self._server: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Create the cluster's files."""
        if self._as:
            shutil.chown(self.folder, "nobody", "nogroup")
        subprocess.run(["cp", "--archive", Path(_initialised().name) / "data", self._data], check=True, timeout=60)

    def initialise(self) -> None:
        """Create the files of a new cluster."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if self._as:
            shutil.chown(self.folder, "nobody", "nogroup")
            shutil.chown(secret, "nobody", "nogroup")
        self._run("initdb", "--pgdata", self._data, "--username", USER, "--pwfile", str(secret),
                  "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8")  # fmt: skip

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder)
        assert not done.returncode, done.stdout + done.stderr

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [*self._as, str(self._programs / "postgres"), "-D", self._data, "-p", str(self.port),
                   "-c", f"listen_addresses={LOOPBACK}", "-c", f"unix_socket_directories={self.folder}",
                   "-c", "shared_buffers=16MB", "-c", "max_connections=40",
                   "-c", "recovery_init_sync_method=syncfs"]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_for(self._answers, (self.folder / "log").read_text, 30)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.address("postgres"), connect_timeout=2).close()
            return True
        return False

    def send_signal(self, number: signal.Signals) -> None:
        """Send the server a signal. SIGQUIT ends it and all connections at once, as a crash does."""
        assert self._server is not None
        self._server.send_signal(number)

    def freeze(self, *, frozen: bool = True) -> None:
        """Freeze or continue all its processes. Connections stay open without answers."""
        assert self._server is not None
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in (pid, *map(int, children)):
            os.kill(process, signal.SIGSTOP if frozen else signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End the server."""
        if self._server is not None:
            self.send_signal(number)
            self._server.wait(30)
            self._server = None

    def address(self, database: str) -> str:
        """The connection string of `database`."""
        return f"postgresql://{USER}:{ADDRESS_PASSWORD}@{LOOPBACK}:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run `statement` as the cluster's owner and return its rows."""
        import psycopg

        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, encoding: str = "UTF8") -> str:
        """Create an empty database and return its connection string."""
        locale = "C.UTF-8" if encoding == "UTF8" else "C"
        self.execute(
            f"""CREATE DATABASE "{name}" ENCODING '{encoding}' LC_COLLATE '{locale}' LC_CTYPE '{locale}'
                TEMPLATE template0"""
        )
        return self.address(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, even one in use: recovery after a crash reads every remaining file."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def break_connections(self, database: str) -> int:
        """End every session in `database`, as an administrator does. Returns their number."""
        sessions = self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
        return len(sessions)


@cache
def _initialised() -> "tempfile.TemporaryDirectory[str]":
    """The folder of a new cluster that never runs. It exists as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="embereye-pg-")
    Postgres(Path(folder.name)).initialise()
    return folder


@contextlib.contextmanager
def run_postgres() -> Iterator[Postgres]:
    """Run a cluster inside the context. Skips the test if PostgreSQL is missing."""
    POSTGRES.require()
    with tempfile.TemporaryDirectory(prefix="embereye-pg-") as folder:
        server = Postgres(Path(folder))
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
