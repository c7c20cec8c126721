"""nginx, Traefik and Envoy in front of a hub for tests, with the configuration of docs/how-to/proxies.md.

The page's examples are what runs. Only ports, the number of hubs, a path, and what a test changes on purpose differ.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from embereye.process.addresses import free_port
from embereye.process.tls.client import ClientTls
from harness.eventually import wait_for
from harness.need import ENVOY_PROGRAM, ROOT, TRAEFIK_PROGRAM, nginx_program
from harness.pages import examples
from harness.servers.certificates import Pair
from harness.servers.program import LOOPBACK, Program

PAGE = ROOT / "docs/how-to/proxies.md"
CONSOLE, FEEDS = "fire.example.com", "feeds.fire.example.com"
# The hub's ports in the examples.
HTTP_PORT, GRPC_PORT = "8080", "50052"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # nginx's folders


@dataclass(frozen=True)
class Hub:
    """The ports of a hub behind a proxy."""

    http: int
    grpc: int


@dataclass(frozen=True)
class Setup:
    """The differences to the page: the hubs, the path below which they appear, and changed text."""

    hubs: Sequence[Hub]
    path: str = ""  # such as /fire
    removes: bool = False  # the proxy removes the path from requests
    changes: Mapping[str, str] = field(default_factory=dict)  # text of the example, and its replacement


class ReverseProxy(Program):
    """A proxy that ends TLS on `port`, and on `feeds_port` for gRPC, where its certificate has `feeds_name`."""

    feeds_name = FEEDS
    # Each limit that the example lifts: its text, with a limit of a second, and the call that this one ends.
    limits: Sequence[tuple[str, str, str]] = ()
    # The time after which the example closes idle connections to the hub: its text, and a second instead.
    idle = ("", "")

    def __init__(self, folder: Path, pair: Pair, setup: Setup) -> None:
        """Write the configuration into `folder`; `pair` is the certificate for both names."""
        self.port = self.feeds_port = free_port()
        self.ca = pair.ca
        self.folder = folder
        self.setup = setup
        folder.mkdir()
        for source, name in (("tls.crt", "fire.crt"), ("tls.key", "fire.key")):
            shutil.copy(pair.folder / source, folder / name)
        self._command = self._configure()

    def _configure(self) -> list[str]:
        """Write the files, and return the command, which runs in the folder."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it serves the hub."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.folder)
        wait_for(self._answers, self.log, 30)

    def log(self) -> str:
        """The command and its output so far."""
        return f"{shlex.join(self._command)}\n{(self.folder / 'log').read_text()}"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        context = ClientTls(self.ca).context()
        request = f"GET {self.setup.path}/healthz HTTP/1.1\r\nHost: {CONSOLE}\r\nConnection: close\r\n\r\n"
        with (
            contextlib.suppress(OSError),
            socket.create_connection((LOOPBACK, self.port), timeout=5) as connection,
            context.wrap_socket(connection, server_hostname=CONSOLE) as secure,
        ):
            secure.sendall(request.encode())
            return b" 200 " in secure.recv(100)
        return False

    def _for_each_hub(self, text: str, server: str, between: str) -> str:
        """Replace `server`, which has a port of the example, by one for each hub."""
        http = HTTP_PORT in server
        each = [
            server.replace(HTTP_PORT if http else GRPC_PORT, str(hub.http if http else hub.grpc))
            for hub in self.setup.hubs
        ]
        return changed(text, {server: between.join(each)})


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Replace each key of `changes` by its value everywhere in `text`; AssertionError if one is not there."""
    for old, new in changes.items():
        assert old in text, f"{PAGE.name} has no {old}"
        text = text.replace(old, new)
    return text


class Nginx(ReverseProxy):
    """nginx, as a process in the foreground."""

    feeds_name = CONSOLE
    limits = (
        ("client_body_timeout 1d", "client_body_timeout 1s", "Follow"),
        ("grpc_read_timeout 1d", "grpc_read_timeout 1s", "Subscribe"),
    )
    idle = ("keepalive_timeout 20s", "keepalive_timeout 1s")

    def _configure(self) -> list[str]:
        self.feeds_port = free_port()
        (text,) = examples(PAGE, "nginx")
        text = changed(text, self.setup.changes)
        text = self._for_each_hub(text, f"server {LOOPBACK}:{HTTP_PORT};", " ")
        text = self._for_each_hub(text, f"server {LOOPBACK}:{GRPC_PORT};", " ")
        ports = {
            "listen 443 ": f"listen {LOOPBACK}:{self.port} ",
            "listen 50443 ": f"listen {LOOPBACK}:{self.feeds_port} ",
        }
        text = changed(text, ports)
        if self.setup.path:
            text = text.replace("location /", f"location {self.setup.path}/", 1)
        if self.setup.removes:
            text = changed(text, {"proxy_pass http://console;": "proxy_pass http://console/;"})
        user = "" if os.geteuid() else "user root;"  # its default user cannot read the test's folder
        folders = "".join(f"{name}_temp_path {name};\n" for name in TEMPORARY)
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\nworker_processes 1;\n{user}\npid nginx.pid;\nerror_log stderr notice;\n"
            f"events {{ worker_connections 256; }}\nhttp {{\naccess_log off;\n{folders}{text}}}\n"
        )
        return [str(nginx_program()), "-p", str(self.folder), "-c", "nginx.conf"]


class Traefik(ReverseProxy):
    """Traefik, which reads its routes from a file."""

    limits = (("readTimeout=0", "readTimeout=1s", "Follow"),)
    idle = ("idleConnTimeout=20s", "idleConnTimeout=1s")

    def _configure(self) -> list[str]:
        command, routes = self._changed()
        (self.folder / "embereye.yaml").write_text(yaml.safe_dump(routes))
        _, *options = shlex.split(changed(command, {":443": f"{LOOPBACK}:{self.port}"}).replace("\\\n", " "))
        quiet = ["--global.checkNewVersion=false", "--global.sendAnonymousUsage=false"]
        return [str(TRAEFIK_PROGRAM), *options, *quiet]

    def _changed(self) -> tuple[str, dict[str, Any]]:
        """The command and the routes of the page, for this set-up."""
        command = next(text for text in examples(PAGE, "sh") if text.startswith("traefik "))
        file, below = (text for text in examples(PAGE, "yaml") if text.startswith("http:"))
        for old, new in self.setup.changes.items():
            if old in command:
                command = command.replace(old, new)
            else:
                file = changed(file, {old: new})
        file = self._for_each_hub(file, f'{{url: "http://{LOOPBACK}:{HTTP_PORT}"}}', ", ")
        file = self._for_each_hub(file, f'{{url: "h2c://{LOOPBACK}:{GRPC_PORT}"}}', ", ")
        routes = yaml.safe_load(file)
        if self.setup.path:
            more = yaml.safe_load(changed(below, {"/fire": self.setup.path}))["http"]
            routes["http"]["routers"].update(more["routers"])
            routes["http"]["middlewares"] = more["middlewares"]
            if not self.setup.removes:
                del routes["http"]["routers"]["console"]["middlewares"]
        return command, routes


class Envoy(ReverseProxy):
    """Envoy, with a static configuration."""

    limits = (
        (", timeout: 0s", ", timeout: 1s", "Subscribe"),
        ("idle_timeout: 0s", "idle_timeout: 1s", "Subscribe"),
    )
    idle = ("idle_timeout: 20s", "idle_timeout: 1s")

    def _configure(self) -> list[str]:
        text = next(text for text in examples(PAGE, "yaml") if text.startswith("static_resources:"))
        text = changed(
            text, {**self.setup.changes, "0.0.0.0": LOOPBACK, "port_value: 443}": f"port_value: {self.port}}}"}
        )
        for port in (HTTP_PORT, GRPC_PORT):
            server = f"{{endpoint: {{address: {{socket_address: {{address: {LOOPBACK}, port_value: {port}}}}}}}}}"
            text = self._for_each_hub(text, server, ", ")
        if self.setup.path:
            text = text.replace("match: {prefix: /}", f"match: {{prefix: {self.setup.path}/}}", 1)
        if self.setup.removes:
            text = changed(text, {"{cluster: console,": "{cluster: console, prefix_rewrite: /,"})
        (self.folder / "envoy.yaml").write_text(text)
        options = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
        return [str(ENVOY_PROGRAM), "-c", "envoy.yaml", *options]
