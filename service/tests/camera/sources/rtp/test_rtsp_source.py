import asyncio
import contextlib
import socket
import ssl
import time
from types import SimpleNamespace

import pytest
from harness.eventually import eventually

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp import session as rtsp
from embereye.camera.sources.rtsp.connection import Endpoint, RtspConnection
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.wire.jpeg.header import read_header
from embereye.wire.video.access_unit import AccessUnit

from ....wire.video.coded import coded
from ...conftest import noisy_jpeg
from .rtsp_camera import RtspCamera, VideoCamera

PLAYING = b"RTSP/1.0 200 OK\r\nCSeq: {CSEQ}\r\n\r\n"
UNAUTHORIZED = b"RTSP/1.0 401 Unauthorized\r\nCSeq: {CSEQ}\r\n"


def source(camera, query="", scheme="rtsp", user="", password="", **options):
    declared = parse_source(f"{scheme}://{camera.address}/live{query}")
    options = {"dial": 2.0, "stall": 2.0} | options
    return RtspSource(declared, lambda: (user, password), DialLimiter(1), SocketPoller(), **options)


async def play(opened, pictures=3):
    """Play until so many pictures have arrived or an error: (pictures, states, error)."""
    frames, states = [], []
    player = asyncio.ensure_future(opened.play(lambda data, *_: frames.append(data), states.append))
    await eventually(lambda: len(frames) >= pictures or player.done())
    player.cancel()
    reason = ""
    try:
        await player
    except SourceError as error:
        reason = str(error)
    except asyncio.CancelledError:
        pass
    return frames, states, reason


@pytest.mark.parametrize("query", ["", "?transport=udp"])
async def test_a_camera_that_ends_its_lines_by_lf_alone_is_played_to_teardown(query):
    challenge = UNAUTHORIZED + b'WWW-Authenticate: Digest realm="cam",\r\n nonce="n"\r\n\r\n'
    async with RtspCamera(line_end=b"\n", answers={"DESCRIBE": [challenge]}).serving() as camera:
        frames, states, reason = await play(source(camera, query, user="me", password="x"))
        await eventually(lambda: camera.requests[-1].reason == "TEARDOWN")
    assert not reason
    assert read_header(frames[0]).complete
    assert states[-1] == "streaming"
    assert 'nonce="n"' in camera.requests[2].header("authorization")


@pytest.mark.parametrize(("query", "transport"), [("", "TCP"), ("?transport=tcp", "TCP"), ("?transport=udp", "UDP")])
async def test_pictures_arrive_over_the_declared_transport(query, transport):
    async with RtspCamera().serving() as camera:
        frames, states, reason = await play(source(camera, query))
        await eventually(lambda: camera.requests[-1].reason == "TEARDOWN")
    assert not reason
    assert read_header(frames[0]).complete
    assert camera.transports == [transport]
    assert states[-1] == "streaming"
    assert [item.reason for item in camera.requests] == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]
    assert camera.requests[3].header("session") == "4711"


@pytest.mark.parametrize(("query", "refused"), [("", "TCP"), ("?transport=udp", "UDP")])
async def test_the_other_transport_is_used_if_the_camera_refuses_one(query, refused):
    async with RtspCamera(refuse=refused).serving() as camera:
        frames, _, reason = await play(source(camera, query))
    assert frames
    assert not reason
    assert sorted(camera.transports) == ["TCP", "UDP"]


@pytest.mark.parametrize(
    "announced",
    [";server_port={ports}", "", ";source=camera.invalid;server_port={ports}", ";source=127.0.0.1", ";source=::1"],
)
async def test_pictures_are_accepted_only_from_the_camera(announced):
    async with RtspCamera(announced=announced, stranger="127.0.0.9").serving() as camera:
        frames, _, reason = await play(source(camera, "?transport=udp"))
    assert not reason
    assert frames
    forged = noisy_jpeg(5)[-256:]
    assert not any(forged in bytes(frame) for frame in frames)


