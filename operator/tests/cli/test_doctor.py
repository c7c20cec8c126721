"""`embereye doctor` names what would fail, with a remedy, and its exit code says if anything does."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from embereye.process.addresses import free_ports
from embereye_cli.main import main
from embereye_cli.setup.findings import FAIL, OK, WARN
from embereye_cli.setup.machine import check_clock, check_disk

REFUSAL = b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm="c"\r\nContent-Length: 0\r\n\r\n'
FLEET = """
apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {{name: yard}}
spec:
  listen: {{grpc: {grpc}}}
  cameras: [{cameras}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / "credentials"))
    return tmp_path


def doctor(here, capsys, *cameras, words=()):
    """Run it on a fleet of `cameras`; return the exit code and the findings by subject."""
    console, hub, grpc = free_ports(3)
    (here / "fleet.yaml").write_text(FLEET.format(grpc=grpc, cameras=", ".join(cameras)))
    ports = ["--console-port", str(console), "--hub-port", str(hub)]
    code = main(["doctor", "fleet.yaml", "--json", *ports, *words])
    listed = json.loads(capsys.readouterr().out)["findings"]
    return code, {finding["subject"]: finding for finding in listed}


def picture():
    import cv2
    import numpy as np

    return cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()


@pytest.fixture
def cameras(in_thread):
    """A server with a camera at /good and one at /guarded that refuses every login; the list has their requests."""
    requests, jpeg = [], picture()

    async def serve(reader, writer):
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        requests.append(asked)
        if "/good" not in asked.partition("\r\n")[0]:
            writer.write(REFUSAL)
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=x\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"--x\r\nContent-Type: image/jpeg\r\n\r\n" + jpeg + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    server = in_thread(asyncio.start_server(serve, "127.0.0.1", 0))
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


def test_a_camera_that_plays_is_ok(here, capsys, cameras):
    code, listed = doctor(here, capsys, f'{{id: a, zone: z, source: "http://{cameras[0]}/good"}}')
    assert code == 0
    assert listed["camera a"]["level"] == OK
    assert "JPEG 64x48" in listed["camera a"]["text"]
    assert listed["decoding"]["level"] in {OK, WARN}


def test_a_refused_login_is_tried_once_for_all_cameras_of_a_host(here, capsys, cameras):
    (here / "credentials/gate").mkdir(parents=True)
    (here / "credentials/gate/username").write_text("me")
    (here / "credentials/gate/password").write_text("wrong")
    guarded = f'zone: z, source: "http://{cameras[0]}/guarded", credentialsRef: {{name: gate}}'
    declared = [f"{{id: c{n}, {guarded}}}" for n in range(3)]
    code, listed = doctor(here, capsys, *declared)
    assert code == 1
    assert listed["camera c0"]["remedy"] == "embereye credentials set gate"
    assert [listed[f"camera c{n}"]["level"] for n in range(3)] == [FAIL] * 3
    assert sum("Authorization" in request for request in cameras[1]) == 1


def test_a_camera_that_is_off_fails_with_its_reason(here, capsys):
    (port,) = free_ports(1)
    code, listed = doctor(here, capsys, f'{{id: a, zone: z, source: "rtsp://127.0.0.1:{port}/live"}}')
    assert code == 1
    assert "cannot connect" in listed["camera a"]["text"]
    assert listed["camera a"]["remedy"] == f"embereye camera probe 127.0.0.1:{port}"


def test_a_missing_login_is_named_with_the_command_that_stores_it(here, capsys):
    code, listed = doctor(
        here, capsys, '{id: a, zone: z, source: "rtsp://127.0.0.1:9/x", credentialsRef: {name: gate}}'
    )
    assert code == 1
    assert "does not exist" in listed["camera a"]["text"]
    assert listed["camera a"]["remedy"] == "embereye credentials set gate"


def test_a_password_in_a_manifest_is_a_warning(here, capsys, cameras):
    code, listed = doctor(here, capsys, f'{{id: a, zone: z, source: "http://me:x@{cameras[0]}/good"}}')
    assert code == 0
    assert listed["passwords"]["level"] == WARN


def test_a_taken_port_is_named_with_its_remedy(here, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, listed = doctor(here, capsys, words=["--hub-port", port])
    assert code == 1
    assert listed[f"port {port}"]["level"] == FAIL
    assert listed[f"port {port}"]["remedy"] == "choose another with --hub-port"


def test_lines_for_people_have_the_remedy(here, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["doctor", "--hub-port", str(port), "--console-port", str(free_ports(1)[0])]) == 1
    printed = capsys.readouterr().out
    assert f"fail port {port}:" in printed
    assert "→ choose another with --hub-port" in printed
    assert "1 failed" in printed


def test_the_clock_is_judged():
    assert check_clock().level in {OK, WARN}


def test_a_disk_that_cannot_be_written_fails():
    assert check_disk(Path("/proc/embereye")).level == FAIL
