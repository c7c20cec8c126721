"""A fleet's settings as its shards get them: what a manifest says, and the defaults for everything else."""

from typing import Any

from embereye.v1.shard_pb2 import CameraSettings, SensorSettings
from embereye_operator.assignments import build_settings
from embereye_operator.model import parse_fleet


def sensor_settings(**spec: Any) -> SensorSettings:
    """Of a SensorFleet whose spec has these fields: `sensor_settings(smoke={"alarmPercent": 30})`."""
    settings = build_settings(parse_fleet(_manifest("SensorFleet", {"sensors": [], **spec})).spec)
    assert isinstance(settings, SensorSettings)
    return settings


def camera_settings(**spec: Any) -> CameraSettings:
    """Of a CameraFleet whose spec has these fields: `camera_settings(deadline="1s")`."""
    settings = build_settings(parse_fleet(_manifest("CameraFleet", {"cameras": [], **spec})).spec)
    assert isinstance(settings, CameraSettings)
    return settings


def _manifest(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "embereye.dev/v1alpha1", "kind": kind, "metadata": {"name": "test"}, "spec": spec}


HEAT = sensor_settings().heat
