"""Connections to the hub: addresses, token and certificate from the data folder of `embereye up`, and from options."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from embereye.process.lifecycle import NotFoundError
from embereye_cli.hub.connection import (
    add_console_options,
    add_hub_options,
    console_connection,
    hub_connection,
    is_same_hub,
)
from embereye_operator.up.site import Site, read_site, token_file, write_site

SITE = Site(hub="127.0.0.1:7052", console="http://fire.lan:7080/", local_console="http://127.0.0.1:7080")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default data folder in the working folder, with a note and a token."""
    monkeypatch.chdir(tmp_path)
    for name in ("EMBEREYE_HUB", "EMBEREYE_TOKEN", "EMBEREYE_CONSOLE", "EMBEREYE_HUB_CA"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / ".embereye"
    token_file(folder).parent.mkdir(parents=True)
    token_file(folder).write_text("secret\n")
    write_site(folder, SITE)
    return folder


def parse(*words: str, console: bool = False) -> Namespace:
    parser = ArgumentParser()
    (add_console_options if console else add_hub_options)(parser)
    return parser.parse_args(words)


def test_a_command_finds_hub_token_and_console_in_the_working_folder(data: Path) -> None:
    hub = hub_connection(parse())
    assert (hub.hub, hub.token, hub.tls, hub.console) == (SITE.hub, "secret", None, SITE.console)
    console = console_connection(parse(console=True))
    assert (console.url, console.token, console.server_name) == (SITE.local_console, "secret", "")


def test_a_command_finds_the_hub_of_another_data_folder(data: Path) -> None:
    other = data.with_name("other")
    data.rename(other)
    assert hub_connection(parse()).hub == "127.0.0.1:50052"
    assert hub_connection(parse("--data", str(other))).token == "secret"
    with pytest.raises(NotFoundError, match=r"nowhere: no `embereye up` of yours has run there\. Name its data folder"):
        hub_connection(parse("--data", "nowhere"))


def test_a_hub_elsewhere_gets_neither_token_nor_certificate_of_the_data_folder(data: Path) -> None:
    hub = hub_connection(parse("--hub", "fire.example:50052"))
    assert (hub.token, hub.tls, hub.console) == ("", None, "http://fire.example:8080")
    console = console_connection(parse("--console", "http://fire.example:8080", console=True))
    assert (console.token, console.server_name) == ("", "")


def test_options_override_the_data_folder(data: Path) -> None:
    assert hub_connection(parse("--token", "mine")).token == "mine"
    assert hub_connection(parse("--hub", "localhost:7052")).token == "secret"


def test_a_data_folder_of_another_user_is_ignored(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_site(data) == SITE
    monkeypatch.setattr(os, "geteuid", lambda: data.stat().st_uid + 1)
    (expected,) = {None} if data.stat().st_uid else {SITE}
    assert read_site(data) == expected, "folders of root are trusted"
    (data / "site.json").write_text("[]")
    assert read_site(data) is None


@pytest.mark.parametrize(
    ("hub", "other", "same"),
    [
        ("127.0.0.1:7052", "localhost:7052", True),
        ("[::1]:7052", "127.0.0.1:7052", True),
        ("192.168.1.10:7052", "192.168.1.10:7052", True),
        ("127.0.0.1:7052", "127.0.0.1:7053", False),
        ("192.168.1.10:7052", "127.0.0.1:7052", False),
    ],
)
def test_a_hub_is_the_same_under_several_names_of_this_machine(hub: str, other: str, same: bool) -> None:
    assert is_same_hub(hub, other) is same
