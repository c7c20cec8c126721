import pytest

from embereye.camera.sources.declared import SourceError, parse_source, redact


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
        ("file:///var/clip%20one.mp4", "file", "/var/clip one.mp4"),
        ("/var/clip.mp4", "file", "/var/clip.mp4"),
        ("push:", "push", ""),
        ("", "push", ""),
    ],
)
def test_a_source_is_taken_apart(source, kind, address):
    what = parse_source(source)
    assert (what.kind, what.address) == (kind, address)


def test_credentials_are_decoded_and_kept_out_of_the_address():
    what = parse_source("http://me:p%40ss@cam/v")
    assert (what.user, what.password) == ("me", "p@ss")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("rtp://cam", "names no port: write rtp://:5004"),
        ("rtp://cam:5004", '"cam" is no IP address'),
        ("rtp://:5004?size=4", '"size" is not one of width, height, payload, interface'),
        ("rtp://:5004?width=9000", 'width "9000" is not between 1 and 8192'),
        ("rtp://:5004?height=x", 'height "x" is not between'),
        ("ftp://me:secret@cam/x", 'source "ftp://cam/x" is not one of rtsp, rtp, http, onvif, push, file'),
        ("http:///x", "names no host"),
        ("http://cam:99999/x", "is not a URL"),
        ("http://[::1/x", "is not a URL"),
        ("file://elsewhere/x.mp4", "names no file of this machine"),
    ],
)
def test_a_source_that_cannot_be_opened_is_refused_with_a_sentence(source, text):
    with pytest.raises(SourceError) as caught:
        parse_source(source)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_port_to_listen_at_may_have_an_address_and_options():
    what = parse_source("rtp://239.0.0.1:5004?width=2560&height=1440&payload=96&interface=127.0.0.1")
    assert (what.kind, what.address, what.port, what.interface) == ("rtp", "239.0.0.1", 5004, "127.0.0.1")
    assert what.options == {"width": 2560, "height": 1440, "payload": 96}
    assert parse_source("rtp://:5004").address == ""
    assert parse_source("rtp://[::1]:5004").address == "::1"


def test_a_password_is_never_shown():
    assert redact("http://me:secret@cam/v") == "http://cam/v"
    assert "secret" not in redact("http://me:secret@[::1/v")
