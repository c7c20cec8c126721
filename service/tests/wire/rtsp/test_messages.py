import base64
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.wire.http.authorization import Challenge, authorize, strongest
from embereye.wire.rtsp.messages import (
    Interleaved,
    RtspError,
    RtspParser,
    base_url,
    interleaved,
    read_description,
    read_session,
    read_transport,
    request,
    resolve,
)

ANSWER = b"RTSP/1.0 200 OK\r\nCSeq: 3\r\nContent-Type: application/sdp\r\nContent-Length: 4\r\n\r\nv=0\n"


def test_a_request_is_written_as_servers_expect_it():
    assert request("PLAY", "rtsp://cam/1", 4, {"Session": "9"}) == (
        b"PLAY rtsp://cam/1 RTSP/1.0\r\nCSeq: 4\r\nSession: 9\r\n\r\n"
    )


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_answers_requests_and_packets_are_separated_in_any_split(size):
    stream = ANSWER + interleaved(0, b"RTP") + b"\r\n" + interleaved(1, b"") + b"junk" + ANSWER
    stream += b"GET_PARAMETER rtsp://cam RTSP/1.0\r\nCSeq: 8\r\n\r\n" + interleaved(0, b"$" * 500)
    parser, items = RtspParser(), []
    for start in range(0, len(stream), size):
        items += parser.feed(stream[start : start + size])
    packets = [item for item in items if isinstance(item, Interleaved)]
    answers = [item for item in items if not isinstance(item, Interleaved)]
    assert [(packet.channel, packet.data) for packet in packets] == [(0, b"RTP"), (1, b""), (0, b"$" * 500)]
    assert [(answer.status, answer.sequence, answer.body) for answer in answers] == [
        (200, 3, b"v=0\n"), (200, 3, b"v=0\n"), (0, 8, b""),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"\n", b"\r\n"])
def test_lines_may_end_with_a_line_feed_alone(size, end, last):
    answer = ANSWER[:-8].replace(b"\r\n", end) + end + last + ANSWER[-4:]
    stream = interleaved(0, b"RTP") + answer + interleaved(1, b"\n\n") + answer
    stream += end.join((b"OPTIONS rtsp://cam RTSP/1.0", b"CSeq: 8")) + end + last
    parser, items = RtspParser(), []
    for start in range(0, len(stream), size):
        items += [
            bytes(item.data) if isinstance(item, Interleaved) else (item.status, item.sequence, item.body)
            for item in parser.feed(stream[start : start + size])
        ]
    assert items == [b"RTP", (200, 3, b"v=0\n"), b"\n\n", (200, 3, b"v=0\n"), (0, 8, b"")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_challenge_may_continue_on_further_lines(end):
    lines = ["RTSP/1.0 401 Unauthorized", "CSeq: 1", 'WWW-Authenticate: Digest realm="a:b",', ' nonce="n:1"', "", ""]
    (answer,) = RtspParser().feed(end.join(lines).encode())
    challenge = strongest(answer.headers["www-authenticate"])
    assert (answer.status, challenge.realm, challenge.nonce) == (401, "a:b", "n:1")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "junk", [b"JUNK", b"A", b"X" * 30, b"GET \r\n", b"RTP/1 ", b"$\xf3\xff\xff", b"R$\x80\xff\xf0TEN \0"]
)
def test_junk_between_packets_loses_no_packet(junk, size):
    packet, parser, items = interleaved(0, bytes(50)), RtspParser(), []
    stream = packet + b"\0" + junk + packet + b"\0" + junk + ANSWER + packet + packet
    for start in range(0, len(stream), size):
        items += [
            bytes(item.data) if isinstance(item, Interleaved) else item.sequence
            for item in parser.feed(stream[start : start + size])
        ]
    assert items == [bytes(50), bytes(50), 3, bytes(50), bytes(50)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"RTSP/1.0 200 OK\r\n" + b"X: y\r\n" * 10_000, "do not end"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "Content-Length"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 'answers "HTTP/1.1 400 Bad Request"'),
        (b"\0" * 100_000, "no RTSP"),
    ],
)
def test_bytes_other_than_rtsp_are_refused_with_a_sentence(data, text):
    parser = RtspParser()
    with pytest.raises(RtspError, match=text):
        [parser.feed(data[start : start + 1000]) for start in range(0, len(data), 1000)]


