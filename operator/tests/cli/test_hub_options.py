"""Options for the hub, and the errors if it cannot be reached or refuses."""

import contextlib
import signal
import socket
import subprocess
import sys
from argparse import ArgumentParser

import grpc
import pytest

from embereye.process.lifecycle import UserError, print_error
from embereye.v1.alarms_pb2 import ZonesResponse
from embereye_cli.hub import access, alarms, errors, subscriptions, webhooks
from embereye_cli.hub.connection import hub_tls
from embereye_cli.hub.token import token_for
from embereye_cli.processes import hub, shard_camera, shard_sensor

OPTIONS = ["--hub", "hub:1", "--json", "--token", "@file", "--ca", "ca.crt", "--server-name", "hub"]
ACTIONS = [
    (access, ["create", "second", "--role", "operator"]),
    (access, ["link"]),
    (alarms, ["history", "--limit", "5"]),
    (alarms, ["ack", "hall"]),
    (subscriptions, ["show", "night"]),
    (webhooks, ["resend", "pager", "4", "5"]),
]


@pytest.mark.parametrize(("command", "action"), ACTIONS, ids=lambda each: each[0] if isinstance(each, list) else "")
def test_hub_options_work_before_and_after_an_action(command, action):
    parser = ArgumentParser(prog="embereye command")
    command.add_arguments(parser)
    before = parser.parse_args([*OPTIONS, *action])
    assert (before.hub, before.json, before.token, before.ca, before.server_name) == (
        "hub:1", True, "@file", "ca.crt", "hub"
    )  # fmt: skip
    assert parser.parse_args([*action, *OPTIONS]) == before
    assert parser.parse_args([*OPTIONS[:2], *action, *OPTIONS[2:]]) == before
    assert parser.parse_args(action).json is False


def test_an_actions_help_refers_to_the_hub_options(capsys):
    parser = ArgumentParser(prog="embereye access")
    access.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["create", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "--server-name and --utc work here too; see `embereye access --help`" in printed


@pytest.mark.parametrize("hub", ["hub", "127.0.0.1:99999", "127.0.0.1:"])
def test_a_hub_address_has_host_and_port(hub, capsys):
    parser = ArgumentParser(prog="embereye access")
    access.add_arguments(parser)
    for words in (["--hub", hub, "whoami"], ["whoami", "--hub", hub]):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        assert f'argument --hub: "{hub}" is not HOST:PORT' in capsys.readouterr().err
    assert parser.parse_args(["--hub", "unix:/run/hub", "whoami"]).hub == "unix:/run/hub"


@pytest.mark.parametrize(
    ("command", "words", "wrong", "sentence"),
    [
        (alarms, ["history", "--limit"], ["0", "-5", "2147483648", "x"], "is not a whole number: 1 or more"),
        (alarms, ["clips", "a", "--limit"], ["0", "-5"], "is not a whole number: 1 or more"),
        (webhooks, ["dead-letters", "pager", "--limit"], ["0", "-5"], "is not a whole number: 1 or more"),
        (access, ["audit", "--limit"], ["0", "-5"], "is not a whole number: 1 or more"),
        (access, ["audit", "--before"], ["-1", str(2**31)], "is not the number of an entry"),
        (alarms, ["watch", "--cursor"], ["-1", str(2**63)], "is not a cursor"),
        (alarms, ["history", "--after"], ["-1", str(2**63)], "is not a cursor"),
        (alarms, ["history", "--before"], ["-1", "x"], "is not a cursor"),
        (subscriptions, ["follow", "night", "--cursor"], ["-1", str(2**63)], "is not a cursor"),
        (webhooks, ["dead-letters", "pager", "--after"], ["-1"], "is not a cursor"),
        (webhooks, ["resend", "pager", "--"], ["-1", str(2**63)], "is not a cursor"),
    ],
)
def test_impossible_numbers_are_refused_with_their_option(command, words, wrong, sentence, capsys):
    parser = ArgumentParser(prog="embereye command")
    command.add_arguments(parser)
    for number in wrong:
        with pytest.raises(SystemExit):
            parser.parse_args([*words, number])
        assert f'"{number}" {sentence}' in capsys.readouterr().err
    assert parser.parse_args([*words, "7"])


def test_an_ipv6_address_of_a_hub_needs_brackets(capsys):
    parser = ArgumentParser(prog="embereye access")
    access.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--hub", "::1:50052", "whoami"])
    assert "write an IPv6 address in brackets" in capsys.readouterr().err
    assert parser.parse_args(["--hub", "[::1]:50052", "whoami"]).hub == "[::1]:50052"


@pytest.mark.parametrize("process", [hub, shard_sensor, shard_camera])
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_listen_address_accepts_ipv6_with_and_without_brackets(process, host, monkeypatch):
    monkeypatch.setenv("EMBEREYE_OUTER_HOST", host)
    parser = ArgumentParser(prog="embereye process")
    process.add_arguments(parser)
    needed = ["--shard", "s-0", "--assignment", "file"] if process is not hub else []
    parsed = parser.parse_args([*needed, "--host", host])
    assert (parsed.host, parsed.outer_host) == ("[::1]", "[::1]")


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"", "certificate")])
def test_an_unusable_file_of_authorities_is_refused_with_its_option(tmp_path, content, reason):
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    parser = ArgumentParser(prog="embereye access")
    access.add_arguments(parser)
    arguments = parser.parse_args(["whoami", "--ca", str(file)])
    with pytest.raises(UserError, match=f"--ca {file} cannot be used: .*{reason}.*Name a PEM file with") as caught:
        hub_tls(arguments)
    assert str(caught.value).count(str(file)) <= 2


