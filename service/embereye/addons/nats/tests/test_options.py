"""The options of the bus: valid ones, and refusals with a reason."""

from pathlib import Path

import pytest

from embereye.addons.nats.options import read_bus
from embereye.addons.nats.stream import unfitness


def test_servers_are_separated_by_commas_and_have_a_default_port() -> None:
    options = read_bus("nats://a, nats://[::1]:5000", stream="north-hub", copies=3)
    assert list(options.servers) == ["nats://a:4222", "nats://[::1]:5000"]
    assert (options.subject, options.copies, options.tls) == ("north-hub.evidence", 3, False)


@pytest.mark.parametrize(
    ("addresses", "more", "sentence"),
    [
        (" ", {}, 'nats: " " names no server'),
        ("http://a:4222", {}, 'nats: "http://a:4222" is not of the form nats://HOST:4222 or tls://HOST:4222'),
        ("nats://ada:secret@a", {}, "nats: it contains a user"),
        ("nats://a:99999", {}, 'nats: "nats://a:99999" is not a valid URL'),
        ("nats://a,tls://b", {}, "some servers have nats:// and some tls://"),
        ("nats://a", {"stream": "a.b"}, 'nats-stream: "a.b" is not'),
        ("nats://user:secret/x@a", {}, "is not a valid URL"),
        ("nats://a", {"copies": 0}, "nats-copies: 0 is not from 1 to 5"),
        ("nats://a", {"certificates": Path("/tls")}, "is used without TLS although certificates are set"),
    ],
)
def test_an_invalid_option_is_refused_without_showing_secrets(
    addresses: str, more: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match="nats") as caught:
        read_bus(addresses, **more)  # type: ignore[arg-type]
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_token_takes_precedence_over_user_and_password(tmp_path: Path) -> None:
    options = read_bus("nats://a", credentials=tmp_path)
    with pytest.raises(OSError, match="username"):
        options.secrets()
    (tmp_path / "username").write_text("hub\n")
    (tmp_path / "password").write_text("a word: with/marks?\n")
    assert options.secrets() == {"user": "hub", "password": "a word: with/marks?"}
    (tmp_path / "token").write_text("t\n")
    assert options.secrets() == {"token": "t"}


FIT: dict[str, object] = {
    "subjects": ["hub.evidence"], "storage": "file", "retention": "limits", "discard": "old", "max_age": 0,
    "max_msgs": -1, "max_bytes": -1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"discard": "new", "max_bytes": 10**9}, ""),
        ({"subjects": ["orders.*"]}, "has another purpose"),
        ({"no_ack": True}, "does not acknowledge"),
        ({"deny_purge": True}, "cannot be purged"),
        ({"storage": "memory"}, "is stored in memory"),
        ({"retention": "workqueue"}, "set retention=limits"),
        ({"max_age": 10**9}, "set max_age=0"),
        ({"max_bytes": 10**9}, "set discard=new"),
        ({"max_msgs": 10}, "set discard=new"),
    ],
)
def test_a_stream_that_could_lose_acknowledged_reports_is_refused(change: dict[str, object], why: str) -> None:
    problem = unfitness({**FIT, **change}, "hub.evidence")
    assert why in problem
    assert bool(problem) == bool(why)
