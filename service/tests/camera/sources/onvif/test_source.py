"""ONVIF against our simulated cameras, whose streams our RTSP simulator serves.

They imitate the specification's WSDL; `test_peers.py` uses another maker's server.
"""

import asyncio
import contextlib
import hashlib
import itertools
import re
from datetime import timedelta

import pytest
from aiohttp import web

from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.onvif import source as onvif
from embereye.camera.sources.onvif.source import OnvifSource
from embereye.camera.sources.onvif.wanted import ANYTHING, Wanted
from embereye.camera.sources.poller import SocketPoller
from embereye.process.http.server import bound_port, serve_http
from embereye.sim.cameras.onvif import OnvifCameras
from embereye.sim.cameras.rtsp import serve_rtsp
from embereye.sim.scenes.films import CameraSpec, prepare
from embereye.wire.onvif.media import Profile

from ...conftest import play

MAIN = Profile("m", "main", "H264", 320, 240, 15, 2000, "v")
SUB = Profile("s", "sub", "H264", 160, 120, 15, 300, "v")
NAMED = re.compile(r"<[^>]*Username>([^<]*)<")


@contextlib.asynccontextmanager
async def streams():
    """Run an RTSP server with a large and a small stream of one room and yield its port."""
    large = await prepare([CameraSpec("large")], fps=15, size=(320, 240))
    small = await prepare([CameraSpec("small")], fps=15, size=(160, 120))
    large.films.update(small.films)
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    server = asyncio.ensure_future(serve_rtsp(large, "127.0.0.1", 0, stop, port.set_result, "H264"))
    yield await port
    stop.set()
    await server


@contextlib.asynccontextmanager
async def serving(served, *middlewares):
    app = served.application()
    app.middlewares.extend(middlewares)
    runner = await serve_http(app, "127.0.0.1", 0)
    served.port = bound_port(runner)
    try:
        yield served
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def camera(*middlewares, profiles=(MAIN, SUB), **options):
    """Run a camera whose streams name an unreachable host, as behind address translation."""
    async with streams() as port:
        address = f"rtsp://u:p@192.0.2.9:{port}"
        named = [
            (profile, f"{address}/{'large' if profile.width == 320 else 'small'}?channel=1") for profile in profiles
        ]
        async with serving(OnvifCameras({"cam": named}, **options), *middlewares) as served:
            yield served


def opened(port, wanted=ANYTHING, user="", password="", query="", **options):
    declared = parse_source(f"onvif://127.0.0.1:{port}/cam{query}")
    return OnvifSource(declared, lambda: (user, password), DialLimiter(1), SocketPoller(), wanted, **options)


@pytest.mark.parametrize("media2", [True, False])
async def test_a_fitting_stream_is_played_with_any_host_and_clock_of_the_camera(media2):
    options = {"user": "me", "password": "secret", "media2": media2, "ahead": timedelta(hours=-7), "host": "192.0.2.9"}
    async with camera(**options) as served:
        units, states, reason = await play(opened(served.port, user="me", password="secret"))
    assert not reason
    assert units[0].size == (320, 240)
    assert (
        states[-1]
        == 'streaming; ONVIF profile "main" (H264 320x240, 15 frames/s): the largest of 2, none has 480 pixels'
    )
    service = "media2" if media2 else "media"
    assert served.requests[-2:] == [f"{service}:GetProfiles", f"{service}:GetStreamUri"]


async def test_every_request_names_its_action_because_some_cameras_use_it():
    named = []

    @web.middleware
    async def note(request, handler):
        text = await request.text()
        asked = re.search(r'<s:Body><(\w+) xmlns="([^"]+)"', text)
        named.append((request.headers["Content-Type"], f"{asked[2]}/{asked[1]}"))
        return await handler(request)

    async with camera(note) as served:
        await play(opened(served.port))
    assert len(named) >= 4
    assert all(said == f'application/soap+xml; charset=utf-8; action="{action}"' for said, action in named)


async def test_the_named_profile_is_played():
    async with camera() as served:
        units, states, reason = await play(opened(served.port, Wanted("sub")))
    assert not reason
    assert units[0].size == (160, 120)
    assert states[-1].endswith('ONVIF profile "sub" (H264 160x120, 15 frames/s): as declared')


async def test_a_missing_profile_is_reported():
    async with camera() as served:
        assert 'no profile "third", only "main", "sub"' in (await play(opened(served.port, Wanted("third"))))[2]


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_wrong_and_missing_credentials_are_reported(password):
    async with camera(user="me", password="secret") as served:
        reason = (await play(opened(served.port, user="me" if password else "", password=password)))[2]
    remedy = "Check the credentials" if password else "Set credentialsRef: the camera requires credentials"
    assert reason == f"ONVIF: Sender not Authorized. {remedy}"


