"""A fleet's defaults and those that a shard puts in place of a 0 are the same."""

from pathlib import Path

import pytest
import yaml

from embereye.detect.sensing.calibration import settings_of
from embereye.detect.sensing.thresholds import FLAME_DEFAULTS, GAS_DEFAULTS, SMOKE_DEFAULTS
from embereye.detect.thermal.heat import DEFAULTS
from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import DigitalFlame
from embereye_operator.assignments import build_device, build_settings
from embereye_operator.model import SensorFleetSpec, parse_fleet


def test_the_model_and_the_shard_agree_on_every_default_threshold() -> None:
    manifest = {
        "apiVersion": "embereye.dev/v1alpha1",
        "kind": "SensorFleet",
        "metadata": {"name": "hall"},
        "spec": {"sensors": [{"id": "s-1", "zone": "hall"}]},
    }
    spec = parse_fleet(manifest).spec
    assert isinstance(spec, SensorFleetSpec)
    settings = build_settings(spec)
    assert isinstance(settings, SensorSettings)
    for ours, theirs in (
        (settings.smoke, SMOKE_DEFAULTS),
        (settings.flame, FLAME_DEFAULTS),
        (settings.gas, GAS_DEFAULTS),
        (settings.heat, DEFAULTS),
    ):
        for field, value in theirs.ListFields():
            assert getattr(ours, field.name) == pytest.approx(value), field.name


def test_the_documented_calibration_reaches_its_shard() -> None:
    text = (Path(__file__).parents[2] / "docs/sensors.md").read_text()
    fleet = parse_fleet(yaml.safe_load(text.split("```yaml\n")[1].split("```")[0]))
    settings = build_settings(fleet.spec)
    assert isinstance(settings, SensorSettings)
    assert settings.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW
    assert settings.gas.supply_ratio == pytest.approx(1.52)
    plain, own = (settings_of(build_device(device, fleet), settings) for device in fleet.devices)
    assert plain == settings
    assert (own.emissivity, own.converter_bits) == (pytest.approx(0.8), 10)
    assert (own.gas.r0_kohm, own.gas.load_kohm) == (pytest.approx(41.2), 10)
    assert own.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_HIGH
