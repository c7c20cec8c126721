"""The fields of a SensorFleet."""

from collections.abc import Mapping
from typing import Literal

from embereye.units import HOUR, MILLISECOND, MINUTE, SECOND
from embereye.wire.device.commands import CALIBRATION, REQUEST, START
from embereye_operator.api.candidates import SensorDetection
from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Duration, Quantity, Resource, Rule, described
from embereye_operator.api.shared import (
    CONTROL_PORT,
    GRPC_PORT,
    IMMUTABLE,
    METRICS_PORT,
    NOT_METRICS,
    DevicesFrom,
    FleetSpec,
    Heat,
    MeasuringArea,
    SecretReference,
    deadline,
    device_id,
    device_list,
    listened,
    measuring_areas,
    more_devices,
    ordered,
    zone_name,
)

MqttTemplate = Literal[
    "plain", "zigbee2mqtt", "zwavejs", "tasmota", "esphome", "shelly", "chirpstack", "ttn", "sparkplug"
]
Heartbeat = Literal["always", "everyFewMinutes", "hourly", "daily"]
# A report may come late: nodes repeat a lost one, and intervals drift.
HEARTBEATS: Mapping[str, int] = {
    "always": 0,
    "everyFewMinutes": 11 * MINUTE,
    "hourly": 70 * MINUTE,
    "daily": 25 * HOUR,
}
# Zigbee and LoRaWAN detectors report about once an hour, Z-Wave and Shelly ones once or twice a day, Tasmota every five
# minutes (TelePeriod).
TEMPLATE_HEARTBEATS: Mapping[str, Heartbeat] = {
    "plain": "always",
    "zigbee2mqtt": "hourly",
    "zwavejs": "daily",
    "tasmota": "everyFewMinutes",
    "esphome": "everyFewMinutes",
    "shelly": "daily",
    "chirpstack": "hourly",
    "ttn": "hourly",
    "sparkplug": "everyFewMinutes",
}
DigitalFlameOutput = Literal["activeHigh", "activeLow"]


class SensorCalibration(Resource):
    """The calibration of a sensor's raw values; missing fields are those of the fleet."""

    emissivity: float | None = described("Emissivity of the surface it is aimed at.", default=None, between=(0.1, 1))
    converter_bits: int | None = described(
        "Resolution of its analog-to-digital converter.", default=None, between=(8, 16)
    )
    load_kilohm: float | None = described("Load resistor of its MQ-135, in kΩ.", default=None, between=(0.1, 1000))
    clean_air_kilohm: float | None = described(
        "R0 of its MQ-135, in kΩ; `embereye calibrate gas` measures it.", default=None, between=(0.1, 10_000)
    )
    supply_ratio: float | None = described(
        "Supply voltage of its MQ-135, divided by the converter's reference voltage.", default=None, between=(0.1, 10)
    )
    digital_flame: DigitalFlameOutput | None = described(
        "The value of its digital flame output while there is a flame.", default=None
    )


class Sensor(Resource):
    """A thermal, gas, smoke or flame sensor, or a detector that publishes by MQTT."""

    id: str = device_id("sensor")
    zone: str = zone_name()
    location: str = described("Where it is, in words for people.", default="", max_length=200)
    calibration: SensorCalibration | None = described("Calibration of this sensor.", default=None)
    areas: tuple[MeasuringArea, ...] = measuring_areas()
    source: str | None = described(
        "mqtt:TOPIC, where it publishes; push, if it sends by HTTP; modbus://HOST/UNIT or an http:// URL, where it is "
        "read; sound:rtsp://HOST/PATH, a microphone that hears smoke alarms. Without it, the sensor connects to a "
        "shard.",
        default=None,
        pattern=r"^(push|mqtt:[^#+\x00-\x1f]+|modbus://[A-Za-z0-9.\[\]:_-]+/[0-9]{1,3}"
        r"|(sound:rtsps?|sound:https?|https?)://[A-Za-z0-9.\[\]:_-]+(/[^#\x00-\x20]*)?)$",
        hint="is not push, mqtt:TOPIC without the wildcards # and +, modbus://HOST/UNIT, http://HOST/PATH or "
        "sound:rtsp://HOST/PATH, without user and password",
        max_length=300,
    )
    template: MqttTemplate | None = described("The layout of its topics and messages; plain has none.", default=None)
    fields: Mapping[str, str] = described(
        "Where each quantity is in its messages, for example smoke: alarm.state=ON, or in JSONPath $.alarm.state=ON. "
        "For modbus: its register, for example temperature: input:10:int16:0.1.",
        default=dict,
        max_items=16,
        item=Limit(max_length=200),
    )
    interval: Duration | None = described(
        "How often an http:// source is read, by default every 2 s. With it, three missed readings make the sensor "
        "dark.",
        default=None,
        between=(SECOND, HOUR),
    )
    credentials_ref: SecretReference | None = described(
        "Secret with username and password, or with token, for a source http:// or sound:.", default=None
    )
    heartbeat: Heartbeat | None = described(
        "How often it reports although nothing happens. It is dark without a report for 70 minutes if hourly, 25 hours "
        "if daily, 11 minutes if everyFewMinutes, and the fleet's deadline if always. By default that of its template.",
        default=None,
    )


