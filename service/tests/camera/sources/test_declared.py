from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embereye.camera.sources.declared import SourceError, conceal, parse_source, redact


@pytest.mark.parametrize(
    ("source", "kind", "address"),
    [
        ("http://cam/video.mjpg", "http", "http://cam/video.mjpg"),
        ("https://cam:8443/x?y=1", "http", "https://cam:8443/x?y=1"),
        ("http://me:p%40ss@cam/v", "http", "http://cam/v"),
        ("rtsp://me:x@cam/1?channel=1&transport=tcp&subtype=0", "rtsp", "rtsp://cam/1?channel=1&subtype=0"),
        ("rtsps://cam", "rtsp", "rtsps://cam"),
        ("rtsps://cam/1?a=b&tls=unverified", "rtsp", "rtsps://cam/1?a=b"),
        ("rtsp://cam/1?tls=unverified", "rtsp", "rtsp://cam/1?tls=unverified"),
        ("https://cam/v?tls=unverified", "http", "https://cam/v"),
        ("http://cam/v?transport=tcp", "http", "http://cam/v?transport=tcp"),
        ("onvif://me:x@cam:8080", "onvif", "onvif://cam:8080"),
        ("rtsp://me:x@192.168.1.2:554/path@1", "rtsp", "rtsp://192.168.1.2:554/path@1"),
        ("file:///var/a:b/c@d.mp4", "file", "/var/a:b/c@d.mp4"),
        ("rtsp://cam:554/stream@1.2", "rtsp", "rtsp://cam:554/stream@1.2"),
        ("rtsp://me:p@ss@cam/v", "rtsp", "rtsp://cam/v"),
        ("file:///var/clip%20one.mp4", "file", "/var/clip one.mp4"),
        ("/var/clip.mp4", "file", "/var/clip.mp4"),
        ("push:", "push", ""),
        ("", "push", ""),
    ],
)
def test_a_source_is_parsed(source, kind, address):
    declared = parse_source(source)
    assert (declared.kind, declared.address) == (kind, address)


def test_credentials_are_decoded_and_removed_from_the_address():
    declared = parse_source("http://me:p%40ss@cam/v")
    assert (declared.user, declared.password) == ("me", "p@ss")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("rtp://cam", "the port is missing. Write rtp://:5004"),
        ("rtp://cam:5004", '"cam" is not an IP address'),
        ("rtp://:5004?size=4", "unknown option. Use width, height, payload or interface"),
        ("rtp://:5004?width=9000", "width has to be between 1 and 8192"),
        ("rtp://:5004?height=x", "height has to be between"),
        ("ftp://me:secret@cam/x", 'source "ftp://cam": unknown scheme. Use rtsp, rtp, http, onvif, push or file'),
        ("http:///x", "the host is missing"),
        ("http://cam:99999/x", "not a URL"),
        ("http://[::1/x", "not a URL"),
        ("file://elsewhere/x.mp4", "no file of this machine"),
        ("rtsp://me:p@ss/secret#1@192.168.1.20/s", "password contains @ / #. Write %40 %2F %23 instead, or use"),
        ("rtsp://me:a?secret@cam.lan/s", "the password contains ?. Write %3F instead, or use credentialsRef"),
    ],
)
def test_a_source_that_cannot_be_opened_is_refused_with_a_sentence(source, text):
    with pytest.raises(SourceError) as caught:
        parse_source(source)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_port_to_listen_at_may_have_an_address_and_options():
    declared = parse_source("rtp://239.0.0.1:5004?width=2560&height=1440&payload=96&interface=127.0.0.1")
    assert (declared.kind, declared.address, declared.port, declared.interface) == (
        "rtp",
        "239.0.0.1",
        5004,
        "127.0.0.1",
    )
    assert declared.options == {"width": 2560, "height": 1440, "payload": 96}
    assert parse_source("rtp://:5004").address == ""
    assert parse_source("rtp://[::1]:5004").address == "::1"


def test_a_password_is_never_shown():
    assert redact("http://me:secret@cam/v") == "http://cam"
    assert "secret" not in redact("http://me:secret@[::1/v")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("rtsp://10.0.0.7:554/user=admin_password=tlJwpbo6_channel=1_stream=0.sdp", "rtsp://10.0.0.7:554"),
        ("http://cam/cgi?user=admin&pwd=tlJwpbo6", "http://cam"),
        ("http://[fd00::7]:8080/tlJwpbo6", "http://[fd00::7]:8080"),
        ("rtsp://me:tl/Jwpbo6@cam/1", "rtsp://…"),
        ("http://cam/user=me@tlJwpbo6", "http://…"),
        ("rtsp://tlJwpbo6/x@cam/1", "rtsp://…"),
        ("10.0.0.7:554/user=admin_password=tlJwpbo6", "10.0.0.7…"),
        ("file:///var/clip%20one.mp4", "file:///var/clip%20one.mp4"),
        ("/var/a=b.mp4", "/var/a=b.mp4"),
        ("clips/one.mp4", "clips/one.mp4"),
        ("push:", "push:"),
    ],
)
def test_only_host_and_port_are_shown_to_people(source, shown):
    assert redact(source) == shown


SECRET = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=8, max_size=20)
FORMS = (
    "{scheme}://cam:554/user=admin_password={secret}_channel=1",
    "{scheme}://cam/cgi-bin/video?user=admin&pwd={secret}#x",
    "{scheme}://cam/{secret}/stream",
    "{scheme}://admin:{secret}@cam:554/1",
    "{scheme}://{secret}@cam/1",
    "{scheme}://cam\\{secret}",
)


@example("0000000?", FORMS[0], "rtp", False)
@example("0000?width=", FORMS[0], "rtp", False)
@example("0?interface=", FORMS[0], "rtp", False)
@given(SECRET, st.sampled_from(FORMS), st.sampled_from(["rtsp", "rtsps", "http", "https", "onvif", "ftp", "rtp"]),
       st.booleans())  # fmt: skip
def test_no_part_of_an_address_that_could_be_a_password_is_shown(secret, form, scheme, encoded):
    secret = f"Zq{secret}qZ"
    source = form.format(scheme=scheme, secret=quote(secret, safe="") if encoded else secret)
    said = [redact(source)]
    try:
        parse_source(source)
    except SourceError as error:
        said.append(str(error))
    for text in said:
        assert secret not in text
        assert "Zq" not in text
        assert "qZ" not in text


@given(SECRET, st.sampled_from(FORMS), st.booleans())
def test_a_cameras_echo_of_its_address_is_not_shown(secret, form, encoded):
    source = form.format(scheme="rtsp", secret=quote(secret, safe="") if encoded else secret)
    for echo in (f"404 {source} not found", f"404: {source.partition('://')[2].partition('/')[2]}"):
        assert secret not in conceal(echo, source)


def test_words_that_only_resemble_a_part_of_the_address_are_shown():
    assert conceal("streaming; no frame within 5 s", "rtsp://cam/stream") == "streaming; no frame within 5 s"
    assert conceal("/var/clip.mp4: not a file", "/var/clip.mp4") == "/var/clip.mp4: not a file"
