import pytest
from hypothesis import given
from hypothesis import strategies as st

from embereye.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, bracketed, counted, split_address


def test_spans_of_time_are_whole_nanoseconds():
    assert (DAY, HOUR, MINUTE) == (24 * HOUR, 60 * MINUTE, 60 * SECOND)
    assert SECOND == 1000 * MILLISECOND == 10**9


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9001", ("127.0.0.1", 9001)),
        ("s-0.fire.svc:1", ("s-0.fire.svc", 1)),
        ("[::1]:65535", ("::1", 65_535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, parts):
    assert split_address(text) == parts


@pytest.mark.parametrize(
    "text", ["", "nowhere", "host:", ":80", "[]:80", "host:port", "host:70000", "host:0", "host:²"]
)
def test_an_error_names_the_text_that_is_no_address(text):
    with pytest.raises(ValueError, match="is not HOST:PORT") as raised:
        split_address(text)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize("text", ["::1:8492", "fd00::5:50052", "2001:db8::1:9001"])
def test_an_ipv6_address_without_brackets_is_refused(text):
    with pytest.raises(ValueError, match=r"is not HOST:PORT.* write an IPv6 address in brackets, as in \[::1\]:9001"):
        split_address(text)


@pytest.mark.parametrize(
    ("host", "written"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("hub.fire.svc", None)]
)
def test_an_ipv6_host_is_written_in_brackets_before_a_port(host, written):
    assert bracketed(host) == (written or host)


def test_port_0_is_allowed_for_listeners():
    assert split_address("[::]:0", any_port=True) == ("::", 0)


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text):
    try:
        host, port = split_address(text)
    except ValueError:
        return
    assert host
    assert 0 < port < 65_536


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (counted(1, "shard"), "1 shard"),
        (counted(0, "shard"), "0 shards"),
        (counted(2, "process", "processes"), "2 processes"),
        (counted(1, "device is", "devices are"), "1 device is"),
        (counted(1.0, "core"), "1 core"),
        (counted(0.25, "core"), "0.25 cores"),
        (counted(12_345_678_901, "byte"), "12345678901 bytes"),
    ],
)
def test_counts_use_the_singular_or_the_plural(words, text):
    assert words == text
