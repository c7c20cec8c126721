"""`embereye sensor map` shows the readings in a sample message, or the fields from which to choose."""

import json

import pytest

from embereye_cli.main import main


@pytest.fixture
def sample(tmp_path):
    def write(*entries):
        path = tmp_path / "message.json"
        path.write_text("\n".join(map(json.dumps, entries)))
        return str(path)

    return write


def test_the_readings_of_a_template_are_a_table(sample, capsys):
    message = sample({"smoke": True, "battery": 41, "linkquality": 90})
    assert main(["sensor", "map", "--sample", message, "--template", "zigbee2mqtt"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["smoke", "on"], ["battery", "41"]]


def test_without_a_reading_each_field_of_the_message_has_a_line(sample, capsys):
    message = sample({"alarm": {"state": "HOT"}, "t": [21.5]})
    assert main(["sensor", "map", "--sample", message]) == 1
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows == [["field", "value"], ["alarm.state", '"HOT"'], ["t[0]", "21.5"]]
    assert "--field smoke=alarm.state=ON" in shown.err
    assert main(["sensor", "map", "--sample", message, "--field", "heat=alarm.state=HOT|FIRE"]) == 0
    assert "on" in capsys.readouterr().out


def test_each_entry_that_cannot_be_read_is_named(sample, capsys):
    message = sample({"device": "a", "readings": {"smoke": "maybe"}}, {"smoke": True}, {"device": "b"})
    assert main(["sensor", "map", "--sample", message, "--entries"]) == 1
    shown = capsys.readouterr()
    assert "entry 1: smoke: 'maybe' is not true or false; entry 2: \"smoke\" is not one of" in shown.err
    assert "check-in" in shown.out


def test_a_jsonpath_is_tried_and_a_wrong_one_is_refused_with_the_reason(sample, capsys):
    message = sample({"zones": [{"alarm": "OFF"}, {"alarm": "ON"}]})
    assert main(["sensor", "map", "--sample", message, "--field", "smoke=$.zones[*].alarm=ON"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["smoke", "on"]
    assert main(["sensor", "map", "--sample", message, "--field", "smoke=$.zones[*.alarm=ON"]) == 2
    assert "is no JSONPath" in capsys.readouterr().err