class SensorListen(Resource):
    """The ports that devices connect to."""

    RULES = (
        Rule("self.tcp != self.grpc", "must not be grpc's", lambda value, _: value["tcp"] != value["grpc"], ".tcp"),
        Rule(
            "!has(self.tls) || !(self.tls in [self.tcp, self.grpc])",
            "must not be tcp's or grpc's",
            lambda value, _: value.get("tls") not in {value["tcp"], value["grpc"]},
            ".tls",
        ),
        Rule(
            "!has(self.http) || !(self.http in [self.tcp, self.grpc] || (has(self.tls) && self.http == self.tls))",
            "must not be tcp's, grpc's or tls's",
            lambda value, _: (
                value.get("http") is None or value["http"] not in {value["tcp"], value["grpc"], value.get("tls")}
            ),
            ".http",
        ),
        Rule(
            f"!(self.tcp in [{GRPC_PORT}, {METRICS_PORT}, {CONTROL_PORT}])",
            f"must not be {GRPC_PORT}, {METRICS_PORT} or {CONTROL_PORT}: shards use them",
            lambda value, _: value["tcp"] not in {GRPC_PORT, METRICS_PORT, CONTROL_PORT},
            ".tcp",
        ),
    )
    http: int | None = listened(
        "Readings by HTTP, for sensors with source: push; HTTPS with access.tls. Without it, there is no such port."
    )
    tcp: int = listened("Text lines over TCP.", default=9001, rules=(IMMUTABLE,))
    tls: int | None = listened("Text lines over TLS; needs access.tls. Without it, text devices have no such port.")
    grpc: int = listened("gRPC, Ingest.Stream.", default=GRPC_PORT, rules=(IMMUTABLE, NOT_METRICS))


class Batching(Resource):
    """The grouping of packets that are analysed together."""

    window: Duration = described(
        "Interval between analyses.", default=Duration(50 * MILLISECOND), between=(MILLISECOND, SECOND)
    )
    max_items: int = described(
        "Number of waiting packets that triggers an analysis early.", default=2000, between=(1, 100_000)
    )


class Queue(Resource):
    """The queue for packets that arrive faster than they can be analysed."""

    capacity: int = described("Waiting packets per device.", default=10_000, between=(10, 1_000_000))
    overflow: Literal["compact", "dropOldest"] = described(
        "compact replaces excess packets by their minimum, maximum, last value, slope and count: a spike still counts.",
        default="compact",
    )


class Thermal(Heat):
    """Thresholds for heat in thermal frames. Informed by EN 54-5; no compliance is claimed."""

    emissivity: float = described(
        "Emissivity of the surfaces the sensors are aimed at.", default=0.95, between=(0.1, 1)
    )


class GasCurve(Resource):
    """A line of the sensor's sensitivity chart: ppm = scale (Rs/R0)^exponent."""

    # The CO2 line of the MQ-135's datasheet, as fitted by G. Krocker.
    scale: float = described(
        "Concentration at which Rs equals R0, in ppm.", default=116.6020682, between=(0.001, 1_000_000)
    )
    exponent: float = described("Slope of the curve on logarithmic axes.", default=-2.769034857, between=(-10, -0.1))


class Gas(Resource):
    """Thresholds for gas from an MQ-135 on ADC3."""

    RULES = (ordered("preAlarmPpm", "alarmPpm"),)
    # 5,000 ppm CO2 is the usual occupational limit. Common boards load the sensor with 10 kΩ. With 76.63 kΩ the curve
    # meets the 400 ppm of outdoor air for the specimen that it was fitted to.
    pre_alarm_ppm: float = described("ppm CO2-equivalent.", default=2000.0, between=(1, 1_000_000))
    alarm_ppm: float = described("ppm CO2-equivalent.", default=5000.0, between=(1, 1_000_000))
    load_kilohm: float = described("Load resistor, in kΩ.", default=10.0, between=(0.1, 1000))
    clean_air_kilohm: float = described(
        "R0 of the curve, in kΩ; `embereye calibrate gas` measures it in clean air.",
        default=76.63,
        between=(0.1, 10_000),
    )
    supply_ratio: float = described(
        "Supply voltage of the sensor, divided by the converter's reference voltage: 1.52 for 5 V and 3.3 V.",
        default=1.0,
        between=(0.1, 10),
    )
    curve: GasCurve = described("Converts resistance to ppm; the default is the curve for CO2.", default=GasCurve)


