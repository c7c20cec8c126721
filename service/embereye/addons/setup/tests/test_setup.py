"""Changes of manifests by HTTP: preview, apply, undo, and cameras that are tried."""

import asyncio
import base64
import os
from pathlib import Path

import pytest
from harness.need import KUBECTL, program
from harness.servers.apiserver import ApiServer, path_of

from embereye.addons.setup.editor import UNDOABLE
from embereye_cli.devices.fleet_import import config_map
from embereye_operator.api.shared import API_VERSION
from embereye_operator.decide.manifests.names import LABEL_ALLOWED

from .conftest import CAMERAS, SENSORS, Start

BOTH = ("cameras.yaml", "sensors.yaml")
DOCK = {"zone": "dock", "source": "rtsp://10.0.0.3/1"}


async def test_a_change_is_shown_first_then_written_and_undone(start: Start) -> None:
    async with start(*BOTH) as site:
        file = site.folder / "cameras.yaml"
        shown = await site.change("add", "dock", fields=DOCK, apply=False)
        assert "+    - {id: dock, zone: dock, source: rtsp://10.0.0.3/1}" in shown["diff"]
        assert not shown["applied"]
        assert file.read_text() == CAMERAS
        assert (await site.change("add", "dock", fields=DOCK))["applied"]
        assert (await site.change("change", "gate", fields={"zone": "gate"}))["applied"]
        _, state = await site.ask("GET", "/v1/setup")
        assert [device["id"] for device in state["fleets"][0]["devices"]] == ["gate", "ramp", "dock"]
        assert state["undo"] == "change gate in default/cameras/yard"
        for _ in range(2):
            status, _ = await site.ask("POST", "/v1/setup/undo", {})
            assert status == 200
        assert file.read_text() == CAMERAS
        assert (await site.ask("POST", "/v1/setup/undo", {}))[0] == 409
        _, trail = await site.ask("GET", "/v1/audit")
        assert [entry["subject"] for entry in trail["entries"] if entry["action"] == "set up"] == [
            "undo: add dock in default/cameras/yard", "undo: change gate in default/cameras/yard",
            "change gate in default/cameras/yard", "add dock in default/cameras/yard",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"action": "add", "device": "gate", "fields": DOCK}, "already"),
        ({"action": "add", "device": "dock", "fields": {"source": "rtsp://10.0.0.3/1"}}, "zone"),
        ({"action": "add", "device": "dock", "fields": {**DOCK, "source": "nowhere"}}, "source"),
        ({"action": "change", "device": "gate", "fields": {"colour": "red"}}, "colour"),
        ({"action": "change", "device": "roof", "fields": {"zone": "roof"}}, "does not declare roof"),
    ],
)
async def test_a_change_that_up_would_refuse_is_refused(start: Start, change: dict[str, object], reason: str) -> None:
    async with start(*BOTH) as site:
        status, body = await site.ask("POST", "/v1/setup/changes", {"fleet": "default/cameras/yard", **change})
        assert status == 409
        assert reason in body["error"]
        assert (site.folder / "cameras.yaml").read_text() == CAMERAS


async def test_a_device_of_a_config_map_is_changed_and_removed_in_it(start: Start) -> None:
    async with start("sensors.yaml", "list.yaml") as site:
        (site.folder / "sensors.yaml").write_text(f"{SENSORS}  sensorsFrom: [{{configMapRef: {{name: more}}}}]\n")
        rows = [{"id": name, "zone": "loft"} for name in ("m-1", "m-2")]
        before = config_map("sensors", rows, "more", "default")
        file = site.folder / "list.yaml"
        file.write_text(before)
        _, shown = await site.ask("GET", "/v1/setup")
        assert [device["id"] for device in shown["fleets"][0]["devices"]] == ["s-1", "m-1", "m-2"]
        answer = await site.change("change", "m-2", "default/sensors/hall", fields={"zone": "attic"})
        assert answer["applied"], answer
        assert file.read_text() == before.replace('{"id": "m-2", "zone": "loft"}', '{id: "m-2", zone: attic}')
        assert (await site.change("remove", "m-2", "default/sensors/hall"))["applied"]
        assert file.read_text() == before.replace('    - {"id": "m-2", "zone": "loft"}\n', "")
        assert (await site.ask("POST", "/v1/setup/undo", {}))[0] == 200
        assert "attic" in file.read_text()
        answer = await site.change("add", "m-1", "default/sensors/hall", fields={"zone": "loft"})
        assert answer["status"] == 409


