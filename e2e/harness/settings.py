"""A fleet's settings as its shards receive them: the fields of a manifest, and defaults for the rest."""

from typing import Any

from embereye.v1.shard_pb2 import CameraSettings, SensorSettings
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.placement.assignments import build_camera_settings, build_sensor_settings


def sensor_settings(**spec: Any) -> SensorSettings:
    """Build the settings of a SensorFleet with these spec fields: `sensor_settings(smoke={"alarmPercent": 30})`."""
    fleet = _fleet("SensorFleet", spec)
    assert isinstance(fleet.spec, SensorFleetSpec)
    return build_sensor_settings(fleet.spec)


def camera_settings(**spec: Any) -> CameraSettings:
    """Build the settings of a CameraFleet with these spec fields: `camera_settings(deadline="1s")`."""
    fleet = _fleet("CameraFleet", spec)
    assert isinstance(fleet.spec, CameraFleetSpec)
    return build_camera_settings(fleet.spec)


def _fleet(kind: str, spec: dict[str, Any]) -> Fleet:
    return parse_fleet(
        {"apiVersion": "embereye.dev/v1alpha1", "kind": kind, "metadata": {"name": "test"}, "spec": spec}
    )


HEAT = sensor_settings().heat
