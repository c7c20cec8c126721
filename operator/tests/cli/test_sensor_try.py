"""`embereye sensor try` reads a declared sensor, and says why it cannot."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from embereye_cli.main import main

MANIFEST = """\
apiVersion: embereye.dev/v1beta1
kind: SensorFleet
metadata: {{name: hall}}
spec:
  sensors:
    - {{id: boiler, zone: cellar, source: "{address}", fields: {{temperature: celsius}}}}
    - {{id: away, zone: cellar, source: "modbus://127.0.0.1:9/1", fields: {{temperature: "input:0"}}}}
    - {{id: line, zone: hall}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[str]:
    class Boiler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"celsius": 41.5}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Boiler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        path = tmp_path / "fleet.yaml"
        path.write_text(MANIFEST.format(address=f"http://127.0.0.1:{server.server_port}/status.json"))
        yield str(path)
        server.shutdown()
        thread.join()


def test_the_newest_reading_is_printed(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensor", "try", "boiler", manifest]) == 0
    assert "temperature  41.5 °C" in capsys.readouterr().out
    assert main(["sensor", "try", "--json", "boiler", manifest]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "readings": [{"quantity": "temperature", "value": 41.5, "unit": "°C"}]
    }


@pytest.mark.parametrize(
    ("device", "code", "why"),
    [
        ("away", 1, "Modbus server 127.0.0.1:9"),
        ("line", 2, "it sends to a shard"),
        ("roof", 5, "declare no such sensor"),
    ],
)
def test_a_sensor_that_cannot_be_read_is_named_with_the_reason(
    manifest: str, device: str, code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sensor", "try", device, manifest]) == code
    assert why in capsys.readouterr().err
