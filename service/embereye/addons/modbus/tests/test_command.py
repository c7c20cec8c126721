"""`embereye modbus test` against a real panel."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embereye.addons.modbus.tests.panels import FakePanel
from embereye_cli.main import main


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that wraps no line."""
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def panel() -> Iterator[FakePanel]:
    """A panel on a separate event loop: the command has another."""
    made, loop = FakePanel(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(30)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def file(folder: Path, port: int, rule: str = '{coil: 3, zones: ["*"]}') -> str:
    path = folder / "modbus.yaml"
    path.write_text(f"panels: [{{name: relays, host: 127.0.0.1, port: {port}, timeoutSeconds: 5, rules: [{rule}]}}]")
    return str(path)


def run(*words: str) -> int:
    return main(["modbus", "test", *words])


def test_a_dry_run_reads_every_output_and_writes_none(
    panel: FakePanel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--modbus", file(tmp_path, panel.port), "--dry-run", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["panel"], printed["place"], printed["value"], printed["problem"]) == ("relays", "coil 3", "0", "")
    assert not panel.coils


def test_a_test_switches_each_output_on_and_back(panel: FakePanel, tmp_path: Path) -> None:
    assert run("--modbus", file(tmp_path, panel.port), "relays", "--seconds", "0.05", "--yes") == 0
    assert panel.coils == {3: [1, 0]}


def test_a_panel_that_cannot_be_used_fails_the_test(
    panel: FakePanel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--modbus", file(tmp_path, panel.port, '{coil: 99, zones: ["*"]}'), "--dry-run") == 1
    assert "coil 99: it has no such address" in capsys.readouterr().out
    assert run("--modbus", file(tmp_path, 1), "--dry-run") == 1
    assert "it cannot be reached" in capsys.readouterr().out


def test_nothing_is_switched_by_accident(panel: FakePanel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, panel.port)
    assert run("--modbus", path) == 2
    assert "--dry-run" in capsys.readouterr().err
    assert run("--modbus", path, "sirens", "--yes") == 2
    assert 'no panel "sirens" is declared. Declared: relays.' in capsys.readouterr().err
    assert not panel.coils
