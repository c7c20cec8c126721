import asyncio
import base64
import contextlib
import socket
import ssl
import struct

import pytest
from harness.eventually import eventually

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.http.source import HttpSource
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import keep_playing, read_pause
from embereye.process.timing.backoff import Backoff

from ..conftest import noisy_jpeg

A, B = noisy_jpeg(1), noisy_jpeg(2)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=--x\r\n\r\n"


@contextlib.asynccontextmanager
async def camera(*chunks, stay_open=False, requests=None, tls=None, host="127.0.0.1"):
    """Run an HTTP server that answers every request with exactly these bytes, and then closes or falls silent."""

    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            if requests is not None:
                requests.append(request.decode())
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
            if stay_open:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, host, 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def source(address, **options):
    return HttpSource(
        parse_source(f"http://{address}/video.mjpg"), lambda: ("", ""), asyncio.Semaphore(1), SocketPoller(), **options
    )


async def play(address, **options):
    frames, states = [], []
    try:
        await source(address, **options).play(frames.append, states.append)
        reason = ""
    except SourceError as error:
        reason = str(error)
    return frames, states, reason


async def test_pictures_of_a_camera_arrive_and_its_state_is_streaming():
    body = b"".join(b"--x\r\nContent-Type: image/jpeg\r\nContent-Length: 7\r\n\r\n" + jpeg + b"\r\n" for jpeg in (A, B))
    async with camera(OK, body) as address:
        frames, states, reason = await play(address)
    assert frames == [A, B]
    assert states == ["connected, no picture yet", "streaming"]
    assert not reason


@pytest.mark.parametrize(
    "headers",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=x\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
@pytest.mark.parametrize("pieces", [1, 7, 60])
async def test_pictures_arrive_however_the_body_is_framed_and_divided(headers, pieces):
    jpegs = [noisy_jpeg(seed, (240, 320)) for seed in range(6)]
    body = b"".join(b"--x\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + b"\r\n" for jpeg in jpegs)
    size = -(-len(body) // pieces)
    cut = [body[start : start + size] for start in range(0, len(body), size)]
    if b"chunked" in headers:
        cut = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in cut] + [b"0\r\n\r\n"]
    elif b"%d" in headers:
        headers %= len(body)
    async with camera(headers, *cut) as address:
        frames, _, reason = await play(address)
    assert frames == jpegs
    assert not reason


@pytest.mark.parametrize("size", [1, 50, 10_000])
@pytest.mark.parametrize(
    "line",
    [b"Tue, 12 Jun 2012 01:56:34 GMT\r\n", b"Server : GoaHead\r\n", b"\xff\xfe: x\r\n", b"Server: G\r\n \tx\r\n"],
)
async def test_invalid_lines_in_a_response_head_are_ignored(line, size):
    head = b"HTTP/1.1 200 OK\r\n" + line + b"Content-Type: multipart/x-mixed-replace; boundary=x\r\n\r\n"
    data = head + b"--x\r\n\r\n" + A + b"\r\n--x\r\n\r\n" + B
    async with camera(*(data[start : start + size] for start in range(0, len(data), size))) as address:
        frames, _, reason = await play(address)
    assert not reason
    assert frames == [A, B]


async def test_a_broken_connection_or_a_failing_consumer_ends_the_source():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"--x\r\n\r\n" + A)
        await eventually(lambda: frames)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    def explode(_):
        frames.append(b"")
        raise ZeroDivisionError

    frames = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(SourceError, match="the connection broke: Connection reset"):
            await source(address).play(lambda data, *_: frames.append(data), lambda _: None)
        frames.clear()
        with pytest.raises(ZeroDivisionError):
            await source(address).play(explode, lambda _: None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404 Not Found"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "Check the credentials"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", "text/html"),
        (b"hello, I am no web server\r\n\r\n", "HTTP: "),
        (b"", "HTTP: "),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Endless: y\r\n" * 200_000, "HTTP: "),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000, "HTTP: "),
        (OK[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + A, "HTTP: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + A, "HTTP: "),
        (OK + b"\n" * 8_000_000, "not MJPEG: no picture within 10000 lines"),
    ],
)
async def test_a_server_that_is_no_camera_is_reported_in_one_sentence(answer, text):
    async with camera(answer) as address:
        frames, _, reason = await play(address, dial=5.0)
    assert text in reason
    assert not frames


async def test_an_address_of_single_pictures_is_reported():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(A)
    async with camera(head + A) as address:
        frames, _, reason = await play(address)
    assert frames == [A]
    assert reason == 'the server sends "image/jpeg", a single picture, not multipart/x-mixed-replace'


async def test_a_server_that_never_answers_is_given_up():
    async with camera(stay_open=True) as address:
        _, _, reason = await play(address, dial=0.2)
    assert reason == "no answer within 0.2 s"


async def test_an_unknown_name_is_reported_in_words(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    _, _, reason = await play("no-such-host.invalid:80")
    assert reason == "cannot connect: Name or service not known"


async def test_a_port_without_a_listener_is_reported():
    async with camera() as address:
        pass
    _, _, reason = await play(address)
    assert reason.startswith("cannot connect")


async def test_a_stream_that_falls_silent_is_given_up():
    async with camera(OK, b"--x\r\n\r\n" + A, stay_open=True) as address:
        frames, _, reason = await play(address, stall=0.3)
    assert frames == [A]
    assert reason == "no picture for 0.3 s" or "Timeout" in reason


async def test_a_stream_that_never_completes_a_picture_is_given_up():
    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(OK + b"--x\r\n\r\n" + A[:-2])
            while True:
                writer.write(b"\0")
                await writer.drain()
                await asyncio.sleep(0.02)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        frames, _, reason = await play(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", stall=0.3)
    assert not frames
    assert reason == "no picture for 0.3 s"


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b'WWW-Authenticate: Basic realm="cam"\r\n', base64.b64encode(b"me:p@ss").decode()),
        (b"", base64.b64encode(b"me:p@ss").decode()),
        (b'WWW-Authenticate: Digest realm="cam", nonce="n", qop="auth"\r\n', 'Digest username="me", realm="cam"'),
        (
            b'WWW-Authenticate: Basic realm="cam"\r\nWWW-Authenticate: Digest realm="cam", nonce="n", qop="auth"\r\n',
            'Digest username="me", realm="cam"',
        ),
    ],
)
async def test_credentials_are_sent_on_request_and_never_in_the_url(challenge, text):
    requests = []
    denied = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n" + challenge + b"Content-Length: 0\r\n\r\n"
    async with camera(denied, requests=requests) as address:
        declared = parse_source(f"http://{address}/v?x=1")
        with pytest.raises(SourceError, match="Check the credentials"):
            await HttpSource(declared, lambda: ("me", "p@ss"), asyncio.Semaphore(1), SocketPoller()).play(
                lambda *_: None,
                lambda _: None,
            )
    assert len(requests) == 2
    assert "Authorization" not in requests[0]
    assert text in requests[1]
    assert "@" not in "".join(requests)