SDP = b"""v=0\r
o=- 1 1 IN IP4 127.0.0.1\r
a=control:*\r
m=video 0 RTP/AVP 26\r
a=control:track1\r
a=x-dimensions:2592,1944\r
m=audio 0 RTP/AVP 0\r
a=control:rtsp://cam/audio\r
m=video 0 RTP/AVP 96\r
a=rtpmap:96 H264/90000\r
a=control:track2\r
m=video 0 RTP/AVP 97\r
a=rtpmap:97 jpeg/90000\r
a=framesize:97 640-480\r
"""


def test_a_description_gives_tracks_with_their_urls_formats_and_sizes():
    tracks, control = read_description(SDP, "rtsp://cam/live?x=1")
    assert control == "rtsp://cam/live?x=1"
    assert [(track.media, track.encoding, track.control, track.size) for track in tracks] == [
        ("video", "JPEG", "rtsp://cam/live?x=1/track1", (2592, 1944)),
        ("audio", "", "rtsp://cam/audio", (0, 0)),
        ("video", "H264", "rtsp://cam/live?x=1/track2", (0, 0)),
        ("video", "JPEG", "rtsp://cam/live?x=1", (640, 480)),
    ]


@pytest.mark.parametrize(
    ("control", "url"),
    [("*", "rtsp://c/a/"), ("", "rtsp://c/a/"), ("t=1", "rtsp://c/a/t=1"), ("RTSP://d/x", "RTSP://d/x")],
)
def test_a_control_url_is_appended_or_used_as_it_is(control, url):
    assert resolve("rtsp://c/a/", control) == url


@pytest.mark.parametrize("control", ["?ctype=video", "/track1"])
def test_no_slash_is_added_to_a_control_url_that_needs_none(control):
    assert resolve("rtsp://c/a", control) == f"rtsp://c/a{control}"


@pytest.mark.parametrize(
    ("stated", "url"),
    [
        ("rtsp://10.0.0.9:8554/b/", "rtsp://10.0.0.9:8554/b/"),
        ("/b/", "rtsp://c:5554/b/"),
        ("/", "rtsp://c:5554/"),
        ("10.0.0.9:554/b/", "rtsp://c:5554/a?x=1"),
        ("b/", "rtsp://c:5554/a?x=1"),
        ("", "rtsp://c:5554/a?x=1"),
        ("rtsp://[", "rtsp://c:5554/a?x=1"),
        ("rtsp://rtsp://cam.lan:554/b/", "rtsp://cam.lan:554/b/"),
    ],
)
def test_an_incomplete_base_is_completed_or_ignored(stated, url):
    assert base_url(stated, "rtsp://c:5554/a?x=1") == url


def test_formats_and_parameters_in_the_wrong_place_are_found():
    sdp = b"m=video 0 RTP/AVP smart/1/90000\r\na=rtpmap:96 H264/90000\r\nm=audio 0 RTP/AVP 8\r\n"
    (video, _), _ = read_description(sdp + b"a=fmtp:96 sprop-parameter-sets=Z0I=\r\n", "rtsp://c/")
    assert (video.encoding, video.payload_type, video.parameter_sets) == ("H264", 96, [b"gB"])


def test_invalid_payload_types_are_left_out():
    endless = "9" * 5_000  # more digits than Python converts to a number
    for number in (endless, "128"):
        sdp = f"m=video 0 RTP/AVP {number} 96\r\na=rtpmap:{number} JPEG/90000\r\na=rtpmap:96 H264/90000\r\n"
        ((video,), _) = read_description(sdp.encode(), "rtsp://c/")
        assert (video.encoding, video.payload_type) == ("H264", 96)