@pytest.mark.parametrize(
    ("details", "sentence"),
    [
        ("SSL_ERROR_SSL: WRONG_VERSION_NUMBER", "it does not use TLS on this port. Leave --ca out."),
        ("CERTIFICATE_VERIFY_FAILED: unable to", "is not trusted. Name the authority that signed it with --ca."),
        ("Hostname Verification Check failed.", "has another name. Give a name that it has with --server-name."),
        ("ipv4:127.0.0.1:29253: Socket closed", "It may use TLS: name the authority that signed its certificate"),
        ("Stream removed (Socket closed)", "the connection ended. Is it still running?"),
        ("Failed to connect: Connection refused", "cannot reach the hub at hub:1: connection refused. Is it running?"),
        ("Trying to connect an http1.x server (HTTP status 400)", "an HTTP port, such as the console's. gRPC is 50052"),
        ("address lookup failed for hub:1: Domain name not found", "there is no such host. Check the name."),
        ("getsockopt(SO_ERROR): Network is unreachable", "there is no route to it. Check the address"),
        ("no more file descriptors", "cannot reach the hub at hub:1. Is it running? (no more file descriptors)"),
    ],
)
def test_an_unreachable_hub_is_explained_in_plain_words(details, sentence):
    none = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, details)
    failure = errors.hub_error(error, "hub:1", "embereye access list")
    assert str(failure).startswith("cannot reach the hub at hub:1")
    assert sentence in str(failure)
    assert failure.exit_code == 3


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.UNAVAILABLE, 3), (grpc.StatusCode.DEADLINE_EXCEEDED, 3), (grpc.StatusCode.UNAUTHENTICATED, 4),
        (grpc.StatusCode.PERMISSION_DENIED, 4), (grpc.StatusCode.FAILED_PRECONDITION, 4),
        (grpc.StatusCode.NOT_FOUND, 5), (grpc.StatusCode.INVALID_ARGUMENT, 2),
    ],
)  # fmt: skip
def test_exit_codes_follow_from_the_hubs_answer(code, exit_code):
    none = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(code, none, none, "no")
    assert errors.hub_error(error, "hub:1", "embereye access list").exit_code == exit_code


def test_a_missing_token_is_explained_in_two_lines(capsys):
    none = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAUTHENTICATED, none, none, "no")
    failure = errors.hub_error(error, "hub:1", "embereye access list", presented=False)
    assert print_error(failure) == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "embereye: the hub at hub:1 needs a token, and none was given."
    assert len(lines) == 2
    assert "--token" in lines[1]


@pytest.mark.parametrize("text", ["9999-12-31", "1600-01-01", "0001-01-01", "999999999d", "7"])
def test_impossible_times_are_refused_with_their_option(text, capsys):
    parser = ArgumentParser(prog="embereye alarms")
    alarms.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["history", "--until", text])
    assert f'argument --until: "{text}" is not a time such as 2026-11-22T17:50' in capsys.readouterr().err
    assert parser.parse_args(["history", "--until", "2026-11-22"]).until


def test_a_token_file_can_have_a_byte_order_mark_but_no_impossible_characters(tmp_path):
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbfsecret\r\n")
    assert token_for(f"@{file}", "hub") == "secret"
    for text in ("„secret“", "first\nsecond"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"token .* has characters that are not allowed in a token"):
            token_for(f"@{file}", "hub")


class FullHub:
    """A hub without room for subscribers; it ends the command after three attempts."""

    attempts = 0

    def __init__(self, _: object) -> None: ...

    async def Zones(self, *_: object, **__: object) -> ZonesResponse:
        return ZonesResponse()

    def Subscribe(self, _: object) -> "FullHub":
        return self

    async def __aiter__(self):
        FullHub.attempts += 1
        none = grpc.aio.Metadata()
        code = grpc.StatusCode.UNAUTHENTICATED if FullHub.attempts == 3 else grpc.StatusCode.RESOURCE_EXHAUSTED
        raise grpc.aio.AioRpcError(code, none, none, "no more subscribers")
        yield

    def cancel(self) -> None: ...


def test_a_hub_without_room_for_a_feed_is_not_announced_as_back(monkeypatch, capsys):
    monkeypatch.setattr(alarms, "AlarmsStub", FullHub)
    parser = ArgumentParser(prog="embereye alarms")
    alarms.add_arguments(parser)
    assert alarms.run(parser.parse_args(["--token", "t", "--hub", "127.0.0.1:1", "--json", "watch"])) == 4
    printed = capsys.readouterr().err
    assert printed.count("no more subscribers; what was shown may be out of date, trying again") == 1
    assert "the hub is back" not in printed


@pytest.mark.parametrize("content", ["one\ntwo\n", "to\u20acken\n", "to\x00ken"])
def test_a_file_without_a_token_is_refused_before_the_hub_is_called(content, tmp_path):
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"the token in {file} has characters that are not allowed in a token"):
        token_for(f"@{file}", "127.0.0.1")


@contextlib.contextmanager
def silent_hub():
    """Serve a hub that accepts connections and never answers; yield its socket and address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, f"127.0.0.1:{listening.getsockname()[1]}"


def test_an_interrupted_command_stops_waiting_for_the_hub():
    with silent_hub() as (listening, hub):
        words = [sys.executable, "-m", "embereye_cli", "alarms", "--hub", hub, "--token", "t", "list"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
            connection, _ = listening.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                assert (process.wait(30), process.communicate()[1]) == (130, b"")
