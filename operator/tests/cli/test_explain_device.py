"""`embereye explain device` with a hub whose clock differs, and with a proxy in the environment."""

import contextlib
import http.server
import json
import threading
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator

import pytest

from embereye.units import HOUR, SECOND
from embereye_cli.explain.device import run

DEVICE = {"id": "s-01", "zone": "hall", "fleet": "default/sensors/hall", "covered": True, "state": "ok"}


@contextlib.contextmanager
def hub(now: int) -> Iterator[str]:
    """Serve a hub that answers once, with the clock `now` (Unix ns); yield its URL."""
    devices = [DEVICE | {"heardNs": str(now - 2 * SECOND), "analysedNs": str(now - 3 * SECOND)}]
    answer = json.dumps({"timeNs": str(now), "devices": devices}).encode()

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_times_since_a_message_follow_the_hubs_clock(ahead: int, capsys: pytest.CaptureFixture[str]) -> None:
    with hub(time.time_ns() + ahead) as console:
        run(Namespace(device="s-01", console=console, token="x", json=False))
    assert "last heard 2.0 s ago\n  last analysed 3.0 s ago" in capsys.readouterr().out


def test_the_environments_proxy_is_not_used_for_the_hub(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)  # the proxies that an earlier request found
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with hub(time.time_ns()) as console:
        run(Namespace(device="s-01", console=console, token="x", json=False))
    assert "s-01" in capsys.readouterr().out
