import asyncio
import base64
import contextlib
import socket

import pytest
from aiohttp import web
from harness.eventually import eventually

from embereye.camera.sources.credentials import VARIABLE
from embereye.process.addresses import free_port
from embereye.process.http.server import bound_port, serve_http
from embereye.wire.rtp.packetize import Packetizer, read_scan

from .conftest import assignment, device, noisy_jpeg, status_of
from .sources.rtp.rtsp_camera import RtspCamera


async def test_a_camera_that_sends_rtp_is_covered_and_its_unusable_pictures_are_counted(running):
    port = free_port(socket.SOCK_DGRAM)
    running.shard.apply(assignment(1, device("c1", f"rtp://127.0.0.1:{port}")))
    await eventually(lambda: "waiting for packets" in status_of(running.shard, "c1").state)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        packetizer, number = Packetizer(9), 0
        while status_of(running.shard, "c1").ledger.analysed < 3:
            number += 1
            for place, packet in enumerate(packetizer.packetize(read_scan(noisy_jpeg(number)), 6000 * number)):
                if number != 2 or place != 3:
                    sender.sendto(packet, ("127.0.0.1", port))
            await asyncio.sleep(0.02)
    status = status_of(running.shard, "c1")
    assert status.covered
    assert status.state.startswith("streaming")
    assert status.ledger.rejected["truncated"] == 1


def secret(folder, password):
    (folder / "gate").mkdir(exist_ok=True)
    (folder / "gate" / "username").write_text("me")
    (folder / "gate" / "password").write_text(password)
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


async def test_a_changed_password_is_used_at_the_cameras_next_connection(running, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    old = secret(tmp_path, "old")
    denied = b'RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\nWWW-Authenticate: Basic realm="c"\r\n\r\n'
    async with RtspCamera(answers={"DESCRIBE": [denied, None] * 9}).serving() as camera:
        running.shard.apply(assignment(1, device("c1", f"rtsp://{camera.address}/live", credentials="gate")))
        await eventually(lambda: status_of(running.shard, "c1").covered)
        new = secret(tmp_path, "new")
        seen = status_of(running.shard, "c1").ledger.offered
        await eventually(lambda: status_of(running.shard, "c1").ledger.offered > seen + 5)
        said = {item.header("authorization") for item in camera.requests}
        assert said == {"", old}
        camera.requests.clear()
        camera.hang_up()
        await eventually(lambda: any(item.reason == "PLAY" for item in camera.requests))
    assert {item.header("authorization") for item in camera.requests} == {"", new}


async def test_a_web_camera_is_asked_with_the_current_password(running, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    allowed, heard = [secret(tmp_path, "old")], []

    async def answer(request):
        heard.append(request.headers.get("Authorization"))
        if heard[-1] != allowed[0]:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="c"'})
        response = web.StreamResponse(headers={"Content-Type": "multipart/x-mixed-replace; boundary=x"})
        await response.prepare(request)
        while heard[-1] == allowed[0]:
            await response.write(b"--x\r\n\r\n" + noisy_jpeg(len(heard)) + b"\r\n")
            await asyncio.sleep(0.01)
        return response

    app = web.Application()
    app.router.add_get("/v", answer)
    server = await serve_http(app, "127.0.0.1", 0)
    running.shard.apply(assignment(1, device("c1", f"http://127.0.0.1:{bound_port(server)}/v", credentials="gate")))
    await eventually(lambda: status_of(running.shard, "c1").covered)
    allowed[0] = "Basic " + base64.b64encode(b"me:new").decode()
    await eventually(lambda: "HTTP 401 Unauthorized. Check the credentials" in status_of(running.shard, "c1").state)
    seen = status_of(running.shard, "c1").ledger.offered
    secret(tmp_path, "new")
    await eventually(lambda: status_of(running.shard, "c1").ledger.offered > seen)
    allowed[0] = ""
    running.shard.apply(assignment(2))
    await server.cleanup()


async def test_a_secret_opens_a_camera_and_a_new_password_is_used_at_the_next_connection(
    running, tmp_path, monkeypatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    old = secret(tmp_path, "old")
    denied = b'RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\nWWW-Authenticate: Basic realm="c"\r\n\r\n'
    async with RtspCamera(answers={"DESCRIBE": denied}).serving() as camera:

        def said():
            return [item.header("authorization") for item in camera.requests]

        running.shard.apply(assignment(1, device("c1", f"rtsp://{camera.address}/live", credentials="gate")))
        await eventually(lambda: "Check the credentials" in status_of(running.shard, "c1").reason)
        assert old in said()
        camera.answers["DESCRIBE"] = [denied]  # the new password is accepted
        new = secret(tmp_path, "a-new-one")
        await eventually(lambda: new in said())
        await eventually(lambda: status_of(running.shard, "c1").covered)
        assert "a-new-one" not in str(status_of(running.shard, "c1"))


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 404 \xff\x1b[2J[/x]\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/\xff\r\n\r\n",
     b"HTTP/1.1 302 \xff\r\nLocation: \xff://\xff\r\n\r\n", b"\xff\xfe\r\n\r\n"],
)  # fmt: skip
async def test_a_camera_that_answers_binary_data_does_not_block_other_statuses(running, answer):
    async def serve(reader, writer):
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    bad = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{bad.sockets[0].getsockname()[1]}"
    async with RtspCamera().serving() as camera:
        good, evil = device("c1", f"rtsp://{camera.address}/live"), device("c2", f"http://{address}/")
        worse = device("c3", f"rtsp://{address}/")
        running.shard.apply(assignment(1, good, evil, worse))
        for name in ("c2", "c3"):
            await eventually(lambda name=name: status_of(running.shard, name).state.startswith("failed"))
            assert status_of(running.shard, name).state.isprintable()
        await eventually(lambda: status_of(running.shard, "c1").covered)
    bad.close()
