"""A real Mosquitto for tests, on a free port; never the system's."""

import os
import subprocess
from pathlib import Path

from embereye.process.addresses import free_port
from harness.eventually import wait_for
from harness.need import mosquitto_program
from harness.servers.program import LOOPBACK, Program

PASSWORD = "a word: with/marks?"


class Mosquitto(Program):
    """A Mosquitto that can be stopped and started again on the same port. It loses retained messages."""

    def __init__(
        self,
        folder: Path,
        *,
        users: tuple[str, ...] = (),
        rules: str = "",
        certificates: Path | None = None,
        host: str = LOOPBACK,
    ) -> None:
        """Only `users` are allowed to connect, with PASSWORD; without users, everybody is. `rules` are an acl_file.

        With `certificates`, a folder with ca.crt, tls.crt and tls.key, it speaks TLS and requires client certificates.
        """
        self.host, self.port = host, free_port()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"listener {self.port} {host}", f"allow_anonymous {str(not users).lower()}", "persistence false"]
        if not os.geteuid():
            lines.insert(0, "user root")  # its default user cannot read the test's folder
        if users:
            lines.append(f"password_file {self._passwords(users)}")
        if rules:
            (folder / "rules").write_text(rules)
            lines.append(f"acl_file {folder / 'rules'}")
        if certificates:
            lines += [f"cafile {certificates / 'ca.crt'}", f"certfile {certificates / 'tls.crt'}",
                      f"keyfile {certificates / 'tls.key'}", "require_certificate true"]  # fmt: skip
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def _passwords(self, users: tuple[str, ...]) -> Path:
        path = self._folder / "passwords"
        path.touch(mode=0o600)
        for user in users:
            subprocess.run(
                ["mosquitto_passwd", "-b", path, user, PASSWORD], check=True, capture_output=True, timeout=10
            )
        return path

    def start(self) -> None:
        """Start it and wait until it listens."""
        with (self._folder / "log").open("ab") as log:
            command = [str(mosquitto_program()), "-c", str(self._folder / "mosquitto.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._answers, (self._folder / "log").read_text, 10)
