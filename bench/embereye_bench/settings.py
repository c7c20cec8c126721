"""Settings of the measured shards: those of a fleet that declares nothing but its devices."""

from embereye.v1.shard_pb2 import (
    Commands,
    GasThresholds,
    HeatThresholds,
    PercentThresholds,
    SensorSettings,
)
from embereye.v1.types_pb2 import DigitalFlame

HEAT = HeatThresholds(pre_alarm_c=47, alarm_c=57, critical_c=90, rise_c_per_min=4, rise_allowance_c=10)


def sensor_settings(deadline_ns: int) -> SensorSettings:
    """Of a sensor shard; only the deadline, in nanoseconds, is the benchmark's own."""
    return SensorSettings(
        deadline_ns=deadline_ns,
        window_ns=50_000_000,
        max_items=2000,
        queue_capacity=10_000,
        overflow=SensorSettings.OVERFLOW_COMPACT,
        heat=HEAT,
        gas=GasThresholds(
            pre_alarm_ppm=2000,
            alarm_ppm=5000,
            load_kohm=10,
            r0_kohm=76.63,
            supply_ratio=1,
            curve_scale=116.6020682,
            curve_exponent=-2.769034857,
        ),
        smoke=PercentThresholds(pre_alarm=15, alarm=25),
        flame=PercentThresholds(pre_alarm=55, alarm=75),
        emissivity=0.95,
        commands=Commands(start="PERIOD_ON", calibration="EEPROM1", request="REQUEST1"),
        converter_bits=12,
        digital_flame=DigitalFlame.DIGITAL_FLAME_ACTIVE_HIGH,
    )