@pytest.mark.parametrize("host", ["[::1]", "[0:0:0:0:0:0:0:1]", "[::0001]"])
async def test_a_camera_gets_its_credentials_however_its_address_is_written(host):
    requests = []
    denied = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with camera(denied, requests=requests, host="::1") as address:
        declared = parse_source(f"http://{host}:{address.rpartition(':')[2]}/v")
        with pytest.raises(SourceError, match="Check the credentials"):
            await HttpSource(declared, lambda: ("me", "x"), asyncio.Semaphore(1), SocketPoller()).play(
                lambda *_: None,
                lambda _: None,
            )
    assert "Authorization" in requests[-1]


async def test_a_source_is_played_again_after_every_end_with_the_reason_as_state():
    frames, states = [], []
    async with camera(OK, b"--x\r\n\r\n" + A) as address:
        player = asyncio.ensure_future(
            keep_playing("c", source(address), lambda data, *_: frames.append(data), states.append, Backoff(0.01, 0.02))
        )
        await eventually(lambda: len(frames) >= 3)
        player.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await player
    assert "failed: the source ended" in states


async def test_a_self_signed_certificate_is_refused_unless_allowed(certificate):
    nobody, dials = lambda: ("", ""), asyncio.Semaphore(1)
    async with camera(OK, b"--x\r\n\r\n" + A, tls=certificate) as address:
        frames = []
        with pytest.raises(SourceError, match=r"is not trusted: self.signed.*add tls=unverified to the query"):
            await HttpSource(parse_source(f"https://{address}/v"), nobody, dials, SocketPoller()).play(
                lambda data, *_: frames.append(data),
                lambda _: None,
            )
        assert not frames
        declared = parse_source(f"https://{address}/v?x=1&tls=unverified")
        await HttpSource(declared, nobody, dials, SocketPoller()).play(
            lambda data, *_: frames.append(data), lambda _: None
        )
    assert frames == [A]


async def test_a_camera_with_old_tls_is_accepted_without_verification(old_certificate):
    old_certificate.set_ciphers("AES128-SHA256:@SECLEVEL=0")
    old_certificate.maximum_version = ssl.TLSVersion.TLSv1_2
    async with camera(OK, b"--x\r\n\r\n" + A, tls=old_certificate) as address:
        frames, declared = [], parse_source(f"https://{address}/v?tls=unverified")
        await HttpSource(declared, lambda: ("", ""), asyncio.Semaphore(1), SocketPoller()).play(
            lambda data, *_: frames.append(data),
            lambda _: None,
        )
    assert frames == [A]


