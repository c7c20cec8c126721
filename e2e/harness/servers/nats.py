"""A real nats-server with JetStream for tests, on a free port; never the system's."""

import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from embereye.process.addresses import free_port
from harness.need import NATS, nats_program
from harness.servers.program import LOOPBACK, Program

USER = "hub"
PASSWORD = "a word: with/marks?"


class Nats(Program):
    """A NATS server that can be stopped and started again on the same port and files."""

    def __init__(
        self, folder: Path, *, login: bool = False, certificates: Path | None = None, cluster: Sequence[int] = (),
        host: str = LOOPBACK,
    ) -> None:  # fmt: skip
        """With `login`, only USER with PASSWORD may connect. `cluster` has all members' ports, this one's first.

        With `certificates`, a folder with ca.crt, tls.crt and tls.key, it speaks TLS and requires client certificates.
        """
        self.host, self.port = host, free_port()
        self.folder = folder
        self.secure = certificates is not None
        folder.mkdir(parents=True, exist_ok=True)
        # Messages are on disk before they are acknowledged, as docs/how-to/hub-database.md requires.
        jetstream = {"store_dir": str(folder / "data"), "sync_interval": "always"}
        config: dict[str, object] = {"listen": f"{host}:{self.port}", "jetstream": jetstream}
        if cluster:
            routes = [f"nats://{LOOPBACK}:{port}" for port in cluster[1:]]
            config["server_name"] = f"member-{cluster[0]}"
            config["cluster"] = {"name": "tests", "listen": f"{LOOPBACK}:{cluster[0]}", "routes": routes}
        if login:
            config["authorization"] = {"user": USER, "password": PASSWORD}
        if certificates:
            config["tls"] = {"cert_file": str(certificates / "tls.crt"), "key_file": str(certificates / "tls.key"),
                             "ca_file": str(certificates / "ca.crt"), "verify": True}  # fmt: skip
        (folder / "nats.json").write_text(json.dumps(config))

    @property
    def address(self) -> str:
        """The server's URL, as a hub's option takes it."""
        return f"{'tls' if self.secure else 'nats'}://{self.host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        offset = len(self.log())
        with (self.folder / "log").open("ab") as log:
            command = [str(nats_program()), "-c", str(self.folder / "nats.json")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 20
        while "Server is ready" not in self.log()[offset:] or not self._answers():
            assert time.monotonic() < deadline, self.log()
            assert self._process.poll() is None, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        """The log so far."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""


@contextlib.contextmanager
def run_nats(host: str = LOOPBACK) -> Iterator[Nats]:
    """Run a server inside the context. Skips the test if nats-server is missing."""
    NATS.require()
    with tempfile.TemporaryDirectory(prefix="embereye-nats-") as folder:
        server = Nats(Path(folder), host=host)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