def test_the_cost_of_a_description_grows_only_with_its_length():
    formats = " ".join(map(str, range(96, 113)))
    lines = [f"m=video 0 RTP/AVP {formats}"] * 40 + ["a=fmtp:1 x=1", "a=rtcp-fb:1 nack"] * 200
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        tracks, _ = read_description("\n".join(lines).encode(), "rtsp://camera/live")
    finally:
        sys.setprofile(None)
    assert len(tracks) == 40 * 17
    assert calls < 100 * len(lines)


def test_start_codes_in_front_of_parameter_sets_are_removed():
    sets = ",".join(base64.b64encode(code + b"gB").decode() for code in (b"", b"\0\0\1", b"\0\0\0\1"))
    sdp = f"m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 sprop-parameter-sets={sets},%,\r\n"
    ((video,), _) = read_description(sdp.encode(), "rtsp://c/")
    assert video.parameter_sets == [b"gB"] * 3


def test_transports_and_sessions_are_read():
    agreed = read_transport("RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971;source=127.0.0.9;ssrc=1")
    assert (agreed.server_ports, agreed.source, agreed.channels) == ((6970, 6971), "127.0.0.9", None)
    assert read_transport("RTP/AVP/TCP;unicast;interleaved=2-3").channels == (2, 3)
    assert read_transport("RTP/AVP/TCP;interleaved=0-999").channels is None
    assert read_session("4711;timeout=30") == ("4711", 30.0)
    assert read_session("4711") == ("4711", 60.0)


def test_digests_match_the_examples_of_the_standards():
    # RFC 2069 (as corrected) and RFC 7616, 3.9.1.
    plain = strongest(['Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", opaque="x"'])
    assert plain is not None
    assert 'response="1949323746fe6a43ef61f9606e7febea"' in authorize(
        plain,
        "GET",
        "/dir/index.html",
        "Mufasa",
        "CircleOfLife",
        client_nonce="",
    )
    header = (
        'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={}, '
        'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
    )
    for algorithm, response in (
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ):
        challenge = strongest([header.format(algorithm)])
        assert challenge is not None
        authorization = authorize(
            challenge, "GET", "/dir/index.html", "Mufasa", "Circle of Life",
            client_nonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        )  # fmt: skip
        assert f'response="{response}"' in authorization
        assert "nc=00000001" in authorization


def test_the_strongest_of_several_challenges_is_chosen():
    md5, sha = (
        'Digest realm="r", nonce="a", algorithm=MD5',
        'Digest realm="r", nonce="b", algorithm=SHA-256, stale=TRUE',
    )
    challenge = strongest(['Basic realm="r"', md5, sha])
    assert (challenge.algorithm, challenge.stale, challenge.named) == ("SHA-256", True, True)
    assert strongest([f'Basic realm="r", {md5}']).scheme == "digest"
    assert strongest(['Digest realm="r", nonce="n", algorithm=SHA-512-256', 'Basic realm="r"']).scheme == "basic"
    assert strongest(["Negotiate"]) is None
    assert authorize(Challenge("basic"), "GET", "/", "a", "b", client_nonce="") == "Basic YTpi"


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([ANSWER, ANSWER[:30], b"$\0\0\5", b"RTSP/1.0 "]))))
def test_any_bytes_give_messages_or_an_rtsp_error(chunks):
    parser = RtspParser()
    with suppress(RtspError):
        for chunk in chunks:
            parser.feed(chunk)


@given(st.text(max_size=200))
def test_any_header_or_description_is_read_without_an_exception(text):
    strongest([text, f"Digest {text}"])
    read_transport(text)
    read_session(text)
    base_url(text, "rtsp://c/")
    read_description(("m=video 0 RTP/AVP 26\na=" + text).encode(), "rtsp://c/")
    read_description(text.encode(), "rtsp://c/")
    read_description("m=video 0 RTP/AVP ²\na=rtpmap:² H264/90000".encode(), "rtsp://c/")