async def test_another_hand_in_the_file_is_respected(start: Start) -> None:
    async with start(*BOTH) as site:
        file = site.folder / "cameras.yaml"
        await site.change("add", "dock", fields=DOCK)
        file.write_text(f"{file.read_text()}# a remark\n")
        status, body = await site.ask("POST", "/v1/setup/undo", {})
        assert status == 409
        assert "was changed since then" in body["error"]
        assert (await site.change("remove", "dock"))["applied"]
        assert file.read_text() == f"{CAMERAS}# a remark\n"


async def test_the_first_camera_gets_a_fleet(start: Start) -> None:
    async with start("sensors.yaml") as site:
        answer = await site.change("add", "dock", "default/cameras/cameras", fields=DOCK)
        assert answer["applied"], answer
        assert (site.folder / "sensors.yaml").read_text() == (
            f"{SENSORS}---\napiVersion: embereye.dev/v1beta1\nkind: CameraFleet\nmetadata: {{name: cameras}}\nspec:\n"
            "  cameras:\n    - id: dock\n      zone: dock\n      source: rtsp://10.0.0.3/1\n"
        )


async def test_a_login_is_stored_where_shards_find_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / "logins"))
    login = {"name": "dock", "user": "ada", "password": "p@ss word"}
    async with start(*BOTH) as site:
        fields = {**DOCK, "credentialsRef": {"name": "dock"}}
        await site.change("add", "dock", fields=fields, login=login, apply=False)
        assert not (tmp_path / "logins").exists()
        assert (await site.change("add", "dock", fields=fields, login=login))["applied"]
    assert (tmp_path / "logins" / "dock" / "password").read_text() == "p@ss word"
    assert "p@ss" not in (site.folder / "cameras.yaml").read_text()
    assert not any("p@ss" in entry.read_text() for entry in (tmp_path / "undo").iterdir())


MQTT = {"broker": "mqtts://broker.lan:8883", "credentialsRef": {"name": "hall-broker"}}
KITCHEN = {"zone": "kitchen", "source": "mqtt:zigbee2mqtt/kitchen", "template": "zigbee2mqtt"}
HALL = "default/sensors/hall"


