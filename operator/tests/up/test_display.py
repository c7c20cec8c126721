"""What `embereye up` shows on a terminal: words of cameras and devices are shown, whatever they are."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from embereye_operator.up import display
from embereye_operator.up.display import FleetRow, Lines, LiveTable, ZoneRow

EVIL = "HTTP 404 [/red]\x1b[2J\x9b31m[bold]"
SHOWN = r"HTTP 404 [/red]\x1b[2J\x9b31m[bold]"


def test_a_camera_s_words_are_no_markup_and_steer_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(display, "Console", lambda: Console(file=screen, width=200))
    table = LiveTable(["EmberEye"])
    try:
        table.say(f"FAULT default/gate: {EVIL}")
        table.show([FleetRow("default/cameras/yard", "1/1", "0/1", up=True, well=False, why=EVIL)],
                   [ZoneRow("default/gate", "normal", "0/1", EVIL)])  # fmt: skip
    finally:
        table.close()
    assert screen.getvalue().count(SHOWN) == 3
    assert "\x9b" not in screen.getvalue()


def test_printed_lines_hold_no_control_characters(tmp_path: Path) -> None:
    with (tmp_path / "printed").open("w+", encoding="utf-8") as stream:
        Lines(stream).say(f"FAULT default/gate: {EVIL}\nALARM")
        stream.seek(0)
        assert stream.read().endswith(f"FAULT default/gate: {SHOWN}\\nALARM\n")