@pytest.mark.parametrize(("query", "mute"), [("", "TCP"), ("?transport=udp", "UDP")])
async def test_the_other_transport_is_tried_if_no_packets_arrive(query, mute):
    async with RtspCamera(mute=mute).serving() as camera:
        opened = source(camera, query, stall=0.2)
        _, _, reason = await play(opened)
        assert "no packet arrived within 0.2 s; trying" in reason
        frames, _, reason = await play(opened)
    assert frames
    assert not reason


@pytest.mark.parametrize(
    ("challenges", "scheme"),
    [
        (b'WWW-Authenticate: Basic realm="cam"\r\n', "Basic"),
        (b'WWW-Authenticate: Digest realm="cam", nonce="a"\r\n', "Digest"),
        (b'WWW-Authenticate: Digest realm="c", nonce="a", algorithm=SHA-256, qop="auth"\r\n'
         b'WWW-Authenticate: Basic realm="cam"\r\n', "SHA-256"),
    ],
)  # fmt: skip
async def test_credentials_are_sent_after_a_challenge_and_with_later_requests(challenges, scheme):
    camera = RtspCamera(answers={"DESCRIBE": [UNAUTHORIZED + challenges + b"\r\n"]})
    async with camera.serving():
        frames, _, reason = await play(source(camera, user="me", password="secret"))
    assert frames
    assert not reason
    for item in camera.requests[2:]:
        assert scheme in item.header("authorization")
        assert "secret" not in item.header("authorization")


async def test_a_stale_nonce_is_replaced_while_connecting_and_while_playing(monkeypatch):
    def stale(nonce):
        header = f'WWW-Authenticate: Digest realm="c", nonce="{nonce}", stale=true\r\n\r\n'
        return UNAUTHORIZED + header.encode()

    camera = RtspCamera(answers={"DESCRIBE": [stale("a")], "SETUP": [stale("b"), None], "GET_PARAMETER": [stale("c")]})
    camera.timeout = 1
    async with camera.serving():
        player = asyncio.ensure_future(source(camera, user="me", password="x").play(lambda *_: None, lambda _: None))
        await eventually(lambda: sum(item.reason == "GET_PARAMETER" for item in camera.requests) >= 2)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    alive = [item.header("authorization") for item in camera.requests if item.reason == "GET_PARAMETER"]
    assert 'nonce="b"' in alive[0]
    assert 'nonce="c"' in alive[1]


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"DESCRIBE": UNAUTHORIZED + b'WWW-Authenticate: Digest realm="c", nonce="a"\r\n\r\n'},
         "DESCRIBE: 401 Unauthorized. Check the credentials"),
        ({"DESCRIBE": b"RTSP/1.0 404 Not Found\r\nCSeq: {CSEQ}\r\n\r\n"}, "404 Not Found. Check the path"),
        ({"PLAY": b"RTSP/1.0 453 Not Enough\r\nCSeq: {CSEQ}\r\n\r\n"}, "PLAY: 453 Not Enough. It lacks bandwidth"),
        ({"OPTIONS": b"HTTP/1.1 400 Bad Request\r\n\r\n"}, "which is not RTSP"),
        ({"OPTIONS": b"RTSP/1.0 200 OK\r\n" + b"X: endless\r\n" * 50_000}, "its headers do not end within"),
        ({"DESCRIBE": b"RTSP/1.0 200 OK\r\nCSeq: {CSEQ}\r\nContent-Length: 999999999\r\n\r\n"}, "Content-Length"),
        ({"DESCRIBE": b"RTSP/1.0 200 OK\r\nCSeq: {CSEQ}\r\nContent-Length: 500\r\n\r\nv=0"}, "no answer to DESCRIBE"),
        ({"SETUP": b""}, "no answer to SETUP within 0.3 s"),
        ({"PLAY": PLAYING + b"$\x00\xff\xffhalf a packet"}, "no packet arrived within 0.3 s; trying UDP"),
        ({"PLAY": PLAYING + b"$\x00\x00\x02ab" + b"\x01" * 70_000}, "RTSP: no RTSP in 65536 bytes"),
        ({"PLAY": PLAYING + b"$\x00\x00\x02abRTSP/1.0 " + b"A" * 70_000}, "RTSP: its headers do not end within 16384"),
        ({"DESCRIBE": b"RTSP/1.0 302 Moved\r\nCSeq: {CSEQ}\r\nLocation: http://else/\r\n\r\n"},
         'redirected to "http://else", which cannot be followed'),
        ({"DESCRIBE": b"RTSP/1.0 302 Moved\r\nCSeq: {CSEQ}\r\nLocation: rtsp://a:b@[\r\n\r\n"}, 'redirected to "rtsp://…"'),
    ],
)  # fmt: skip
async def test_a_cameras_error_is_reported_in_a_sentence(answers, text):
    async with RtspCamera(answers=answers).serving() as camera:
        frames, _, reason = await play(source(camera, user="me", password="secret", dial=0.3, stall=0.3))
    assert text in reason
    assert "secret" not in reason
    assert not frames


