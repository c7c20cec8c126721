import asyncio
import base64
import socket

from embereye.camera.sources.credentials import VARIABLE
from embereye.wire.packetize import Packetizer, read_scan

from .conftest import assignment, device, eventually, noisy_jpeg, status_of
from .rtsp_camera import RtspCamera
from .test_rtp_source import free_port


async def test_a_camera_that_sends_rtp_is_covered_and_its_unusable_pictures_are_counted(running):
    port = free_port()
    running.shard.apply(assignment(1, device("c1", f"rtp://127.0.0.1:{port}")))
    await eventually(lambda: "waiting for packets" in status_of(running.shard, "c1").state)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        packetizer, number = Packetizer(9), 0
        while status_of(running.shard, "c1").ledger.analysed < 3:
            number += 1
            for place, packet in enumerate(packetizer.packets_of(read_scan(noisy_jpeg(number)), 6000 * number)):
                if number != 2 or place != 3:
                    sender.sendto(packet, ("127.0.0.1", port))
            await asyncio.sleep(0.02)
    status = status_of(running.shard, "c1")
    assert status.covered
    assert status.state.startswith("streaming")
    assert status.ledger.rejected["truncated"] == 1


async def test_a_secret_opens_a_camera_and_a_new_password_is_used_at_the_next_connection(
    running, tmp_path, monkeypatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "username").write_text("me")
    (tmp_path / "gate" / "password").write_text("old")
    denied = b'RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\nWWW-Authenticate: Basic realm="c"\r\n\r\n'
    async with RtspCamera(answers={"DESCRIBE": denied}).serving() as camera:

        def said():
            return [item.header("authorization") for item in camera.requests]

        running.shard.apply(assignment(1, device("c1", f"rtsp://{camera.address}/live", credentials="gate")))
        await eventually(lambda: "check the credentials" in status_of(running.shard, "c1").reason)
        assert "Basic " + base64.b64encode(b"me:old").decode() in said()
        (tmp_path / "gate" / "password").write_text("a-new-one")
        await eventually(lambda: "Basic " + base64.b64encode(b"me:a-new-one").decode() in said())
        camera.answers.clear()
        await eventually(lambda: status_of(running.shard, "c1").covered)
        assert "a-new-one" not in str(status_of(running.shard, "c1"))
