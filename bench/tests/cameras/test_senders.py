import socket
import time

from embereye.process.addresses import free_ports
from embereye_bench.films import Films
from embereye_bench.process import Sender

HOST = "127.0.0.1"
SECONDS = 20.0


def view(port, camera):
    viewer = socket.create_connection((HOST, port))
    viewer.settimeout(SECONDS)
    viewer.sendall(b"GET /%d HTTP/1.1\r\n\r\n" % camera)
    assert viewer.recv(100).startswith(b"HTTP/1.1 200")
    return viewer


def test_a_viewer_that_disconnects_does_not_stop_the_pictures_of_others(tmp_path):
    films, hub = tmp_path / "films", f"{HOST}:{free_ports(1)[0]}"
    Films(((b"\xff\xd8" + bytes(3000) + b"\xff\xd9",),) * 3).save(films)
    with Sender("mjpeg", "--hub", hub, "--films", str(films), "--rate", "50", "--cameras", "2") as sender:
        first, second = (view(sender.introduction["port"], camera) for camera in range(2))
        first.close()
        sender.command("start")
        received, deadline = 0, time.monotonic() + SECONDS
        while received < 10 * 3000 and time.monotonic() < deadline:
            received += len(second.recv(65_536))
        assert received >= 10 * 3000
        assert sender.command("ask")["unsent"] > 0
        with view(sender.introduction["port"], 0) as again:
            assert len(again.recv(100))
        second.close()