def digest_guard(seen, *, once=False):
    """HTTP Digest in front of a camera, implemented directly after RFC 7616; `once`: a nonce is valid only once."""
    nonces = itertools.count(1)
    nonce = "n0"

    @web.middleware
    async def guard(request, handler):
        nonlocal nonce
        text = await request.text()
        if "GetSystemDateAndTime" in text:
            return await handler(request)
        said = request.headers.get("Authorization", "")
        seen.append((said, text))
        values = dict(re.findall(r'(\w+)="?([^",]*)"?', said))

        def md5(*words):
            return hashlib.md5(":".join(words).encode()).hexdigest()

        if said:
            secret, asked = md5("me", "cam", "secret"), md5("POST", request.path)
            expected = md5(secret, nonce, values["nc"], values["cnonce"], "auth", asked)
            if once:
                nonce = f"n{next(nonces)}"
            if values["response"] == expected and values["uri"] == request.path:
                return await handler(request)
        challenge = f'Digest realm="cam", nonce="{nonce}", qop="auth", algorithm=MD5'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    return guard


async def test_http_digest_is_used_if_the_camera_requests_it():
    seen = []
    async with camera(digest_guard(seen)) as served:
        units, _, reason = await play(opened(served.port, user="me", password="secret"))
        assert not reason
        assert units
        counts = [re.search(r"nc=(\w+)", said)[1] for said, _ in seen if said]
        assert counts == [f"{number:08x}" for number in range(1, len(counts) + 1)]  # one nonce, used again
        assert all(not NAMED.search(text) for said, text in seen if said)  # one proof at a time
        reason = (await play(opened(served.port, user="me", password="wrong")))[2]
    assert reason == "ONVIF: HTTP 401. Check the credentials"


async def test_a_camera_that_accepts_each_nonce_once_gets_a_new_one_each_time():
    seen = []
    async with camera(digest_guard(seen, once=True)) as served:
        units, _, reason = await play(opened(served.port, user="me", password="secret"))
        assert not reason
        assert units
        seen.clear()
        reason = (await play(opened(served.port, user="me", password="wrong")))[2]
    assert reason == "ONVIF: HTTP 401. Check the credentials"
    assert len(seen) == 2  # many cameras lock out clients after a few wrong attempts


@contextlib.asynccontextmanager
async def closing(port):
    """Run a server that relays one request per connection to `port`, and closes at the next; yield its port."""

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
            there, back = await asyncio.open_connection("127.0.0.1", port)
            back.write(head + body)
            answer = await there.readuntil(b"\r\n\r\n")
            writer.write(answer + await there.readexactly(int(re.search(rb"Content-Length: (\d+)", answer)[1])))
            back.close()
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_request_on_a_silently_closed_connection_is_repeated():
    async with camera() as served, closing(served.port) as port:
        units, _, reason = await play(opened(port, user="me", password="secret"))
    assert not reason
    assert units


async def test_a_camera_that_closes_every_connection_is_reported():
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        reason = (await play(opened(server.sockets[0].getsockname()[1])))[2]
    assert reason.startswith("HTTP: ")


async def test_the_password_is_never_sent_unencrypted_on_request():
    said = []

    @web.middleware
    async def guard(request, handler):
        said.append((request.headers.get("Authorization"), await request.text()))
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="c"'})

    async with camera(guard) as served:
        reason = (await play(opened(served.port, user="me", password="secret")))[2]
    assert "Check the credentials" in reason
    assert not any(header or "secret" in text for header, text in said)


async def test_no_other_host_is_contacted_even_if_the_camera_names_one():
    """The stranger listens at another address of this machine, but only the declared host is asked."""
    asked = []

    async def stranger(request):
        asked.append(await request.text())
        return web.Response(text="<a/>")

    app = web.Application()
    app.router.add_post("/{_:.*}", stranger)
    runner = await serve_http(app, "127.0.0.2", 0)
    try:
        async with camera(user="me", password="secret", host=f"127.0.0.2:{bound_port(runner)}") as served:
            units, _, reason = await play(opened(served.port, user="me", password="secret"))
    finally:
        await runner.cleanup()
    assert not reason
    assert units
    assert not asked


