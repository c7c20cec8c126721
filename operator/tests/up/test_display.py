"""The terminal output of `embereye up` is safe with every text of cameras and devices."""

import contextlib
import dataclasses
import errno
import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.shared import API_VERSION
from embereye_operator.up import display
from embereye_operator.up.display import FleetRow, Lines, LiveTable, ZoneRow
from embereye_operator.up.up import FIRST_WORD_SECONDS, FleetState


class Filling(io.StringIO):
    """A file on a disk that is full at times."""

    full = False

    def write(self, text: str, /) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


EVIL = "HTTP 404 [/red]\x1b[2J\x9b31m[bold]"
SHOWN = r"HTTP 404 [/red]\x1b[2J\x9b31m[bold]"


def test_a_cameras_text_is_no_markup_and_controls_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(display, "Console", lambda **_: Console(file=screen, width=200))
    table = LiveTable(["EmberEye"])
    try:
        table.say(f"FAULT default/gate: {EVIL}")
        table.show([FleetRow("default/cameras/yard", "1/1", "0/1", up=True, well=False, why=EVIL)],
                   [ZoneRow("default/gate", "normal", "0/1", EVIL)])  # fmt: skip
    finally:
        table.close()
    assert screen.getvalue().count(SHOWN) == 3
    assert "\x9b" not in screen.getvalue()


@pytest.mark.parametrize(("height", "zones"), [(24, 2), (24, 30), (8, 2), (2, 2)])
def test_the_newest_events_are_shown_on_a_small_terminal(
    height: int, zones: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        display, "Console", lambda **_: Console(file=screen, width=80, height=height, force_terminal=True)
    )
    table = LiveTable(["EmberEye"])
    try:
        table.pin("sign in: http://127.0.0.1:8080/login#a-link")
        table.show([FleetRow("default/cameras/yard", "1/1", "1/1", up=True, well=True, why="")],
                   [ZoneRow(f"default/zone-{number}", "normal", "1/1", "") for number in range(zones)])  # fmt: skip
        for number in range(12):
            table.say(f"ALARM default/zone-{number}: {'so hot ' * 12}")
        screen.seek(0)
        screen.truncate()
        table._live.refresh()
        shown = screen.getvalue()
    finally:
        table.close()
    assert "ALARM default/zone-11" in shown
    assert "ALARM default/zone-0:" not in shown
    assert height < 8 or "login#a-link" in shown, "no event displaces it"
    assert shown.count("\n") < height
    assert "ALARM default/zone-0:" in screen.getvalue(), "in the end everything stays on the screen"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert not display.is_steerable(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert display.is_steerable(Terminal())
    assert not display.is_steerable(io.StringIO())


def test_a_new_fleet_is_shown_once_its_devices_are_covered_or_overdue(tmp_path: Path) -> None:
    why = "1 of 1 device is dark: cam-1 (never heard)"
    new = FleetRow("default/cameras/yard", "1/1", "0/1", up=True, well=False, why="1 device has …", awaiting=True)
    with (tmp_path / "printed").open("w+", encoding="utf-8") as stream:
        lines = Lines(stream)
        lines.show([new], [])
        lines.show([dataclasses.replace(new, why=why, awaiting=False)], [])
        lines.show([dataclasses.replace(new, covered="1/1", well=True, why="", awaiting=False)], [])
        stream.seek(0)
        printed = [line[10:] for line in stream.read().splitlines()]
    start = "default/cameras/yard: 1/1 shards ready, "
    assert printed == [f"{start}0/1 devices covered: {why}", f"{start}1/1 devices covered"]


def test_a_new_fleets_devices_have_their_deadline_and_a_little_more() -> None:
    spec = {"cameras": [{"id": "cam-1", "zone": "yard", "source": "push"}], "deadline": "2s"}
    manifest = {"apiVersion": API_VERSION, "kind": "CameraFleet", "metadata": {"name": "yard"}, "spec": spec}
    state = FleetState(parse_fleet(manifest))
    assert not state.is_awaiting(90, up=False, well=False, declared=1), "its shards are still starting"
    assert state.is_awaiting(100, up=True, well=False, declared=1)
    assert state.is_awaiting(102 + FIRST_WORD_SECONDS, up=True, well=False, declared=1)
    assert not state.is_awaiting(102.1 + FIRST_WORD_SECONDS, up=True, well=False, declared=1)
    assert not FleetState(parse_fleet(manifest)).is_awaiting(100, up=True, well=False, declared=0), "nobody is awaited"
    seen = FleetState(parse_fleet(manifest))
    assert not seen.is_awaiting(100, up=True, well=True, declared=1)
    assert not seen.is_awaiting(101, up=True, well=False, declared=1), (
        "a covered device that goes dark is shown at once"
    )


def test_printed_lines_have_no_control_characters(tmp_path: Path) -> None:
    with (tmp_path / "printed").open("w+", encoding="utf-8") as stream:
        Lines(stream).say(f"FAULT default/gate: {EVIL}\nALARM")
        stream.seek(0)
        assert stream.read().endswith(f"FAULT default/gate: {SHOWN}\\nALARM\n")


def test_a_closed_output_ends_no_watch_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    lines = Lines(stream)
    for _ in range(2):
        lines.say("ALARM default/hall")
    assert [record.message for record in caplog.records] == [
        "cannot write the output (Broken pipe). Events are not shown there, but fleets are watched as before"
    ]
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_a_closed_terminal_ends_no_watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stream = Filling()
    monkeypatch.setattr(sys, "stdout", stream)
    table = LiveTable(["EmberEye"])
    stream.full = True
    try:
        table.say("ALARM default/hall")
        table.show([FleetRow("default/cameras/yard", "1/1", "0/1", up=True, well=False, why="")], [])
    finally:
        table.close()
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["cannot write the output"]


def test_lines_are_printed_again_once_a_full_disk_has_space() -> None:
    stream = Filling()
    lines = Lines(stream)
    stream.full = True
    lines.say("ALARM default/hall")
    stream.full = False
    lines.say("ALARM default/gate")
    assert [line[10:] for line in stream.getvalue().splitlines()] == ["ALARM default/gate"]