class SmokePercent(Resource):
    """Thresholds for smoke on the analog channel ADC1."""

    RULES = (ordered("preAlarmPercent", "alarmPercent"),)
    # The known devices idle at 7 % smoke and 32 % flame.
    pre_alarm_percent: float = described("% of the converter's range.", default=15.0, between=(0, 100))
    alarm_percent: float = described("% of the converter's range.", default=25.0, between=(0, 100))


class FlamePercent(Resource):
    """Thresholds for flame on the analog channel ADC2."""

    RULES = (ordered("preAlarmPercent", "alarmPercent"),)
    pre_alarm_percent: float = described("% of the converter's range.", default=55.0, between=(0, 100))
    alarm_percent: float = described("% of the converter's range.", default=75.0, between=(0, 100))
    digital: DigitalFlameOutput = described(
        "The value of the digital output while there is a flame.", default="activeHigh"
    )


class Converter(Resource):
    """The devices' analog-to-digital converters."""

    bits: int = described("Resolution; 10 bits give 0 to 1023.", default=12, between=(8, 16))


class DeviceCommands(Resource):
    """The words sent to text devices."""

    start: str = described("Starts continuous streaming.", default=START, pattern="^[!-~]*$", max_length=32)
    calibration: str = described("Requests the calibration.", default=CALIBRATION, pattern="^[!-~]*$", max_length=32)
    request: str = described("Requests one frame.", default=REQUEST, pattern="^[!-~]*$", max_length=32)


class Telemetry(Resource):
    """Raw readings and frames as Parquet files for queries; see docs/how-to/telemetry.md."""

    archive: bool = described("Store them.", default=False)
    size: Quantity = described(
        "Disk space for the files of one shard; the oldest are deleted beyond it.", default=Quantity("10Gi")
    )
    claim: str = described(
        "A PersistentVolumeClaim, ReadWriteMany, to store them in; if empty, they are lost with the shard's pod.",
        default="",
        pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        hint="is not the name of a PersistentVolumeClaim",
        max_length=253,
    )


class MqttBroker(Resource):
    """The broker that sensors with a source mqtt: publish to."""

    broker: str = described(
        "mqtt://HOST:1883, or mqtts://HOST:8883 with TLS.",
        pattern=r"^mqtts?://[A-Za-z0-9.\[\]:_-]+$",
        hint="is not of the form mqtt://HOST:1883 or mqtts://HOST:8883, without user and password",
        max_length=300,
    )
    credentials_ref: SecretReference | None = described(
        "Secret with username and password, and for TLS perhaps ca.crt.", default=None
    )


class SensorFleetSpec(FleetSpec):
    """Sensors that are watched together."""

    RULES = (
        Rule(
            "!has(self.listen.tls) || (has(self.access) && has(self.access.tls))",
            "needs access.tls, for its certificate",
            lambda value, _: not value["listen"].get("tls") or bool((value.get("access") or {}).get("tls")),
            ".listen.tls",
        ),
        *FleetSpec.RULES,
    )
    sensors: tuple[Sensor, ...] = device_list("sensors")
    sensors_from: tuple[DevicesFrom, ...] = more_devices("sensors")
    mqtt: MqttBroker | None = described("The broker of sensors with a source mqtt:.", default=None)
    deadline: Duration = deadline(5)
    listen: SensorListen = described("The ports that devices connect to.", default=SensorListen)
    batching: Batching = described("The grouping of packets that are analysed together.", default=Batching)
    queue: Queue = described("The queue for packets that arrive faster than they can be analysed.", default=Queue)
    thermal: Thermal = described("Thresholds for heat.", default=Thermal)
    gas: Gas = described("Thresholds for gas.", default=Gas)
    smoke: SmokePercent = described("Thresholds for smoke.", default=SmokePercent)
    flame: FlamePercent = described("Thresholds for flame.", default=FlamePercent)
    detection: SensorDetection = described("A candidate that judges the same data silently.", default=SensorDetection)
    converter: Converter = described("The devices' analog-to-digital converters.", default=Converter)
    commands: DeviceCommands = described("The words sent to text devices.", default=DeviceCommands)
    telemetry: Telemetry = described("Raw readings and frames as Parquet files.", default=Telemetry)
