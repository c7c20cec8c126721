"""What a sensor's raw values mean: its own calibration over its fleet's settings. Pure."""

from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device, DigitalFlame


def settings_of(spec: Device, fleet: SensorSettings) -> SensorSettings:
    """The fleet's settings with the device's own calibration in place of what it gives."""
    if not spec.HasField("calibration"):
        return fleet
    own = SensorSettings(
        emissivity=spec.calibration.emissivity,
        converter_bits=spec.calibration.converter_bits,
        digital_flame=spec.calibration.digital_flame,
    )
    own.gas.load_kohm = spec.calibration.load_kohm
    own.gas.r0_kohm = spec.calibration.r0_kohm
    own.gas.supply_ratio = spec.calibration.supply_ratio
    merged = SensorSettings()
    merged.CopyFrom(fleet)
    merged.MergeFrom(own)  # merging leaves out a scalar's 0
    return merged


def full_scale_of(settings: SensorSettings) -> float:
    """The most counts that the device's converter can give."""
    return float((1 << settings.converter_bits) - 1)


def active_low(settings: SensorSettings) -> bool:
    """Whether the digital flame output is 0 while there is a flame."""
    return settings.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW
