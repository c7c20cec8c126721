"""A table of devices becomes a ConfigMap: checked line by line, compared, and back again."""

import csv
import io

import pytest
import yaml

from embereye_cli.devices.fleet_import import COLUMNS
from embereye_cli.main import main
from embereye_operator.api.cameras import Camera
from embereye_operator.api.schema import schema_of
from embereye_operator.api.sensors import Sensor
from embereye_operator.up.folder import load_fleets

MASK = '"[{""points"": [{""left"": 0.0, ""top"": 0.0}, {""left"": 0.5, ""top"": 0.0}, {""left"": 0.5, ""top"": 0.5}]}]"'
TABLE = f"""id,zone,source,credentials,location,record,masks,privacyMasks
gate,yard,rtsp://10.0.0.7/sub,gate,"Gate, north",rtsp://10.0.0.7/main,,
door,hall,onvif://10.0.0.8,,,,{MASK},{MASK}
"""
FLEET = """apiVersion: embereye.dev/v1beta1
kind: CameraFleet
metadata: {name: site}
spec: {camerasFrom: [{configMapRef: {name: cameras}}]}
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "cameras.csv"
    path.write_text(TABLE)
    return path


def test_a_table_becomes_the_devices_of_a_fleet_and_a_table_again(table, tmp_path, capsys):
    assert main(["fleet", "import", str(table)]) == 0
    written = table.with_suffix(".yaml")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (fleet,) = load_fleets([tmp_path / "fleet.yaml", written]).values()
    gate, door = fleet.devices
    assert (gate.location, gate.credentials_ref.name, gate.streams.record) == (
        "Gate, north",
        "gate",
        "rtsp://10.0.0.7/main",
    )
    assert len(door.masks[0].points) == 3
    assert door.privacy_masks == door.masks
    assert f"kubectl apply --server-side -f {written}" in capsys.readouterr().err
    assert main(["fleet", "export", str(tmp_path / "fleet.yaml"), str(written)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["id"] for row in rows] == ["gate", "door"]
    (tmp_path / "again.csv").write_text("")
    with (tmp_path / "again.csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    before = written.read_text()
    assert main(["fleet", "import", str(tmp_path / "again.csv"), "--out", str(written)]) == 0
    assert yaml.safe_load(written.read_text()) == yaml.safe_load(before)


@pytest.mark.parametrize(("kind", "device"), [("cameras", Camera), ("sensors", Sensor)])
def test_a_table_has_a_column_for_each_field_of_a_device(kind, device):
    fields = schema_of(device)["properties"].keys() - {"credentialsRef", "streams"}
    assert set(COLUMNS[kind]) - {"credentials", "detect", "record"} == fields


def test_the_same_table_changes_nothing_and_a_dry_run_shows_what_would(table, capsys):
    assert main(["fleet", "import", str(table)]) == 0
    capsys.readouterr()
    assert main(["fleet", "import", str(table)]) == 0
    assert "no difference" in capsys.readouterr().err
    written = table.with_suffix(".yaml")
    before = written.read_text()
    table.write_text(TABLE.replace("yard", "court"))
    assert main(["fleet", "import", str(table), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert '+    - {"id": "gate", "zone": "court"' in printed
    assert "door" not in printed.replace(" ", "").partition("@@")[0]
    assert written.read_text() == before


def test_every_refused_line_is_reported_with_its_reason(table, capsys):
    table.write_text(
        "id;zone;source;masks\ngate;yard;rtsp://h/x;\ngate;yard;rtsp://h/y;\nb;;rtsp://h/x;\nc;yard;10.0.0.7;\n"
        "d;yard;rtsp://h/x;nonsense\ne;yard;rtsp://me:a/b@h/x;\n"
    )
    assert main(["fleet", "import", str(table)]) == 1
    printed = capsys.readouterr().err
    for line, reason in (
        (3, "id: gate is in line 2 already"),
        (4, "csv:4: zone: "),
        (5, "Did you mean rtsp"),
        (6, "masks: not JSON"),
        (7, "%2F"),
    ):
        assert any(f"cameras.csv:{line}: " in text and reason in text for text in printed.splitlines()), printed
    assert not table.with_suffix(".yaml").exists()
    assert main(["fleet", "import", str(table), "--skip-refused", "--zone", "yard"]) == 1
    assert table.with_suffix(".yaml").read_text().count('"id"') == 2


def test_a_password_in_an_address_is_a_warning_that_names_the_camera(table, capsys):
    table.write_text("id,zone,source\ngate,yard,rtsp://me:secret@h/x\ndoor,yard,rtsp://h/user@x\n")
    assert main(["fleet", "import", str(table)]) == 0
    warning = next(line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert "the source of gate contains a password" in warning
    assert "secret" not in warning


def test_a_workbook_and_two_thousand_sensors_are_read(tmp_path, capsys):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["id", "zone", "source", "template", "heartbeat"])
    for number in range(2000):
        book.active.append([f"smoke-{number}", "hall", f"mqtt:zigbee2mqtt/smoke {number}", "zigbee2mqtt", "hourly"])
    book.save(tmp_path / "smoke.xlsx")
    assert main(["fleet", "import", str(tmp_path / "smoke.xlsx"), "--kind", "sensors"]) == 0
    listed = yaml.safe_load(yaml.safe_load((tmp_path / "smoke.yaml").read_text())["data"]["sensors"])
    assert (len(listed), listed[7]["source"]) == (2000, "mqtt:zigbee2mqtt/smoke 7")


def test_sensors_with_a_login_are_a_table_and_the_same_devices_again(tmp_path, capsys):
    table = tmp_path / "sensors.csv"
    fields = '"{""smoke"": ""$.alarm=ON""}"'
    table.write_text(
        f"name,zone,source,credentials,interval,fields\nboiler,cellar,http://10.0.0.9/status,boiler,10s,{fields}\n"
    )
    assert main(["fleet", "import", str(table), "--kind", "sensors"]) == 0
    (tmp_path / "fleet.yaml").write_text(FLEET.replace("Camera", "Sensor").replace("camera", "sensor"))
    manifests = [str(tmp_path / "fleet.yaml"), str(tmp_path / "sensors.yaml")]
    capsys.readouterr()
    assert main(["fleet", "export", "--kind", "sensors", *manifests]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["id"], row["credentials"], row["interval"], row["fields"]) == (
        "boiler", "boiler", "10s", '{"smoke": "$.alarm=ON"}'
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("", 2, "no column id"),
        ("id,zne\na,b\n", 2, "Did you mean zone"),
        ("id,zone,heartbeat\na,b,hourly\n", 2, "column heartbeat: cameras have only"),
        (None, 5, "does not exist"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(table, text, code, reason, capsys):
    table.unlink() if text is None else table.write_text(text)
    assert main(["fleet", "import", str(table)]) == code
    assert reason in capsys.readouterr().err
