"""A program of the tests' own that listens on this machine, and can be ended, crashed and frozen."""

import signal
import socket
import subprocess

LOOPBACK = "127.0.0.1"


class Program:
    """On `port` of `host`; whoever derives from it starts `_process`."""

    host = LOOPBACK
    port: int
    _process: "subprocess.Popen[bytes] | None" = None

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; SIGKILL ends it as a crash does."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def freeze(self, *, frozen: bool = True) -> None:
        """Stop or continue it; connections stay, and nobody answers on them."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)
