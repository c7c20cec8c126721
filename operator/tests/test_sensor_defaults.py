"""A fleet's defaults and those that a shard puts in place of a 0 are the same."""

import pytest

from embereye.sensor.thresholds import FLAME_DEFAULTS, GAS_DEFAULTS, SMOKE_DEFAULTS
from embereye.thermal.heat import DEFAULTS
from embereye.v1.shard_pb2 import SensorSettings
from embereye_operator.assignments import build_settings
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