async def test_a_broker_and_its_login_are_shown_written_and_undone_with_the_sensor(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / "logins"))
    login = {"name": "hall-broker", "user": "ada", "password": "p@ss word"}
    async with start(*BOTH) as site:
        file, wanted = site.folder / "sensors.yaml", {"fields": KITCHEN, "mqtt": MQTT, "login": login}
        shown = await site.change("add", "kitchen", HALL, **wanted, apply=False)
        assert "+  mqtt: {broker: mqtts://broker.lan:8883, credentialsRef: {name: hall-broker}}" in shown["diff"]
        assert "p@ss" not in shown["diff"]
        assert file.read_text() == SENSORS
        assert not (tmp_path / "logins").exists()
        assert (await site.change("add", "kitchen", HALL, **wanted))["applied"]
        assert (tmp_path / "logins" / "hall-broker" / "password").read_text() == "p@ss word"
        _, state = await site.ask("GET", "/v1/setup")
        assert [fleet["mqtt"] for fleet in state["fleets"]] == [{}, MQTT]
        assert (await site.ask("POST", "/v1/setup/undo", {}))[0] == 200
        assert file.read_text() == SENSORS


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"fields": KITCHEN, "mqtt": {"broker": "http://broker.lan"}}, 409, "mqtt://HOST:1883"),
        ({"fields": KITCHEN, "mqtt": {"broker": "mqtt://ada:secret@broker.lan"}}, 409, "without user and password"),
        ({"fields": KITCHEN, "mqtt": []}, 400, "mqtt: is not an object"),
        ({"fields": DOCK, "mqtt": MQTT, "fleet": "default/cameras/yard"}, 409, "is not a SensorFleet"),
        ({"fields": KITCHEN, "mqtt": MQTT, "login": {"name": "../up", "user": "a", "password": "b"}}, 400, "name"),
    ],
)
async def test_a_broker_that_up_would_refuse_is_refused(
    start: Start, change: dict[str, object], status: int, reason: str
) -> None:
    async with start(*BOTH) as site:
        wanted = {"fleet": HALL, "action": "add", "device": "kitchen", "apply": True, **change}
        answered, body = await site.ask("POST", "/v1/setup/changes", wanted)
        assert answered == status, body
        assert reason in body["error"]
        assert (site.folder / "sensors.yaml").read_text() == SENSORS


async def test_only_the_latest_changes_are_kept(start: Start) -> None:
    async with start(*BOTH) as site:
        for number in range(UNDOABLE + 3):
            assert (await site.change("change", "gate", fields={"zone": f"z-{number}"}))["applied"]
        assert len(list((site.folder / "undo").iterdir())) == UNDOABLE


async def test_in_a_cluster_the_answer_is_a_command(start: Start) -> None:
    async with start() as site:
        assert await site.ask("GET", "/v1/setup") == (200, {"editable": False, "fleets": []})
        answer = await site.change("add", "dock", fields=DOCK)
        assert not answer["applied"]
        assert answer["command"].startswith("kubectl --namespace default patch camerafleet yard --type=json")
        assert '"path": "/spec/cameras/-"' in answer["command"]
        assert (await site.ask("POST", "/v1/setup/try", {"address": "10.0.0.1"}))[0] == 409


@pytest.mark.apiserver
@pytest.mark.needs(KUBECTL)
async def test_in_a_cluster_the_printed_commands_add_a_sensor_its_broker_and_login(
    start: Start, tmp_path: Path, cluster: ApiServer, namespace: str
) -> None:
    fleet = {
        "apiVersion": API_VERSION, "kind": "SensorFleet", "metadata": {"name": "hall", "namespace": namespace},
        "spec": {"sensors": [{"id": "s-1", "zone": "hall"}]},
    }  # fmt: skip
    cluster.request("POST", path_of(fleet, name=False), fleet)
    async with start() as site:
        login = {"name": "hall-broker", "user": "ada o'hara", "password": ""}
        wanted = {"fields": KITCHEN, "mqtt": MQTT, "login": login}
        commands = (await site.change("add", "kitchen", f"{namespace}/sensors/hall", **wanted))["command"]
    run = await asyncio.create_subprocess_exec(
        "bash", "-ec", commands, stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{tools()}:{os.environ['PATH']}"},
    )  # fmt: skip
    await run.communicate(b"p@ss word")
    assert run.returncode == 0, commands
    spec = cluster.get(path_of(fleet))["spec"]
    assert [sensor["id"] for sensor in spec["sensors"]] == ["s-1", "kitchen"]
    assert spec["sensors"][1] == {"id": "kitchen", **KITCHEN}
    assert spec["mqtt"] == MQTT
    secret = cluster.get(f"/api/v1/namespaces/{namespace}/secrets/hall-broker")
    stored = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert stored == {"username": "ada o'hara", "password": "p@ss word"}
    assert secret["metadata"]["labels"][LABEL_ALLOWED] == "true"


