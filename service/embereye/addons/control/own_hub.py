"""Run a temporary hub for a demonstration or a measurement; its data is deleted at the end.

The hub is a separate process on free ports of this machine. It is ready once its association socket exists. The admin's
token is read from its folder; process and folder end with the block.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embereye.process.addresses import LOOPBACK, free_ports
from embereye.sim.own_process import own_process

READY_SECONDS = 30.0


@dataclass(frozen=True)
class OwnHub:
    """The addresses, token and process id of a temporary hub."""

    tcp: str  # for associations
    unix: str  # for associations, as "unix:PATH"
    grpc: str
    token: str  # the admin's
    pid: int


@contextlib.contextmanager
def running_hub(folder: Path | None = None) -> Iterator[OwnHub]:
    """Run `embereye hub` with its data in a temporary folder in `folder`; RuntimeError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="embereye-", dir=folder) as name:
        data = Path(name)
        people, control, http, port = map(str, free_ports(4))
        path = data / "association"
        command = ["hub", "--host", LOOPBACK, "--grpc-port", people, "--control-port", control, "--http-port", http,
                   "--data", name, "--association-port", port, "--association-socket", str(path)]  # fmt: skip
        with own_process(*command) as process:
            deadline = time.monotonic() + READY_SECONDS
            while not path.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the hub did not start within {READY_SECONDS:g} s")
                time.sleep(0.02)
            token = (data / "admin-token").read_text().strip()
            yield OwnHub(f"{LOOPBACK}:{port}", f"unix:{path}", f"{LOOPBACK}:{people}", token, process.pid)