@pytest.mark.parametrize("number", [b"", b"CSeq: 0\r\n", b"CSeq: 4711\r\n"])
async def test_an_answer_without_a_number_belongs_to_the_waiting_request(number):
    answers = {
        "OPTIONS": [b"RTSP/1.0 200 OK\r\n" + number + b"\r\n"],
        "PLAY": [b"RTSP/1.0 453 No\r\n" + number + b"\r\n"],
    }
    async with RtspCamera(answers=answers).serving() as camera:
        _, _, reason = await play(source(camera, dial=0.5))
    assert reason.startswith("PLAY: 453 No")


async def test_a_repeated_answer_is_not_matched_to_the_next_request():
    twice = b"RTSP/1.0 200 OK\r\nCSeq: {CSEQ}\r\n\r\n" * 2
    async with RtspCamera(answers={"OPTIONS": [twice]}).serving() as camera:
        frames, _, reason = await play(source(camera))
    assert frames
    assert not reason


async def test_a_server_that_starts_its_stream_on_demand_has_more_time():
    async with RtspCamera(answers={"DESCRIBE": [b""]}).serving() as camera:
        player = asyncio.ensure_future(play(source(camera, dial=0.3)))
        await eventually(lambda: camera.requests and camera.requests[-1].reason == "DESCRIBE")
        await asyncio.sleep(0.6)
        camera.writers[0].write(camera._answer(camera.requests[-1]))
        frames, _, reason = await player
    assert frames
    assert not reason


async def test_a_camera_without_a_usable_track_is_reported_with_its_tracks():
    sdp = "v=0\r\nm=audio 0 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\n"
    async with RtspCamera(sdp=sdp).serving() as camera:
        _, _, reason = await play(source(camera))
    assert reason == "the camera has no JPEG, H.264 or H.265 track, only: audio PCMU, video VP8"


async def test_redirects_are_limited_and_lead_to_no_other_host_and_reveal_no_password():
    async with RtspCamera().serving() as camera, RtspCamera().serving() as first:
        moved = f"RTSP/1.0 302 Moved\r\nCSeq: {{CSEQ}}\r\nLocation: rtsp://{camera.address}/else\r\n\r\n".encode()
        first.answers["DESCRIBE"] = moved
        frames, _, _ = await play(source(first))
        assert frames
        basic = UNAUTHORIZED + b'WWW-Authenticate: Basic realm="c"\r\n\r\n'
        camera.answers["DESCRIBE"] = basic
        _, _, reason = await play(source(first, user="me", password="x"))
        assert "401" in reason
        assert not any(item.header("authorization") for item in camera.requests)
        first.answers["DESCRIBE"] = moved.replace(b"127.0.0.1", b"localhost")
        camera.requests.clear()
        _, _, reason = await play(source(first))
        assert "which is not its host" in reason
        assert not camera.requests
        camera.answers["DESCRIBE"] = first.answers["DESCRIBE"] = moved
        _, _, reason = await play(source(first))
    assert reason == "redirected more than 3 times"


