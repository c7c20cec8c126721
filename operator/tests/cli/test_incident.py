"""The project's saved incidents are decided as when they were saved, and a change of thresholds shows there."""

import json
from pathlib import Path

import pytest

from embereye_cli.main import main

INCIDENTS = Path(__file__).parents[1] / "incidents"


def test_the_saved_incidents_are_decided_as_when_they_were_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["incident", "check", str(INCIDENTS)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("percent", "code"), [(25.0, 0), (80.0, 1)])
def test_a_change_of_thresholds_shows_what_it_would_have_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], percent: float, code: int
) -> None:
    spec = {"smoke": {"preAlarmPercent": percent - 10, "alarmPercent": percent}}
    fleet = {"apiVersion": "embereye.dev/v1beta1", "kind": "SensorFleet", "metadata": {"name": "hall"}, "spec": spec}
    (tmp_path / "hall.yaml").write_text(json.dumps(fleet))
    assert main(["incident", "check", str(INCIDENTS), "--fleet", str(tmp_path / "hall.yaml")]) == code
    out = capsys.readouterr().out
    assert ("\n    now:  smoke clear now, alarm then" in out) == bool(code), out
