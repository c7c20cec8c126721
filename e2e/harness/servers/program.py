"""A server program for tests that can be stopped, crashed and frozen."""

import signal
import socket
import subprocess

LOOPBACK = "127.0.0.1"


class Program:
    """A server on `port` of `host`. Subclasses start `_process`."""

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
        """Stop the program; SIGKILL ends it as a crash does."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def freeze(self, *, frozen: bool = True) -> None:
        """Freeze or continue the program. Connections stay open without answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)