async def test_a_session_gets_keep_alives_and_receiver_reports(monkeypatch):
    monkeypatch.setattr(rtsp, "REPORT_SECONDS", 0.1)
    camera = RtspCamera(timeout=1)
    async with camera.serving():
        player = asyncio.ensure_future(source(camera).play(lambda *_: None, lambda _: None))
        await eventually(lambda: any(item.reason == "GET_PARAMETER" for item in camera.requests) and camera.reports)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    report = camera.reports[0]
    assert report[1] == 201
    assert report[8:12] == (7).to_bytes(4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pictures": 2}, "no packet for 0.3 s"),
        ({"pictures": 2, "end": True}, "RTSP: the camera closed the connection"),
    ],
)
async def test_a_stopped_stream_is_given_up(options, text):
    async with RtspCamera(**options).serving() as camera:
        frames, _, reason = await play(source(camera, stall=0.3), pictures=99)
    assert len(frames) == 2
    assert reason == text


async def test_a_stopped_stream_is_given_up_even_by_a_repeatedly_suspended_shard(monkeypatch):
    monkeypatch.setattr(rtsp, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(rtsp, "CHECK_SECONDS", 0.02)
    async with RtspCamera(pictures=2).serving() as camera:
        player = asyncio.ensure_future(source(camera, stall=0.3).play(lambda *_: None, lambda _: None))
        await eventually(lambda: any(item.reason == "PLAY" for item in camera.requests))
        for _ in range(40):
            time.sleep(0.1)  # noqa: ASYNC251 -- a suspended process
            await asyncio.sleep(0.04)
        assert player.done()
        assert str(player.exception()) == "no packet for 0.3 s"


async def test_a_flooding_camera_is_left_unread_and_resumes_afterwards(monkeypatch):
    pauses = []
    monkeypatch.setattr(
        "embereye.camera.sources.rtsp.connection.read_pause", lambda spent: pauses.append(spent) or 0.001
    )
    async with RtspCamera(pictures=20).serving() as camera:
        frames, _, reason = await play(source(camera), pictures=20)
    assert len(frames) == 20
    assert not reason
    assert len(pauses) > 5


async def test_few_unread_answers_to_a_camera_are_buffered():
    with socket.create_server(("127.0.0.1", 0)) as camera:
        port = camera.getsockname()[1]
        connection = RtspConnection(Endpoint(f"rtsp://127.0.0.1:{port}/"), 2.0, lambda *_: None)
        camera.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await connection.connect()
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(100):
            connection.data_received(b"OPTIONS * RTSP/1.0\r\n\r\n" * 200)
            await asyncio.sleep(0)
        assert connection._transport.get_write_buffer_size() < 100_000
        connection.close("")


@pytest.mark.parametrize(("leaves", "text"), [(7, "RTSP: the camera ended the stream (RTCP BYE)"), (8, "")])
async def test_only_the_cameras_own_rtcp_bye_ends_its_stream(leaves, text):
    async with RtspCamera(leaves=leaves).serving() as camera:
        _, _, reason = await play(source(camera), pictures=20)
    assert reason == text


async def test_a_session_that_the_camera_dropped_is_given_up():
    answers = {"GET_PARAMETER": b"RTSP/1.0 454 Session Not Found\r\nCSeq: {CSEQ}\r\n\r\n"}
    async with RtspCamera(answers=answers, timeout=1).serving() as camera:
        _, _, reason = await play(source(camera), pictures=10**6)
    assert reason == "RTSP: the camera has dropped the session"


@pytest.mark.parametrize("answer", [b"", b"RTSP/1.0 405 Method Not Allowed\r\nCSeq: {CSEQ}\r\n\r\n"])
async def test_options_is_used_if_the_camera_refuses_get_parameter(answer):
    async with RtspCamera(answers={"GET_PARAMETER": answer}, timeout=1).serving() as camera:
        player = asyncio.ensure_future(source(camera, dial=0.2).play(lambda *_: None, lambda _: None))
        await eventually(lambda: sum(item.reason == "OPTIONS" for item in camera.requests) >= 3)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    assert [item.reason for item in camera.requests[4:7]] == ["GET_PARAMETER", "OPTIONS", "OPTIONS"]
    assert camera.requests[5].header("session") == "4711"


async def test_a_keep_alive_refused_for_its_credentials_is_repeated_once():
    refusals = [
        UNAUTHORIZED + f'WWW-Authenticate: Digest realm="c", nonce="{number}"\r\n\r\n'.encode() for number in range(999)
    ]
    async with RtspCamera(answers={"GET_PARAMETER": refusals}, timeout=1).serving() as camera:
        player = asyncio.ensure_future(source(camera, user="me", password="x").play(lambda *_: None, lambda _: None))
        await eventually(lambda: sum(item.reason == "OPTIONS" for item in camera.requests) >= 3)
        player.cancel()
        await asyncio.gather(player, return_exceptions=True)
    assert sum(item.reason == "GET_PARAMETER" for item in camera.requests) == 2


async def test_an_unknown_host_name_is_reported_in_words(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    _, _, reason = await play(source(SimpleNamespace(address="no-such-host.invalid:554")))
    assert reason == "cannot connect: Name or service not known"


@pytest.mark.parametrize("dead", ["silent", "closed"])
async def test_a_camera_is_reached_although_another_of_its_addresses_is_dead(dead, monkeypatch):
    async with RtspCamera().serving() as camera:
        with contextlib.ExitStack() as stack:
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            nowhere = silent.getsockname()
            if dead == "closed":
                silent.close()
            for _ in range(4 if dead == "silent" else 0):  # its queue is full, so no further connection is answered
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(nowhere)
            place = "127.0.0.1", int(camera.address.rpartition(":")[2])

            async def resolve(host, port, **_):
                addresses = (nowhere, place) if host == "camera.test" else ((host, port),)
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            frames, _, reason = await play(source(SimpleNamespace(address="camera.test:554")))
    assert frames, reason


async def test_an_address_without_a_listener_is_reported():
    async with RtspCamera().serving() as camera:
        pass
    _, _, reason = await play(source(camera))
    assert reason.startswith("cannot connect: ")


@pytest.mark.parametrize(("query", "trusted"), [("?tls=unverified", False), ("", True)])
async def test_a_tls_stream_needs_a_trusted_certificate_unless_verification_is_off(
    certificate, query, trusted, monkeypatch
):
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    async with RtspCamera(tls=certificate).serving() as camera:
        frames, _, reason = await play(source(camera, query, scheme="rtsps"))
        assert frames
        assert not reason
        _, _, reason = await play(source(camera))
        assert reason
    async with RtspCamera().serving() as camera:
        _, _, reason = await play(source(camera, scheme="rtsps", dial=0.5))
    assert reason.startswith("cannot connect")


async def test_a_self_signed_certificate_is_refused_with_the_remedy(certificate):
    async with RtspCamera(tls=certificate).serving() as camera:
        _, _, reason = await play(source(camera, scheme="rtsps", user="me", password="secret"))
    assert reason.startswith("its certificate is not trusted: self")
    assert reason.endswith("add tls=unverified to the query")
    assert not camera.requests


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated")
@pytest.mark.parametrize(
    ("ciphers", "latest"),
    [
        ("AES128-SHA256", ssl.TLSVersion.TLSv1_2),
        ("AES256-SHA", ssl.TLSVersion.TLSv1_2),
        ("DEFAULT", ssl.TLSVersion.TLSv1),
    ],
)
async def test_a_camera_with_old_tls_is_accepted_without_verification(old_certificate, ciphers, latest):
    old_certificate.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    old_certificate.maximum_version = latest
    async with RtspCamera(tls=old_certificate).serving() as camera:
        frames, _, reason = await play(source(camera, "?tls=unverified", scheme="rtsps"))
        assert frames
        assert not reason
        frames, _, reason = await play(source(camera, scheme="rtsps"))
        assert not frames
        assert reason, "the machine's TLS decides which of the two fails first"


async def test_a_camera_without_secure_renegotiation_is_accepted_unverified():
    hello = b"\x03\x03" + bytes(32) + b"\0" + b"\x00\x2f" + b"\0"  # TLS 1.2, AES128-SHA, no extension at all

    async def answer(reader, writer):
        await reader.read(1)
        writer.write(b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26" + hello)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x50")  # internal error
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        camera = SimpleNamespace(address=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        _, _, reason = await play(source(camera, "?tls=unverified", scheme="rtsps"))
    assert reason == "cannot connect: TLS: TLSV1_ALERT_INTERNAL_ERROR"


VIDEO_SDP = {
    "H264": "v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n",
    "H265": "v=0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H265/90000\r\na=control:track1\r\n",
}


@pytest.mark.parametrize("query", ["", "?transport=udp"])
@pytest.mark.parametrize("encoding", ["H264", "H265"])
async def test_access_units_of_a_video_are_offered_in_decoding_order(encoding, query):
    units = coded(encoding, 24)
    async with VideoCamera(VIDEO_SDP[encoding], encoding=encoding, units=units).serving() as camera:
        frames, states, reason = await play(source(camera, query), pictures=20)
    assert not reason
    assert states[-1] == "streaming"
    assert all(isinstance(unit, AccessUnit) and unit.encoding == encoding for unit in frames)
    assert frames[0].key
    assert not any(unit.damaged for unit in frames)


async def test_a_key_frame_is_requested_after_a_loss_if_the_camera_supports_it():
    sdp = VIDEO_SDP["H264"] + "a=rtcp-fb:96 nack pli\r\n"
    units = coded("H264", 24, gop=24)
    async with VideoCamera(sdp, encoding="H264", units=units, lost={5}).serving() as camera:
        frames, _, _ = await play(source(camera), pictures=20)
    request = next(data for data in camera.reports if len(data) > 12 and data[-11] == 206)
    assert request[-12] & 0x1F == 1
    assert request[-4:] == (7).to_bytes(4)
    assert [bool(unit.damaged) for unit in frames[:20]] == [number >= 5 for number in range(20)]


async def test_full_intra_requests_are_used_if_only_those_are_supported():
    sdp = VIDEO_SDP["H264"] + "a=rtcp-fb:96 ccm fir\r\n"
    units = coded("H264", 24, gop=24)
    async with VideoCamera(sdp, encoding="H264", units=units, lost={5, 60}).serving() as camera:
        await play(source(camera), pictures=150)
    requests = [bytes(data[-20:]) for data in camera.reports if len(data) > 20 and data[-19] == 206]
    assert len(requests) > 1
    assert {request[:4] + request[8:16] for request in requests} == {b"\x84\xce\0\4" + bytes(4) + (7).to_bytes(4)}
    assert [request[16] for request in requests] == list(range(1, len(requests) + 1))


async def test_no_key_frame_is_requested_without_support():
    units = coded("H264", 24, gop=24)
    async with VideoCamera(VIDEO_SDP["H264"], encoding="H264", units=units, lost={5}).serving() as camera:
        await play(source(camera), pictures=20)
    assert not any(len(data) > 12 and data[-11] == 206 for data in camera.reports)


async def test_jpeg_is_chosen_if_a_camera_offers_both():
    sdp = VIDEO_SDP["H264"] + "m=video 0 RTP/AVP 26\r\na=control:track2\r\n"
    async with RtspCamera(sdp=sdp).serving() as camera:
        frames, _, reason = await play(source(camera))
    assert not reason
    assert isinstance(frames[0], bytes)
    assert any(item.reason == "SETUP" and item.url.endswith("track2") for item in camera.requests)


async def test_cancelling_while_connecting_leaves_nothing_behind():
    async with RtspCamera(answers={"OPTIONS": b""}).serving() as camera:
        player = asyncio.ensure_future(source(camera).play(lambda *_: None, lambda _: None))
        await eventually(lambda: camera.requests)
        player.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await player
    assert player.cancelled()
