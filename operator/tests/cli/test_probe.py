"""`embereye camera probe` prints a fleet without passwords, and says in its exit code why there is none."""

import asyncio
import json
import threading

import pytest
import yaml

from embereye.process.addresses import free_port
from embereye.sim.cameras.onvif import OnvifCameras, serve_onvif
from embereye.wire.onvif.media import Profile
from embereye_cli.main import main

REFUSAL = b'RTSP/1.0 401 Unauthorized\r\nCSeq: 1\r\nWWW-Authenticate: Basic realm="cam"\r\n\r\n'


def test_an_mjpeg_camera_becomes_a_fleet_and_a_still(in_thread, tmp_path, capsys):
    import cv2
    import numpy as np

    picture = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=x\r\n\r\n")
        while True:
            writer.write(b"--x\r\nContent-Type: image/jpeg\r\n\r\n" + picture + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)

    server = in_thread(asyncio.start_server(serve, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    still = tmp_path / "still.jpg"
    options = ["--seconds", "0.6", "--still", str(still), "--zone", "yard", "--id", "gate"]
    assert main(["camera", "probe", f"http://127.0.0.1:{port}/video", *options]) == 0
    printed = capsys.readouterr()
    (camera,) = yaml.safe_load(printed.out)["spec"]["cameras"]
    assert camera == {"id": "gate", "zone": "yard", "source": f"http://127.0.0.1:{port}/video"}
    assert still.read_bytes() == picture
    assert "JPEG 64x48" in printed.err
    assert main(["camera", "probe", f"http://127.0.0.1:{port}/video", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["streams"][0]["codec"] == "JPEG"


def test_a_refused_onvif_login_is_followed_by_one_more_at_most(in_thread, tmp_path, capsys):
    served = OnvifCameras(
        {"gate": [(Profile("m", "main", "H264", 640, 480, 15, 0, "v"), "rtsp://127.0.0.1/1")]},
        user="viewer", password="right",
    )  # fmt: skip
    bound, stop = threading.Event(), asyncio.Event()
    (tmp_path / "who").write_text("viewer\nwrong\n")

    async def start():
        asyncio.get_running_loop().create_task(serve_onvif(served, "127.0.0.1", 0, stop, lambda _: bound.set()))

    in_thread(start())
    assert bound.wait(20)
    code = main(["camera", "probe", f"onvif://127.0.0.1:{served.port}/gate", "--credentials", str(tmp_path / "who")])
    printed = capsys.readouterr()
    assert code == 4
    assert "refuses this user and password" in printed.err
    assert "wrong" not in printed.out


@pytest.mark.parametrize(
    ("address", "code", "reason"),
    [
        ("rtsp://me:secret@127.0.0.1/x", 1, "use --credentials"),
        ("rtsp://me:p/ss@127.0.0.1/x", 1, "write %2F instead"),
        ("file:///x", 1, "Use rtsp, http or onvif"),
        ("127.0.0.1:x", 2, "ADDRESS"),
    ],
)
def test_an_address_that_cannot_be_probed_says_what_to_write(address, code, reason, capsys):
    assert main(["camera", "probe", address]) == code
    printed = capsys.readouterr()
    assert reason.lower() in printed.err.lower()
    assert "secret" not in printed.err


def test_a_closed_port_is_unreachable(capsys):
    assert main(["camera", "probe", f"127.0.0.1:{free_port()}"]) == 3
    assert "refuses port" in capsys.readouterr().err