async def test_redirects_are_not_followed():
    asked = []

    async def stranger(request):
        asked.append(request.path)
        return web.Response(text="<a/>")

    @web.middleware
    async def away(request, handler):
        return web.Response(status=307, headers={"Location": f"http://127.0.0.1:{bound_port(runner)}/x"})

    app = web.Application()
    app.router.add_route("*", "/{_:.*}", stranger)
    runner = await serve_http(app, "127.0.0.1", 0)
    try:
        async with camera(away) as served:
            reason = (await play(opened(served.port, user="me", password="secret")))[2]
    finally:
        await runner.cleanup()
    assert "HTTP 307" in reason
    assert not asked


def answering(write):
    @web.middleware
    async def answer(request, handler):
        response = web.StreamResponse()
        await response.prepare(request)
        await write(response)
        return response

    return answer


async def test_an_endless_answer_is_limited_by_size_and_time():
    async def flood(response):
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"<a>" * 10_000)

    async def drip(response):
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"<a>")
                await asyncio.sleep(0.02)

    for write, seconds, expected in ((flood, 60, "more than 1048576 bytes"), (drip, 0.5, "no answer within 0.5 s")):
        async with camera(answering(write)) as served:
            reason = (await play(opened(served.port, dial=seconds)))[2]
        assert expected in reason


async def test_entities_in_an_answer_are_refused():
    async def laugh(response):
        await response.write(b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><l>&b;</l>')

    async with camera(answering(laugh)) as served:
        assert "document type" in (await play(opened(served.port)))[2]


async def test_the_whole_conversation_is_bounded_in_time(monkeypatch):
    monkeypatch.setattr(onvif, "RESOLVE_SECONDS", 0.4)

    @web.middleware
    async def slow(request, handler):
        await asyncio.sleep(0.25)
        return await handler(request)

    async with camera(slow) as served:
        assert "no answer within" in (await play(opened(served.port)))[2]


async def test_an_address_without_onvif_is_reported():
    async def page(response):
        await response.write(b"<html><br></html>")

    async with camera(answering(page)) as served:
        assert "Check that this is the address of an ONVIF camera" in (await play(opened(served.port)))[2]


async def test_an_echoed_stream_path_is_not_shown():
    """Cameras have the password in the path, and echo paths that they do not find."""
    async with streams() as port:
        named = [(MAIN, f"rtsp://192.0.2.9:{port}/user=admin_password=hush_channel=1")]
        async with serving(OnvifCameras({"cam": named})) as served:
            _, states, reason = await play(opened(served.port))
    assert "404" in reason
    assert "hush" not in reason + " ".join(states)


async def test_a_record_stream_has_to_be_recordable_without_decoding():
    jpeg = Profile("j", "pictures", "JPEG", 320, 240, 5, 0, "v")
    async with camera(profiles=(jpeg, SUB)) as served:
        reason = (await play(opened(served.port, Wanted("pictures", recorded=True))))[2]
    assert "cannot be recorded" in reason


def rewriting(change, *names):
    """Change the answers to the requests `names`, or to all."""

    @web.middleware
    async def rewrite(request, handler):
        text = await request.text()
        response = await handler(request)
        if not names or any(f"<{name} " in text for name in names):
            response.body = change(response.body)
        return response

    return rewrite


DAMAGE = {
    "a bare & in addresses": lambda body: body.replace(b"?channel=1", b"?channel=1&subtype=0"),
    "control characters in names": lambda body: body.replace(b"main", b"ma\x03in\x00"),
    "names that are not UTF-8": lambda body: body.replace(b"sub", b"s\xfcb"),
    "NUL bytes behind": lambda body: body + bytes(3),
    "text behind": lambda body: body + b"\r\n<!-- done --></html>",
    "blanks in front": lambda body: b"\r\n" + body,
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_camera_whose_answers_are_not_quite_xml_is_played(damage):
    async with camera(rewriting(DAMAGE[damage])) as served:
        units, states, reason = await play(opened(served.port))
    assert not reason
    assert units[0].size == (320, 240)
    assert 'ONVIF profile "main"' in states[-1]


OPTIONAL = ("GetSystemDateAndTime", "GetServices", "GetCapabilities")


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("body", [b"", b"<html><br></html>", b"<!DOCTYPE html><html/>", bytes(1024 * 1024 + 1)])
async def test_an_optional_answer_that_cannot_be_read_is_like_a_missing_one(name, body):
    async with camera(rewriting(lambda _: body, name)) as served:
        units, _, reason = await play(opened(served.port))
    assert not reason
    assert units[0].size == (320, 240)


async def test_a_camera_that_answers_nothing_readable_is_named_as_such():
    async with camera(rewriting(lambda _: b"")) as served:
        reason = (await play(opened(served.port)))[2]
    assert reason == "ONVIF: its answer is not XML. Check that this is the address of an ONVIF camera"
