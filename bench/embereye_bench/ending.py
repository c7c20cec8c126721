"""End processes that this program started."""

import subprocess
from typing import Any

WAIT_SECONDS = 10.0


def terminate(process: "subprocess.Popen[Any]") -> None:
    """Ask `process` to end, and wait for that; kill it if it does not end."""
    process.terminate()
    wait_or_kill(process)


def wait_or_kill(process: "subprocess.Popen[Any]") -> None:
    """Wait for `process`, which was asked to end; kill it if it does not end."""
    try:
        process.wait(WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