async def test_credentials_do_not_follow_a_redirect_away_from_tls(certificate):
    denied = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    requests = []
    async with camera(denied, requests=requests) as plain:
        moved = f"HTTP/1.1 302 Found\r\nLocation: http://{plain}/v\r\nContent-Length: 0\r\n\r\n".encode()
        async with camera(moved, tls=certificate) as address:
            declared = parse_source(f"https://{address}/v?tls=unverified")
            with pytest.raises(SourceError, match="401"):
                await HttpSource(declared, lambda: ("me", "x"), asyncio.Semaphore(1), SocketPoller()).play(
                    lambda *_: None,
                    lambda _: None,
                )
    assert len(requests) == 1


def moved_to(url):
    return f"HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_redirect_to_another_path_or_port_of_the_host_is_followed():
    async with camera(OK, b"--x\r\n\r\n" + A) as there, camera(moved_to(f"http://{there}/v")) as address:
        assert await play(address) == ([A], ["connected, no picture yet", "streaming"], "")


@pytest.mark.parametrize("scheme", ["http:", "https:", ""])
async def test_a_redirect_to_another_host_is_not_followed(scheme):
    requests = []
    async with camera(OK, requests=requests) as there:
        place = there.replace("127.0.0.1", "localhost")
        async with camera(moved_to(f"{scheme}//{place}/secret?x=1")) as address:
            _, _, reason = await play(address)
    assert not requests
    assert reason.startswith(f'redirected to "{scheme or "http:"}//{place}", which is not its host')


async def test_credentials_do_not_follow_a_redirect_to_another_port():
    denied = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n'
    requests = []
    async with camera(denied, requests=requests) as there, camera(moved_to(f"http://{there}/v")) as address:
        declared = parse_source(f"http://{address}/v")
        with pytest.raises(SourceError, match="401"):
            await HttpSource(declared, lambda: ("me", "x"), asyncio.Semaphore(1), SocketPoller()).play(
                lambda *_: None,
                lambda _: None,
            )
    assert not any("Authorization" in request for request in requests)


async def test_endless_redirects_end_with_a_sentence():
    async with camera(moved_to("/again")) as address:
        assert (await play(address))[2] == "redirected more than 3 times"


@pytest.mark.parametrize("line", [b"HTTP/1.1 404 key=s3cret", b"HTTP/1.1 s3cret", b"s3cret 1"])
async def test_the_text_of_a_status_line_is_not_shown(line):
    async with camera(line + b"\r\nContent-Length: 0\r\n\r\n") as address:
        _, _, reason = await play(address)
    assert reason.startswith("HTTP")
    assert "s3cret" not in reason


async def test_a_broken_stream_is_reported_in_plain_words():
    ok = OK[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    async with camera(ok, b"%x\r\n" % (len(A) + 11), b"--x\r\n\r\n" + A) as address:
        frames, _, reason = await play(address)
    assert frames == [A]
    assert reason == "the connection broke before the end of the answer"


@pytest.mark.parametrize(("stable_seconds", "grows"), [(0.0, False), (60.0, True)])
async def test_waits_for_a_failing_source_grow_unless_it_had_streamed(stable_seconds, grows):
    class Flapping:
        async def play(self, offer, set_state):
            offer(A)

    states, backoff = [], Backoff(0.001, 0.001)
    player = asyncio.ensure_future(
        keep_playing("c", Flapping(), lambda *_: None, states.append, backoff, stable_seconds=stable_seconds)
    )
    await eventually(lambda: states.count("failed: the source ended") >= 3)
    player.cancel()
    assert (backoff.failures >= 3) == grows


def test_a_flood_gets_a_fifth_of_the_event_loop_and_a_camera_all_it_needs():
    assert read_pause(0.0002) == 0.0
    assert read_pause(0.1) == pytest.approx(0.4)


async def test_a_flooding_camera_is_left_unread_without_losing_pictures(monkeypatch):
    monkeypatch.setattr("embereye.camera.sources.source.BURST_SECONDS", 0.0)
    body = b"".join(b"--x\r\n\r\n" + jpeg + b"\r\n" for jpeg in (A, B) * 50)
    async with camera(OK, body) as address:
        frames, _, _ = await play(address)
    assert frames == [A, B] * 50


async def test_an_unexpected_error_of_a_source_is_only_its_failure():
    class Bomb:
        async def play(self, offer, set_state):
            raise ZeroDivisionError("boom")

    states = []
    player = asyncio.ensure_future(keep_playing("c", Bomb(), lambda *_: None, states.append, Backoff(0.01, 0.02)))
    await eventually(lambda: len(states) > 4)
    assert not player.done()
    player.cancel()
    assert "failed: ZeroDivisionError: boom" in states
