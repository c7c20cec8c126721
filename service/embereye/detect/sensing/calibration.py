"""The calibration of a sensor's raw values: its own settings over its fleet's. Pure."""

from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device, DigitalFlame


def settings_of(spec: Device, fleet: SensorSettings) -> SensorSettings:
    """Merge the device's own calibration into the fleet's settings."""
    if not spec.HasField("calibration"):
        return fleet
    calibrated = SensorSettings(
        emissivity=spec.calibration.emissivity,
        converter_bits=spec.calibration.converter_bits,
        digital_flame=spec.calibration.digital_flame,
    )
    calibrated.gas.load_kohm = spec.calibration.load_kohm
    calibrated.gas.r0_kohm = spec.calibration.r0_kohm
    calibrated.gas.supply_ratio = spec.calibration.supply_ratio
    merged = SensorSettings()
    merged.CopyFrom(fleet)
    merged.MergeFrom(calibrated)  # merging leaves out a scalar's 0
    return merged


def full_scale_of(settings: SensorSettings) -> float:
    """The converter's largest count."""
    return float((1 << settings.converter_bits) - 1)


def is_active_low(settings: SensorSettings) -> bool:
    """True if the digital flame output is 0 while there is a flame."""
    return settings.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW
