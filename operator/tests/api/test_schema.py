"""Local validation, defaults and the generated CRDs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import FleetError, parse_devices, parse_fleet
from embereye_operator.api.schema import format_duration, from_manifest, openapi, parse_duration, to_manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.api.shared import API_VERSION
from embereye_operator.api.status import FleetStatus

ROOT = Path(__file__).parents[3]


def camera(**fields: Any) -> dict[str, Any]:
    return {"id": "c-1", "zone": "hall", "source": "rtsp://10.0.0.1/main", **fields}


def manifest(kind: str = "SensorFleet", spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "hall", "namespace": "default", **metadata},
        "spec": {} if spec is None else spec,
    }


def test_no_property_name_is_a_boolean_in_yaml() -> None:
    def names(schema: Any) -> list[str]:
        if not isinstance(schema, dict):
            return []
        return [*schema.get("properties", {}), *(name for inner in schema.values() for name in names(inner))]

    for spec in (SensorFleetSpec, CameraFleetSpec):
        assert not {name.lower() for name in names(openapi(spec))} & {"y", "n", "yes", "no", "on", "off"}


@pytest.mark.parametrize("name", ["sensorfleet", "camerafleet"])
def test_examples_are_valid(name: str) -> None:
    fleet = parse_fleet(yaml.safe_load((ROOT / f"charts/embereye/examples/{name}.yaml").read_text()))
    assert fleet.name == "warehouse"
    assert fleet.key == f"default/{fleet.kind}/warehouse"
    assert len(fleet.devices) == {"sensors": 4, "cameras": 2}[fleet.kind]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0s", 0),
        ("50ms", 50_000_000),
        ("5s", 5 * 10**9),
        ("2m", 120 * 10**9),
        ("1h", 3600 * 10**9),
        ("7d", 604_800 * 10**9),
    ],
)
def test_durations_are_parsed_and_formatted(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == text


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "05s", "1.5s", "5s\n", "5sec"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_an_empty_spec_has_the_documented_defaults() -> None:
    spec = parse_fleet(manifest()).spec
    assert isinstance(spec, SensorFleetSpec)
    assert spec.deadline == 5 * 10**9
    assert (spec.thermal.pre_alarm_celsius, spec.thermal.alarm_celsius, spec.thermal.critical_celsius) == (47, 57, 90)
    assert spec.queue.overflow == "compact"
    assert spec.commands.start == "PERIOD_ON"
    assert spec == SensorFleetSpec()
    assert parse_fleet(manifest("CameraFleet")).spec == CameraFleetSpec()


def test_null_counts_as_absent() -> None:
    fleet = parse_fleet(manifest(spec={"deadline": None, "sensors": None}))
    assert fleet.spec == SensorFleetSpec()


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        (
            "CameraFleet",
            {"cameras": [camera(), camera(id="c-2", source="rtps://x")]},
            'spec.cameras[1].source: "rtps://…" is neither a URL whose scheme is one of '
            "rtsp, rtsps, rtp, http, https, onvif, push, file nor /dev/videoN",
        ),
        (
            "CameraFleet",
            {"cameras": [camera(source='rtsp://viewer:hu sh"hush@cam/1')]},
            'spec.cameras[0].source: "rtsp://…" is neither a URL whose scheme is one of '
            "rtsp, rtsps, rtp, http, https, onvif, push, file nor /dev/videoN",
        ),
        (
            "CameraFleet",
            {"cameras": [camera(source="onvif://cam", streams={"detect": "main", "record": "http://u:hush@cam/main"})]},
            'spec.cameras[0].streams.record: "http://…" is neither a URL whose scheme is one of rtsp, rtsps, onvif '
            "nor the name of an ONVIF profile",
        ),
        (
            "CameraFleet",
            {"cameras": [camera(source="rtsp://cam/sub", streams={"record": "main"})]},
            "spec.cameras[0].streams: names a profile, which only a source onvif://HOST has: use a URL",
        ),
        ("CameraFleet", {"camera": []}, "spec.camera: there is no such field; known here: access, alerts, autoscaling"),
        ("CameraFleet", {"cameras": [{"id": "c-1", "zone": "z"}]}, "spec.cameras[0].source: is required"),
        ("CameraFleet", {"cameras": [camera(), camera()]}, 'spec.cameras[1].id: "c-1" is repeated'),
        ("CameraFleet", {"fps": {"min": 20}}, "spec.fps.min: must not be more than target"),
        ("CameraFleet", {"detection": {"detectors": ["fire"]}}, 'spec.detection.detectors[0]: "fire" is not one of'),
        ("SensorFleet", {"deadline": "5 seconds"}, 'spec.deadline: "5 seconds" is not a duration such as 50ms, 5s'),
        ("SensorFleet", {"deadline": "2h"}, 'spec.deadline: "2h" must be between 100ms and 1h'),
        ("SensorFleet", {"shards": 0}, "spec.shards: 0 is less than 1"),
        ("SensorFleet", {"shards": "two"}, 'spec.shards: "two" is not an integer'),
        ("SensorFleet", {"listen": {"tcp": 9100}}, "spec.listen.tcp: must not be 50051, 9100 or 50055"),
        ("SensorFleet", {"sensors": [{"id": "a b", "zone": "z"}]}, 'spec.sensors[0].id: "a b" is not an id'),
        (
            "SensorFleet",
            {"autoscaling": {"minShards": 5, "maxShards": 2}},
            "spec.autoscaling.minShards: must not be more than maxShards",
        ),
        (
            "SensorFleet",
            {"template": {"resources": {"requests": {"cpu": "lots"}}}},
            'spec.template.resources.requests.cpu: "lots" is not a quantity such as 500m, 2 or 256Mi',
        ),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_field(kind: str, spec: Any, sentence: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse_fleet(manifest(kind, spec))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"{kind} default/hall: ")


def test_listen_ports_cannot_change() -> None:
    before = manifest(spec={"listen": {"tcp": 9002}})
    assert parse_fleet(before, old=before)
    with pytest.raises(FleetError, match=r"spec\.listen\.tcp: 9001 cannot be changed"):
        parse_fleet(manifest(), old=before)


def test_a_name_too_long_for_children_is_refused() -> None:
    assert parse_fleet(manifest(name="a" * 40))
    for name in ("a" * 41, "1hall", "hall.one", "Hall"):
        with pytest.raises(FleetError, match=r"metadata\.name must be at most 40"):
            parse_fleet(manifest(name=name))


@pytest.mark.parametrize("namespace", ["Site_1", "../..", "a/b", "-a", "a-", "a" * 64, "a\n"])
def test_an_invalid_namespace_is_refused_locally(namespace: str) -> None:
    assert parse_fleet(manifest(namespace="1-" + "a" * 61))
    with pytest.raises(FleetError, match=r"metadata\.namespace: .* is not a namespace such as site-1"):
        parse_fleet(manifest(namespace=namespace))


def test_a_newer_servers_field_is_ignored() -> None:
    assert parse_fleet(manifest(spec={"future": 1}), strict=False).spec == SensorFleetSpec()


@pytest.mark.parametrize(
    "document", [{}, {"kind": "Pod", "apiVersion": "v1"}, manifest(spec=[]), {"kind": "SensorFleet"}]
)
def test_a_document_of_another_kind_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(FleetError):
        parse_fleet(document)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_nan_and_infinity_are_refused(number: str) -> None:
    spec = {"thermal": {"riseCelsiusPerMinute": yaml.safe_load(number)}}
    with pytest.raises(FleetError, match=r"spec\.thermal\.riseCelsiusPerMinute: -?(NaN|Infinity) is not a number"):
        parse_fleet(manifest(spec=spec))
    text = f"[{{id: s-1, zone: hall, calibration: {{emissivity: {number}}}}}]"
    with pytest.raises(FleetError, match=r"sensors\[0\]\.calibration\.emissivity: -?(NaN|Infinity) is not a number"):
        parse_devices("sensors", text, "ConfigMap x")


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        (["hall"], 'metadata: ["hall"] is not an object'),
        ({"name": 7}, "metadata.name: 7 is not a string"),
        ({"name": "hall", "namespace": ["a"]}, 'metadata.namespace: ["a"] is not a string'),
        ({"name": "hall", "annotations": ["a"]}, 'metadata.annotations: ["a"] is not an object'),
        ({"name": "hall", "labels": "a"}, 'metadata.labels: "a" is not an object'),
        (
            {"name": "hall", "annotations": {"embereye.dev/simulate": True}},
            "metadata.annotations: embereye.dev/simulate: true is not a string: put it into quotes",
        ),
        ({"name": "hall", "labels": {"floor": 1}}, "metadata.labels: floor: 1 is not a string: put it into quotes"),
        ({"name": "hall", "generation": "two"}, 'metadata.generation: "two" is not an integer'),
    ],
)
def test_malformed_metadata_is_refused_with_the_field(metadata: Any, sentence: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse_fleet({**manifest(), "metadata": metadata})
    assert sentence in str(caught.value)


def test_every_missing_field_is_named() -> None:
    with pytest.raises(FleetError) as caught:
        parse_fleet(manifest(spec={"sensors": [{}]}))
    assert caught.value.problems == ["spec.sensors[0].id: is required", "spec.sensors[0].zone: is required"]


def test_an_unknown_numeric_field_is_named() -> None:
    with pytest.raises(FleetError, match=r"spec\.listen\.1: there is no such field"):
        parse_fleet(manifest(spec={"listen": {1: 2, "future": 3}}))
    with pytest.raises(FleetError, match=r"1: there is no such field; known here: apiVersion"):
        parse_fleet(manifest() | yaml.safe_load("{1: 2, future: 3}"))


def test_a_list_of_devices_is_parsed_from_yaml() -> None:
    devices = parse_devices("sensors", "- {id: s-1, zone: hall}\n- {id: s-2, zone: hall}", "ConfigMap x, key y")
    assert [device.id for device in devices] == ["s-1", "s-2"]
    assert parse_devices("cameras", "", "ConfigMap x") == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- {id: s-1}", "sensors[0].zone: is required"),
        ("{", "not YAML"),
        ("5", "sensors: 5 is not an array"),
        ("[{id: a, zone: z}, {id: a, zone: z}]", "sensors[1].id"),
    ],
)
def test_an_invalid_list_of_devices_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(FleetError, match="ConfigMap x, key y") as caught:
        parse_devices("sensors", text, "ConfigMap x, key y")
    assert sentence in str(caught.value)


def test_specs_and_statuses_survive_a_round_trip() -> None:
    corners = [{"left": 0, "top": 0}, {"left": 1, "top": 0}, {"left": 1, "top": 0.5}]
    declared = {"cameras": [camera(masks=[{"points": corners}])], "evidence": {"retention": "30d"}}
    spec = parse_fleet(manifest("CameraFleet", declared)).spec
    assert from_manifest(CameraFleetSpec, to_manifest(spec)) == spec
    assert from_manifest(FleetStatus, to_manifest(FleetStatus(shards=3))) == FleetStatus(shards=3)


@pytest.mark.parametrize(
    "source", ["rtps://me:secret@cam/1", "rtsp://cam/user=admin_password=secret\n", {"url": "http://cam/?pwd=secret"}]
)
def test_errors_never_contain_a_cameras_password(source: Any) -> None:
    with pytest.raises(FleetError) as caught:
        parse_fleet(manifest("CameraFleet", {"cameras": [{"id": "c", "zone": "z", "source": source}]}))
    assert "spec.cameras[0].source" in str(caught.value)
    assert "secret" not in str(caught.value)
