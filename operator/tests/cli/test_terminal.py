"""Tables, records, times and JSON, as commands print them."""

import io
import json
import time
from collections.abc import Sequence

import pytest

from embereye.v1.alarms_pb2 import Zone
from embereye_cli.terminal import Terminal, local_time, print_json, print_table

COLUMNS = ("Zone", "State", "Why")
ROWS = [("default/hall", "ALARM", "smoke 14.7 % ≥ 15 % at s-01"), ("default/yard", "NORMAL", "")]


def printed(width: int, rows: Sequence[tuple[str, ...]]) -> str:
    output = io.StringIO()
    print_table(COLUMNS, rows, empty="No zones.", console=Terminal(file=output, width=width))
    return output.getvalue()


def test_a_table_has_one_line_for_each_row() -> None:
    assert [line.split()[0] for line in printed(100, ROWS).splitlines()] == ["Zone", "default/hall", "default/yard"]


def test_a_narrow_terminal_gets_records_instead_of_a_table() -> None:
    assert printed(59, ROWS).splitlines() == [
        "Zone   default/hall", "State  ALARM", "Why    smoke 14.7 % ≥ 15 % at s-01", "", "Zone   default/yard",
        "State  NORMAL",
    ]  # fmt: skip
    assert printed(60, ROWS).startswith("Zone          State")


def test_a_pipe_gets_each_row_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output = io.StringIO()
    print_table(COLUMNS, [("a" * 100, "b" * 100, "c" * 100)], empty="", console=Terminal(file=output))
    assert len(output.getvalue().splitlines()) == 2


def test_an_empty_table_is_a_sentence() -> None:
    assert printed(100, []) == "No zones.\n"


def test_a_cell_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in printed(100, [("hall\x1b[2J", "", "")])
    assert "\x1b" not in printed(40, [("hall\x1b[2J", "", "")])


@pytest.mark.parametrize(("zone", "shown"), [("UTC", "12:00:00+00:00"), ("Europe/Berlin", "13:00:00+01:00")])
def test_times_are_local_with_their_offset(zone: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_time(1_795_867_200 * 10**9) == f"2026-11-28 {shown}"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_json_names_a_zone_as_every_command_does_and_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(Zone(namespace="default", name="hall", declared=2))
    document = json.loads(capsys.readouterr().out)
    assert (document["zone"], document["covered"], "name" in document) == ("hall", 0, False)
