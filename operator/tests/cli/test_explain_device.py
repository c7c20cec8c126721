"""`embereye explain device` where the hub's clock is another than that of who asks."""

import http.server
import json
import threading
import time
from argparse import Namespace

import pytest

from embereye.units import HOUR, SECOND
from embereye_cli.explain.device import run

DEVICE = {"id": "s-01", "zone": "hall", "fleet": "default/sensors/hall", "covered": True, "state": "ok"}


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_how_long_ago_a_device_was_heard_goes_by_the_hubs_clock(ahead: int, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time_ns() + ahead
    devices = [DEVICE | {"heardNs": str(now - 2 * SECOND), "analysedNs": str(now - 3 * SECOND)}]
    told = json.dumps({"timeNs": str(now), "devices": devices}).encode()

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        port = server.server_address[1]
        run(Namespace(device="s-01", console=f"http://127.0.0.1:{port}", token="x", json=False))
    assert "last heard 2.0 s ago\n  last analysed 3.0 s ago" in capsys.readouterr().out
