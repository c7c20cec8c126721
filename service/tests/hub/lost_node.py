"""Simulates the loss of the owner's node with two hubs on one PostgreSQL. Run it in a separate network namespace.

Prints, as JSON, the seconds until the other hub took over, and the first hub's log after its network is back.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from harness.eventually import wait_for
from harness.servers.postgres import run_postgres

from embereye.process.addresses import free_ports

HOST = "127.0.0.1"


def until(condition: Callable[[], object], seconds: float = 30) -> float:
    """Wait for `condition` and return the seconds until it was true."""
    began = time.monotonic()
    wait_for(condition, seconds=seconds)
    return time.monotonic() - began


def is_serving(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://{HOST}:{port}/healthz", timeout=2).close()
    except OSError:
        return False
    return True


def start(folder: Path, address: str) -> tuple["subprocess.Popen[bytes]", Path]:
    folder.mkdir()
    (folder.parent / "token").write_text("a-token-of-the-admin-that-replicas-share")
    grpc, control, http = free_ports(3)
    log = folder / "log"
    process = subprocess.Popen(
        [sys.executable, "-m", "embereye_cli", "hub", "--host", HOST, "--grpc-port", str(grpc),
         "--control-port", str(control), "--http-port", str(http), "--data", str(folder), "--database", address,
         "--advertise", HOST, "--admin-token-file", str(folder.parent / "token")],
        stderr=log.open("wb"),
    )  # fmt: skip
    until(lambda: is_serving(http))
    return process, log


def filter_ports(action: str, ports: list[str]) -> None:
    """Drop packets to and from `ports` ("--append"), or stop dropping them ("--delete")."""
    for port in ports:
        for side in ("--sport", "--dport"):
            subprocess.run(
                ["iptables", action, "OUTPUT", "--protocol", "tcp", side, port, "--jump", "DROP"], check=True
            )


def main() -> None:
    with run_postgres() as server, tempfile.TemporaryDirectory() as folder:
        address = server.create_database("hub")
        (first, log), (second, other_log) = (start(Path(folder) / name, address) for name in ("first", "second"))
        owner_ports = """SELECT client_port FROM pg_stat_activity WHERE datname = 'hub' AND pid IN
            (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"""
        ports = [str(row[0]) for row in server.execute(owner_ports)]
        filter_ports("--append", ports)
        seconds = until(lambda: "hub ready" in other_log.read_text())
        filter_ports("--delete", ports)
        until(lambda: "standing by for" in log.read_text().partition("hub ready")[2])
        print(json.dumps({"owner's connections": len(ports), "seconds": seconds, "log": log.read_text()}))
        for process in (first, second):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
