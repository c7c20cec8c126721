"""Durations, sizes and lists as people write them on a command line."""

import os
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from types import ModuleType

import pytest

from embereye_cli.main import main
from embereye_cli.processes import hub, operator, shard_camera, shard_sensor
from embereye_cli.values import duration, duration_or_seconds, named_port, port_number, seconds, seed, size, split_names


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5m", 90), ("12h", 43_200), ("30d", 2_592_000)])
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == duration_or_seconds(text) == seconds


def test_a_plain_number_means_seconds_where_documented() -> None:
    assert duration_or_seconds("90") == 90
    with pytest.raises(ArgumentTypeError, match='"90" needs a unit: write 90s for seconds'):
        duration("90")


@pytest.mark.parametrize("text", ["", "s", "0s", "-5m", "5 m", "5w", "1e9s"])
def test_a_malformed_duration_is_refused_with_an_example(text: str) -> None:
    for parse in (duration, duration_or_seconds):
        with pytest.raises(ArgumentTypeError, match="such as 90s"):
            parse(text)


def test_seconds_are_a_finite_number_of_0_or_more() -> None:
    assert (seconds("15"), seconds("0.5"), seconds("0")) == (15, 0.5, 0)
    for text in ("", "-1", "nan", "inf", "1e3", "5s"):
        with pytest.raises(ArgumentTypeError, match="a number of seconds"):
            seconds(text)


@pytest.mark.parametrize(
    ("process", "variable"),
    [
        (operator, "TAKE_OVER_AFTER"),
        (operator, "ROLLOUT_MAX_FLEETS"),
        (shard_sensor, "LINGER"),
        (shard_sensor, "TELEMETRY_BYTES"),
        (shard_camera, "LINGER"),
        (hub, "CLIPS"),
    ],
)
def test_a_malformed_variable_is_refused_with_its_option(
    process: ModuleType, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"EMBEREYE_{variable}", "soon")
    parser = ArgumentParser(prog="embereye process")
    process.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([] if process in {hub, operator} else ["--shard", "s-0", "--assignment", "file"])
    assert f"--{variable.lower().replace('_', '-')}: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "-1", "65536", "80x", "²", "0x50"])
def test_a_malformed_port_is_refused(text: str) -> None:
    for parse in (port_number, named_port):
        with pytest.raises(ArgumentTypeError, match=f'"{text}" is not a port: from 1 to 65535'):
            parse(text)
    with pytest.raises(ArgumentTypeError, match='"0" is not a port: from 1 to 65535'):
        named_port("0")
    assert (port_number("0"), port_number("65535"), named_port("1")) == (0, 65_535, 1)


def test_a_size_is_in_bytes() -> None:
    assert (size("500M"), size("20Gi")) == (500 << 20, 20 << 30)
    with pytest.raises(ArgumentTypeError, match='"5" is not a size such as 500M'):
        size("5")


def test_names_are_separated_by_commas_or_repeated_options() -> None:
    assert split_names(["a,b", " c ", "", "a"]) == ("a", "b", "c")


def test_a_seed_is_a_whole_number_of_0_or_more() -> None:
    assert (seed("0"), seed("12")) == (0, 12)
    for text in ("-5", "x", "1.5", ""):
        with pytest.raises(ArgumentTypeError, match="is not a seed: 0 or more"):
            seed(text)


def test_malformed_roles_in_a_variable_are_refused_with_their_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "umask", lambda _: 0o022)  # which a hub sets for its whole process
    provider = ["--oidc-issuer", "https://login.example", "--oidc-client-id", "embereye"]
    for roles, wrong in (("operator=wardens boss=all", "boss"), ("wardens", '"wardens" is not of the form ROLE=VALUE')):
        monkeypatch.setenv("EMBEREYE_OIDC_ROLES", roles)
        assert main(["hub", "--data", str(tmp_path), *provider]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("embereye: --oidc-role ")
        assert wrong in printed


@pytest.mark.parametrize(
    ("zones", "problem"),
    [
        ("hall/kitchen", "is not of the form ZONE=VALUE"),
        ("hall/kitchen=nobody", 'no --oidc-role gives "nobody" a role'),
        ("kitchen=wardens", "is not of the form NAMESPACE/ZONE"),
        ("hall/boilers/yard=wardens", "is not of the form NAMESPACE/ZONE"),
        ("hall/*=chiefs", "an admin is for all zones"),
    ],
)
def test_malformed_zones_of_groups_are_refused_with_their_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], zones: str, problem: str
) -> None:
    monkeypatch.setattr(os, "umask", lambda _: 0o022)  # which a hub sets for its whole process
    provider = ["--oidc-issuer", "https://login.example", "--oidc-client-id", "embereye"]
    roles = ["--oidc-role", "operator=wardens", "--oidc-role", "admin=chiefs"]
    assert main(["hub", "--data", str(tmp_path), *provider, *roles, "--oidc-zone", zones]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("embereye: --oidc-zone")
    assert problem in printed
