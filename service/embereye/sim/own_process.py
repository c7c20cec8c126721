"""Run a temporary process of `embereye` for a demonstration or a measurement."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def own_process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `embereye ARGUMENTS` during the block; then terminate it, and kill it after ten seconds."""
    process = subprocess.Popen([sys.executable, "-m", "embereye_cli", *arguments], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