async def test_in_a_cluster_a_sensor_is_changed_and_removed_by_commands(start: Start) -> None:
    async with start() as site:
        answer = await site.change("change", "s-1", HALL, fields={"zone": "loft"})
        assert answer["command"] == (
            "kubectl --namespace default edit sensorfleet hall\n# change: - {id: s-1, zone: loft}"
        )
        answer = await site.change("remove", "s-1", HALL)
        assert answer["command"].endswith("# delete: - {id: s-1}")


def tools() -> Path:
    """The folder of kubectl."""
    kubectl = program("kubectl")
    assert kubectl
    return kubectl.parent


@pytest.mark.parametrize(
    "body",
    [
        {"fleet": "yard", "action": "add", "device": "a"},
        {"fleet": "default/cameras/yard", "action": "burn", "device": "a"},
        {"fleet": "default/cameras/yard", "action": "add", "device": ""},
        {"fleet": "default/cameras/yard", "action": "add", "device": "a", "fields": {"id": "b"}},
        {"fleet": "default/cameras/yard", "action": "add", "device": "a", "fields": []},
    ],
)
async def test_a_request_of_another_form_is_refused(start: Start, body: dict[str, object]) -> None:
    async with start(*BOTH) as site:
        assert (await site.ask("POST", "/v1/setup/changes", body))[0] == 400


async def test_a_camera_is_tried_with_its_picture(start: Start, camera: str) -> None:
    async with start(*BOTH) as site:
        assert (await site.ask("GET", "/v1/setup/picture.jpg"))[0] == 404
        answers = await asyncio.gather(*(site.ask("POST", "/v1/setup/try", {"address": camera}) for _ in range(2)))
        assert sorted(status for status, _ in answers) == [200, 409]
        result = min(answers, key=lambda answer: answer[0])[1]
        assert result["problem"] == ""
        assert result["streams"][0]["source"] == camera
        assert (result["streams"][0]["width"], result["streams"][0]["height"]) == (160, 120)
        async with site.session.get(f"{site.base}/v1/setup/picture.jpg") as response:
            assert (await response.read()).startswith(b"\xff\xd8")
        _, result = await site.ask("POST", "/v1/setup/try", {"address": "127.0.0.1:9"})
        assert "refuses port 9" in result["problem"]


async def test_a_sensor_is_read_before_it_is_declared(start: Start, boiler: str) -> None:
    fields = {"zone": "cellar", "source": boiler, "fields": {"temperature": "celsius", "smoke": "alarm.smoke=ON"}}
    change = {"fleet": "default/sensors/hall", "action": "add", "device": "boiler", "fields": fields}
    async with start(*BOTH) as site:
        assert await site.ask("POST", "/v1/setup/read", change) == (
            200,
            {
                "problem": "",
                "readings": [
                    {"quantity": "smoke", "value": 0, "unit": ""},
                    {"quantity": "temperature", "value": 41.5, "unit": "°C"},
                ],
            },
        )
        assert (site.folder / "sensors.yaml").read_text() == SENSORS
        fields["fields"] = {"temperature": "kelvin"}
        status, body = await site.ask("POST", "/v1/setup/read", change)
        assert (status, body["readings"]) == (200, [])
        assert "none of the quantities" in body["problem"]
        fields["source"] = "mqtt:boiler"
        status, body = await site.ask("POST", "/v1/setup/read", change)
        assert status == 200
        assert "spec.mqtt.broker is missing" in body["problem"]
    async with start() as site:
        status, body = await site.ask("POST", "/v1/setup/read", change)
        assert status == 409
        assert "embereye sensor try" in body["error"]


async def test_viewers_may_not_edit(start: Start) -> None:
    async with start(*BOTH) as site:
        _, made = await site.ask("POST", "/v1/access/tokens", {"name": "eve", "role": "operator"})
        headers = {"Authorization": f"Bearer {made['token']}"}
        async with site.session.get(f"{site.base}/v1/setup", headers=headers) as response:
            assert response.status == 403
