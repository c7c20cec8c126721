import asyncio
import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from harness.eventually import eventually

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.onvif.source import OnvifSource
from embereye.camera.sources.onvif.wanted import Wanted
from embereye.camera.sources.poller import SocketPoller
from embereye.process.http.server import bound_port, serve_http

from ...conftest import noisy_jpeg

AHEAD = timedelta(hours=3)  # camera's clock minus ours


def soap_answer(body):
    text = (
        f'<env:Envelope xmlns:env="http://www.w3.org/2003/05/soap-envelope"><env:Body>{body}</env:Body></env:Envelope>'
    )
    return web.Response(text=text, content_type="application/soap+xml")


class OnvifCamera:
    """Checks WS-UsernameToken by its clock, and requests Basic credentials for its snapshots."""

    def __init__(self):
        self.snapshots = 0
        self.port = 0

    async def service(self, request):
        text = await request.text()
        if "GetSystemDateAndTime" in text:
            now = datetime.now(UTC) + AHEAD
            fields = "".join(
                f"<tt:{name}>{getattr(now, name.lower())}</tt:{name}>"
                for name in ("Hour", "Minute", "Second", "Year", "Month", "Day")
            )
            return soap_answer(f"<tds:X><tt:UTCDateTime>{fields}</tt:UTCDateTime></tds:X>")
        if "GetServices" in text:
            return web.Response(status=500, text="<e:Fault><e:Text>unknown request</e:Text></e:Fault>")
        if not self.allowed(text):
            reason = '<env:Reason><env:Text xml:lang="en">Sender not Authorized</env:Text></env:Reason>'
            return web.Response(status=400, text=f"<env:Fault>{reason}</env:Fault>")
        if "GetCapabilities" in text:
            inner = "<tt:XAddr>http://192.168.0.9/onvif/media</tt:XAddr>"
            return soap_answer(f"<tt:Media>{inner}</tt:Media>")
        if "GetProfiles" in text:
            return soap_answer('<trt:Profiles token="main"><tt:Name>m</tt:Name></trt:Profiles>')
        assert "<ProfileToken>main</ProfileToken>" in text
        return soap_answer("<tt:Uri>http://192.168.0.9/snap.jpg?a=1&amp;b=2</tt:Uri>")

    def allowed(self, text):
        nonce, created, digest = (
            re.search(rf"<{name}[^>]*>([^<]*)<", text)[1] for name in ("Nonce", "Created", "Password")
        )
        now = datetime.now(UTC) + AHEAD
        then = datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        expected = hashlib.sha1(base64.b64decode(nonce) + created.encode() + b"secret").digest()
        return abs(now - then) < timedelta(seconds=10) and base64.b64decode(digest) == expected

    async def snapshot(self, request):
        assert request.query_string == "a=1&b=2"
        if request.headers.get("Authorization") != "Basic " + base64.b64encode(b"me:secret").decode():
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="c"'})
        self.snapshots += 1
        return web.Response(body=noisy_jpeg(self.snapshots), content_type="image/jpeg")


@pytest.fixture
async def camera():
    served, app = OnvifCamera(), web.Application()
    app.router.add_post("/onvif/{_:.*}", served.service)
    app.router.add_get("/snap.jpg", served.snapshot)
    runner = await serve_http(app, "127.0.0.1", 0)
    served.port = bound_port(runner)
    yield served
    await runner.cleanup()


def source(port, password="secret"):
    declared = parse_source(f"onvif://127.0.0.1:{port}")
    return OnvifSource(declared, lambda: ("me", password), DialLimiter(1), SocketPoller(), Wanted(rate=100.0))


async def test_snapshots_are_found_and_fetched_with_any_camera_clock(camera):
    frames, states = [], []
    player = asyncio.ensure_future(source(camera.port).play(frames.append, states.append))
    await eventually(lambda: len(frames) >= 3 or player.done())
    player.cancel()
    with pytest.raises(asyncio.CancelledError):
        await player
    assert frames[:3] == [noisy_jpeg(1), noisy_jpeg(2), noisy_jpeg(3)]
    assert set(states) == {"asking by ONVIF", "streaming snapshots"}


async def test_a_wrong_password_is_reported(camera):
    with pytest.raises(SourceError, match=r"Sender not Authorized\. Check the credentials"):
        await source(camera.port, "wrong").play(lambda _: None, lambda _: None)


async def test_a_server_without_onvif_is_reported():
    async def nothing(_):
        return web.Response(text="<html/>")

    app = web.Application()
    app.router.add_post("/{_:.*}", nothing)
    runner = await serve_http(app, "127.0.0.1", 0)
    with pytest.raises(SourceError, match=r"names no media profile|no XML"):
        await source(bound_port(runner)).play(lambda _: None, lambda _: None)
    await runner.cleanup()
    with pytest.raises(SourceError, match="cannot connect"):
        await source(bound_port(runner) if runner.addresses else 9).play(lambda _: None, lambda _: None)
