"""What a sensor's raw values mean: its own calibration over its fleet's settings. Pure."""

from embereye.v1.shard_pb2 import SensorSettings
from embereye.v1.types_pb2 import Device, DigitalFlame

CONVERTER_BITS = 12  # where a fleet's settings leave it at 0
EMISSIVITY = 0.95  # likewise; of most surfaces that are not bare metal


def settings_of(spec: Device, fleet: SensorSettings) -> SensorSettings:
    """The fleet's settings as they are for the device `spec`."""
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


def emissivity_of(settings: SensorSettings) -> float:
    """Of what the device looks at, 0..1."""
    return settings.emissivity or EMISSIVITY


def full_scale_of(settings: SensorSettings) -> float:
    """The most counts that the device's converter can give."""
    return float((1 << (settings.converter_bits or CONVERTER_BITS)) - 1)


def active_low(settings: SensorSettings) -> bool:
    """Whether the digital flame output is 0 while there is a flame."""
    return settings.digital_flame == DigitalFlame.DIGITAL_FLAME_ACTIVE_LOW
