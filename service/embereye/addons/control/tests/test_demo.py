"""`embereye control demo` and `embereye simulate head`, as processes."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embereye.addons.control.client import CALL, ControllerLink
from embereye.addons.control.link import Link, LinkError
from embereye.addons.control.own_hub import OwnHub, running_hub
from embereye.units import SECOND
from embereye.v1.control_pb2 import Controller


def embereye(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "embereye_cli", *arguments], capture_output=True, text=True, timeout=90, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("mode", [(), ("--free-running",)])
def test_the_simulated_head_finds_the_hot_spot_and_follows_it(mode: tuple[str, ...]) -> None:
    done = embereye("control", "demo", "--duration", "2s", "--rate", "100", "--wait", "all", "--json", *mode)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert [turns["wait"] for turns in measured] == ["block", "poll", "sleep"]
    for turns in measured:
        assert turns["turns"] > 20
        assert turns["offMedianDegrees"] < 6
        assert bool(turns["milliseconds"].get("idle")) == bool(mode)


def test_timings_and_message_sizes_are_printed_on_request() -> None:
    done = embereye("control", "demo", "--duration", "1s", "--rate", "50", "--timings", "--trace-sizes")
    assert done.returncode == 0, done.stderr
    for word in ("Blocked", "Processor", "Overruns", "p99", "command", "state", "Bytes"):
        assert word in done.stdout
    assert "points" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rate", "0"), "--rate 0 is not between 1 and 1000"),
        (("--range", "90"), "--range 90 is not between 0 and 80, the range of the head"),
        (("--hub", "nowhere"), '"nowhere" is not HOST:PORT'),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = embereye("control", "demo", *arguments)
    assert (done.returncode, sentence in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_named_hub_must_have_the_actuator() -> None:
    with running_hub() as hub:
        done = embereye("control", "demo", "--hub", hub.tcp, "--actuator", "crane", EMBEREYE_TOKEN=hub.token)
        assert (done.returncode, done.stderr.strip()) == (
            5, 'embereye: no actuator "crane" is connected. Connected: none.',
        )  # fmt: skip
        refused = embereye("control", "demo", "--hub", hub.tcp, EMBEREYE_TOKEN="wrong")
        assert (refused.returncode, "unknown token" in refused.stderr) == (4, True)


def _steer(hub: OwnHub) -> None:
    """Steer the head once, as soon as it is connected."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(LinkError), Link(hub.unix, CALL, hub.token) as link:
            side = ControllerLink(link, "test", "head", mode=Controller.MODE_SYNCHRONISED, deadline_ns=SECOND)
            state = side.first_state()
            side.step([0.5, 0.0, 1.0, 0.0], state.tick)
            return
        assert time.monotonic() < deadline, "the head is not connected"
        time.sleep(0.05)


def test_a_head_without_its_hub_is_in_its_safe_state_and_reconnects(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, contextlib.ExitStack() as stack:
        path = tmp_path / "association"
        environment = {**os.environ, "EMBEREYE_TOKEN": "", "EMBEREYE_ASSOCIATION": f"unix:{path}"}
        process = None
        for _ in range(2):
            with running_hub() as hub:
                path.unlink(missing_ok=True)
                path.symlink_to(hub.unix.removeprefix("unix:"))
                token = tmp_path / "token"
                token.write_text(hub.token)
                if process is None:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "embereye_cli", "simulate", "head", "--token", f"@{token}"],
                        stderr=log, env=environment,
                    )  # fmt: skip
                    stack.callback(process.wait)
                    stack.callback(process.kill)
                _steer(hub)
        assert process is not None
        process.terminate()
        assert process.wait(30) == 0
    assert "head is in its safe state: the hub stops: dial again" in (tmp_path / "log").read_text()


def test_a_hub_that_cannot_be_reached_has_an_exit_code_for_it() -> None:
    done = embereye("control", "demo", "--hub", "unix:/nowhere")
    assert (done.returncode, "unix:/nowhere" in done.stderr, "Traceback" in done.stderr) == (3, True, False)
