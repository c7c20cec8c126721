"""Commands that call the hub over HTTP: servers that are no hub, and the token that they must not see."""

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType

import pytest

from embereye.process.lifecycle import UserError
from embereye.process.tls.trust import trusting
from embereye_cli.explain import alarm, device
from embereye_cli.hub.connection import ConsoleConnection, console_connection
from embereye_cli.hub.http import HttpHub


@dataclass
class Site:
    """A server that redirects, or answers."""

    leads_to: str = ""
    answer: bytes = b"{}"
    tokens: list[str | None] = field(default_factory=list)  # that it was shown
    address: str = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator["Site"]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.tokens.append(self.headers["Authorization"])
                self.send_response(302 if site.leads_to else 200)
                self.send_header("Location", site.leads_to)
                self.send_header("Content-Length", str(len(site.answer)))
                self.end_headers()
                self.wfile.write(site.answer)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.address = f"http://127.0.0.1:{server.server_address[1]}"
            Thread(target=server.serve_forever, daemon=True).start()
            yield self
            server.shutdown()


def test_a_redirection_does_not_receive_the_token() -> None:
    with Site().serving() as elsewhere, Site(elsewhere.address).serving() as proxy:
        hub = HttpHub(ConsoleConnection(url=proxy.address, token="a-token-of-the-hub", trust=trusting()))
        with pytest.raises(
            UserError, match=rf"does not answer as a hub .*; it answers 302 Found, and redirects to {elsewhere.address}"
        ):
            hub.read("/v1/devices")
        assert (proxy.tokens, elsewhere.tokens) == (["Bearer a-token-of-the-hub"], [])


@pytest.mark.parametrize(
    "console", ["http://hub..local:8080", f"http://{'h' * 64}.local", "http://127.0.0.1:1/h\u00fcbe"]
)
def test_an_impossible_url_is_refused_with_its_option(console: str) -> None:
    with pytest.raises(UserError, match=f'--console "{console}" is not a URL such as'):
        console_connection(Namespace(console=console, token="", data=None))


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"7", b'"devices"'])
@pytest.mark.parametrize("command", [device, alarm])
def test_a_server_that_is_no_hub_is_recognised(command: ModuleType, answer: bytes) -> None:
    with Site(answer=answer).serving() as stranger:
        arguments = Namespace(device="s-1", alarm="0123456789abcdef", console=stranger.address, token="", json=False)
        with pytest.raises(UserError, match="does not answer as a hub of this version"):
            command.run(arguments)
