"""An empty fleet has complete settings for its shards, and a device's calibration reaches its shard."""

from pathlib import Path

import pytest
import yaml

from embereye.detect.sensing.calibration import settings_of
from embereye.shard.settings import unset_field
from embereye.v1.shard_pb2 import Assignment, SensorSettings
from embereye.v1.types_pb2 import DigitalFlame
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.decide.placement.assignments import build_device, build_settings, decode, encode


@pytest.mark.parametrize("kind", ["sensors", "cameras"])
def test_the_model_sets_every_setting_of_a_shard(kind: str) -> None:
    fleet = parse_fleet(
        {
            "apiVersion": "embereye.dev/v1alpha1",
            "kind": {"sensors": "SensorFleet", "cameras": "CameraFleet"}[kind],
            "metadata": {"name": "hall"},
            "spec": {kind: []},
        }
    )
    settings = build_settings(fleet.spec)
    assignment = Assignment(sensor=settings) if isinstance(settings, SensorSettings) else Assignment(camera=settings)
    assert unset_field(assignment) == ""
    assert unset_field(decode(encode(assignment)) or Assignment()) == "", "the stored assignment is complete, too"


def test_the_documented_calibration_reaches_its_shard() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/sensors.md").read_text()
    fleet = parse_fleet(yaml.safe_load(text.split("```yaml\n")[1].split("```")[0]))
    settings = build_settings(fleet.spec)
    assert isinstance(settings, SensorSettings)
    assert settings.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW
    assert settings.gas.supply_ratio == pytest.approx(1.52)
    plain, calibrated = (settings_of(build_device(device, fleet), settings) for device in fleet.devices)
    assert plain == settings
    assert (calibrated.emissivity, calibrated.converter_bits) == (pytest.approx(0.8), 10)
    assert (calibrated.gas.r0_kohm, calibrated.gas.load_kohm) == (pytest.approx(41.2), 10)
    assert calibrated.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_HIGH
