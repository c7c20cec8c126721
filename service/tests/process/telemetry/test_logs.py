"""Log lines for people and for machines."""

import json
import logging
import sys

import pytest

from embereye.process.telemetry import logs


def line(message: str, *arguments: object, level: int = logging.INFO) -> dict[str, str]:
    record = logging.LogRecord("embereye.test", level, __file__, 1, message, arguments, None)
    fields = json.loads(logs.JsonFormatter().format(record))
    assert isinstance(fields, dict)
    return fields


def test_a_json_line_has_time_level_logger_and_message() -> None:
    fields = line("hub %s: connected", "127.0.0.1:1", level=logging.WARNING)
    assert fields["time"].endswith("Z")
    assert fields["time"][10] == "T"
    assert (fields["level"], fields["logger"], fields["message"]) == (
        "warning", "embereye.test", "hub 127.0.0.1:1: connected",
    )  # fmt: skip


def test_things_named_in_a_message_become_fields() -> None:
    fields = line("%d readings of device %s in zone %s were lost by shard %s", 3, "s-1", "hall", "hall-0")
    assert (fields["device"], fields["zone"], fields["shard"]) == ("s-1", "hall", "hall-0")
    assert line("camera %s: %.1f %% lost", "gate", 2.5)["device"] == "gate"
    assert "device" not in line("a device said %s", "x")


def test_lines_of_a_shard_name_the_shard_and_its_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEREYE_SHARD", "hall-sensors-0")
    monkeypatch.setenv("EMBEREYE_FLEET", "site/sensors/hall")
    fields = line("ready")
    assert (fields["shard"], fields["fleet"]) == ("hall-sensors-0", "site/sensors/hall")


def test_an_exception_stays_on_the_line() -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        record = logging.LogRecord("embereye", logging.ERROR, __file__, 1, "failed\nbadly", (), sys.exc_info())
    text = logs.JsonFormatter().format(record)
    assert "\n" not in text
    assert "no such thing" in json.loads(text)["exception"]


@pytest.mark.parametrize("form", logs.FORMATS)
def test_both_forms_are_written_to_standard_error(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, form)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.configure()
        logging.getLogger("embereye.test").info("device %s: heard", "s-1")
    finally:
        root.handlers[:], _ = before, root.setLevel(level)
    written = capsys.readouterr().err
    assert "device s-1: heard" in written
    assert written.startswith("{") == (form == "json")


def test_a_device_s_name_cannot_add_a_line_to_the_log() -> None:
    message = "device %s is not declared"
    name = "s-1\n2026-01-01T00:00:00.000Z ERROR   embereye: all is lost\x1b[2J\x9b\u202e"
    record = logging.LogRecord("embereye", logging.WARNING, __file__, 1, message, (name,), None)
    text = logs.TextFormatter("%(levelname)s %(message)s").format(record)
    assert text == (
        r"WARNING device s-1\n2026-01-01T00:00:00.000Z ERROR   embereye: all is lost\x1b[2J\x9b\u202e is not declared"
    )


def test_an_error_s_message_cannot_control_a_terminal() -> None:
    try:
        raise ValueError("it sent \x1b[2J\x9b")
    except ValueError:
        record = logging.LogRecord("embereye", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    text = logs.TextFormatter("%(message)s").format(record)
    assert text.splitlines()[-1] == r"ValueError: it sent \x1b[2J\x9b"
    assert text.count("\n") >= 3
