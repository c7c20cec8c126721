"""What a user declares, and what we answer: SensorFleet and CameraFleet, version embereye.dev/v1alpha1."""
# ruff: noqa: RUF009 (every field is made by `described`, which is dataclasses.field with a schema)

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import yaml

from embereye.process.lifecycle import UserError
from embereye.wire.device.commands import CALIBRATION, REQUEST, START
from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Duration, Manifest, Quantity, Resource, Rule, described, from_manifest, problems, schema_of, with_defaults

GROUP = "embereye.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
GRPC_PORT = 50051  # of every shard's container
METRICS_PORT = 9100  # of every shard's container
MAX_DEVICES = 5000  # declared in a fleet; etcd refuses objects of more than 1.5 MB
MAX_SHARDS = 64

FleetKind = Literal["sensors", "cameras"]
Detector = Literal["motion", "flame", "smoke", "heat", "model"]

MILLISECOND = 1_000_000  # nanoseconds
SECOND = 1_000_000_000  # nanoseconds
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND

ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
ZONE = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
SOURCES = "rtsp, rtsps, rtp, http, https, onvif, push, file"
SOURCE = r"^((rtsp|rtsps|rtp|http|https|onvif|file)://[!-~]+|push(:[!-~]*)?)$"


def _device_id(what: str) -> Any:
    return described(
        f"What the {what} calls itself, unique in the fleet.",
        pattern=ID,
        hint="is not an id: letters, digits, '.', '_', ':' and '-', beginning with a letter or digit",
        max_length=63,
    )


def _zone() -> Any:
    return described(
        "The zone whose alarm it belongs to; sensors and cameras of one namespace share zones by name.",
        pattern=ZONE,
        hint="is not a zone name: letters, digits, '.', '_' and '-'",
        max_length=63,
    )


def _ordered(low: str, high: str) -> Rule:
    return Rule(
        f"self.{low} <= self.{high}",
        f"must not be more than {high}",
        lambda value, _: value[low] <= value[high],
        f".{low}",
    )


DigitalFlameOutput = Literal["activeHigh", "activeLow"]


@dataclass(frozen=True, slots=True)
class SensorCalibration(Resource):
    """How a sensor's raw values are to be read; what is not given is as in the fleet."""

    emissivity: float | None = described("Of what it looks at.", default=None, minimum=0.1, maximum=1)
    converter_bits: int | None = described(
        "Resolution of its analog-to-digital converter.", default=None, minimum=8, maximum=16
    )
    load_kilohm: float | None = described("kΩ; load resistor of its MQ-135.", default=None, minimum=0.1, maximum=1000)
    clean_air_kilohm: float | None = described(
        "kΩ; R0 of its MQ-135. embereye calibrate gas measures it.", default=None, minimum=0.1, maximum=10_000
    )
    supply_ratio: float | None = described(
        "Supply of its MQ-135 over the converter's reference.", default=None, minimum=0.1, maximum=10
    )
    digital_flame: DigitalFlameOutput | None = described(
        "What its digital flame output is while there is a flame.", default=None
    )


@dataclass(frozen=True, slots=True)
class Sensor(Resource):
    """A thermal, gas, smoke or flame sensor."""

    id: str = _device_id("sensor")
    zone: str = _zone()
    location: str = described("Where it is, for people.", default="", max_length=200)
    calibration: SensorCalibration | None = described("What is its own.", default=None)


@dataclass(frozen=True, slots=True)
class Point(Resource):
    """A point of a picture. Not x and y: YAML 1.1 reads a bare y as true."""

    left: float = described("From the left edge, as a share of the width.", minimum=0, maximum=1)
    top: float = described("From the top edge, as a share of the height.", minimum=0, maximum=1)


@dataclass(frozen=True, slots=True)
class PictureMask(Resource):
    """A region that is not looked at."""

    points: tuple[Point, ...] = described("The corners of the polygon, in order.", min_items=3, max_items=32)


@dataclass(frozen=True, slots=True)
class CameraRate(Resource):
    """A camera's own frame rate."""

    RULES = (
        Rule(
            "!has(self.target) || !has(self.min) || self.min <= self.target",
            "must not be more than target",
            lambda value, _: "target" not in value or "min" not in value or value["min"] <= value["target"],
            ".min",
        ),
    )
    target: float | None = described("Frames per second to analyse.", default=None, minimum=1, maximum=60)
    min: float | None = described("Frames per second kept under overload.", default=None, minimum=1, maximum=60)


@dataclass(frozen=True, slots=True)
class SecretReference(Resource):
    """A Secret in the fleet's namespace."""

    name: str = described(
        "Name of the Secret; its keys are username and password.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class PullSecret(Resource):
    """A Secret in the fleet's namespace that images are pulled with."""

    name: str = described(
        "Name of a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.",
        pattern=OBJECT_NAME,
        hint="is not the name of a Secret",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class PixelScale(Resource):
    """°C of a pixel of a radiometric camera: scale times its 16-bit word, plus offset."""

    scale: float = described("°C per step.", default=0.01, minimum=0.0001, maximum=10)
    offset: float = described("°C of the word 0.", default=-273.15, minimum=-1000, maximum=1000)


@dataclass(frozen=True, slots=True)
class Camera(Resource):
    """A camera."""

    id: str = _device_id("camera")
    zone: str = _zone()
    source: str = described(
        f"Where its pictures come from: a URL with the scheme {SOURCES}; push: the camera calls Frames.Push; "
        "rtp://:PORT: the camera sends to that port.",
        pattern=SOURCE,
        hint=f"is not a URL whose scheme is one of {SOURCES}",
        max_length=1024,
    )
    location: str = described("Where it is, for people.", default="", max_length=200)
    fps: CameraRate | None = described("Instead of the fleet's frame rate.", default=None)
    detectors: tuple[Detector, ...] = described(
        "Instead of the fleet's; with a model of your own only where model is among them.",
        default=(),
        unique=True,
        max_items=5,
    )
    masks: tuple[PictureMask, ...] = described("Regions that are not looked at.", default=(), max_items=8)
    credentials_ref: SecretReference | None = described("The camera's user name and password.", default=None)
    radiometry: PixelScale | None = described(
        "What its 16-bit frames hold; where not given: hundredths of a kelvin.", default=None
    )
    view: str = described(
        "Any text, a date for example. Change it after aiming the camera anew: what it shows then is its reference.",
        default="",
        max_length=63,
    )


@dataclass(frozen=True, slots=True)
class ConfigMapKey(Resource):
    """A ConfigMap in the fleet's namespace."""

    name: str = described(
        "Name of the ConfigMap.", pattern=OBJECT_NAME, hint="is not the name of a ConfigMap", max_length=253
    )
    key: str = described(
        "The key that holds the list as YAML or JSON; all keys where it is not given.", default="", max_length=253
    )


@dataclass(frozen=True, slots=True)
class DevicesFrom(Resource):
    """Where more devices are declared."""

    config_map_ref: ConfigMapKey = described("A ConfigMap whose values are lists of devices.")


IMMUTABLE = Rule(
    "self == oldSelf",
    "cannot be changed: devices and firewalls know it; create another fleet instead",
    lambda new, old: bool(new == old),
    transition=True,
)

NOT_METRICS = Rule(
    f"self != {METRICS_PORT}",
    f"must not be {METRICS_PORT}: shards serve their metrics there",
    lambda value, _: bool(value != METRICS_PORT),
)


@dataclass(frozen=True, slots=True)
class SensorListen(Resource):
    """The ports that devices connect to."""

    RULES = (
        Rule("self.tcp != self.grpc", "must not be grpc's", lambda value, _: value["tcp"] != value["grpc"], ".tcp"),
        Rule(
            f"!(self.tcp in [{GRPC_PORT}, {METRICS_PORT}])",
            f"must not be {GRPC_PORT} or {METRICS_PORT}: a shard uses them itself",
            lambda value, _: value["tcp"] not in {GRPC_PORT, METRICS_PORT},
            ".tcp",
        ),
    )
    tcp: int = described("Text lines over TCP.", default=9001, minimum=1024, maximum=65535, rules=(IMMUTABLE,))
    grpc: int = described(
        "gRPC, Ingest.Stream.", default=GRPC_PORT, minimum=1024, maximum=65535, rules=(IMMUTABLE, NOT_METRICS)
    )


@dataclass(frozen=True, slots=True)
class CameraListen(Resource):
    """The port that cameras push to."""

    grpc: int = described(
        "gRPC, Frames.Push.", default=GRPC_PORT, minimum=1024, maximum=65535, rules=(IMMUTABLE, NOT_METRICS)
    )


@dataclass(frozen=True, slots=True)
class Batching(Resource):
    """When what arrived is analysed together."""

    window: Duration = described(
        "Time between ticks.", default=Duration(50 * MILLISECOND), minimum=MILLISECOND, maximum=SECOND
    )
    max_items: int = described("Packets that make a tick early.", default=2000, minimum=1, maximum=100_000)


@dataclass(frozen=True, slots=True)
class Queue(Resource):
    """What happens to a backlog."""

    capacity: int = described("Packets kept per device.", default=10_000, minimum=10, maximum=1_000_000)
    overflow: Literal["compact", "dropOldest"] = described(
        "compact keeps minimum, maximum, last, slope and count of what does not fit, so that a spike still counts.",
        default="compact",
    )


@dataclass(frozen=True, slots=True)
class Heat(Resource):
    """Temperatures that are signs of fire. Informed by EN 54-5; no compliance is claimed."""

    RULES = (_ordered("preAlarmCelsius", "alarmCelsius"), _ordered("alarmCelsius", "criticalCelsius"))
    pre_alarm_celsius: float = described("°C; counts with another kind.", default=47.0, minimum=-40, maximum=300)
    alarm_celsius: float = described("°C.", default=57.0, minimum=-40, maximum=300)
    critical_celsius: float = described("°C; alarms at once.", default=90.0, minimum=-40, maximum=300)
    rise_celsius_per_minute: float = described(
        "°C per minute above which riseAllowanceCelsius is taken off pre-alarm and alarm.",
        default=4.0,
        minimum=0.5,
        maximum=100,
    )
    rise_allowance_celsius: float = described("°C.", default=10.0, minimum=0, maximum=50)


@dataclass(frozen=True, slots=True)
class Thermal(Heat):
    """Heat, from thermal frames. Informed by EN 54-5; no compliance is claimed."""

    emissivity: float = described("Of what is looked at.", default=0.95, minimum=0.1, maximum=1)


@dataclass(frozen=True, slots=True)
class GasCurve(Resource):
    """ppm = scale (Rs/R0)^exponent, a line of the sensor's sensitivity chart."""

    # The CO2 line of the MQ-135's datasheet, as fitted by G. Krocker.
    scale: float = described("ppm where Rs is R0.", default=116.6020682, minimum=0.001, maximum=1_000_000)
    exponent: float = described("Slope of the line.", default=-2.769034857, minimum=-10, maximum=-0.1)


@dataclass(frozen=True, slots=True)
class Gas(Resource):
    """Gas, from an MQ-135 on ADC3."""

    RULES = (_ordered("preAlarmPpm", "alarmPpm"),)
    # 5,000 ppm CO2 is the usual occupational limit. The common boards load the sensor with 10 kΩ; 76.63 kΩ is where the
    # curve meets the 400 ppm of outdoor air for the specimen that it was fitted to.
    pre_alarm_ppm: float = described("ppm CO2-equivalent.", default=2000.0, minimum=1, maximum=1_000_000)
    alarm_ppm: float = described("ppm CO2-equivalent.", default=5000.0, minimum=1, maximum=1_000_000)
    load_kilohm: float = described("kΩ; the load resistor.", default=10.0, minimum=0.1, maximum=1000)
    clean_air_kilohm: float = described(
        "kΩ; R0 of the curve. embereye calibrate gas measures it in clean air.",
        default=76.63,
        minimum=0.1,
        maximum=10_000,
    )
    supply_ratio: float = described(
        "Supply of the sensor over the converter's reference: 1.52 for 5 V at a converter of 3.3 V.",
        default=1.0,
        minimum=0.1,
        maximum=10,
    )
    curve: GasCurve = described("From resistance to ppm; by default CO2's.", default=GasCurve)


@dataclass(frozen=True, slots=True)
class SmokePercent(Resource):
    """Smoke, from the analog channel ADC1."""

    RULES = (_ordered("preAlarmPercent", "alarmPercent"),)
    # The devices known so far rest at 7 % smoke and 32 % flame.
    pre_alarm_percent: float = described("% of the converter's range.", default=15.0, minimum=0, maximum=100)
    alarm_percent: float = described("% of the converter's range.", default=25.0, minimum=0, maximum=100)


@dataclass(frozen=True, slots=True)
class FlamePercent(Resource):
    """Flame, from the analog channel ADC2."""

    RULES = (_ordered("preAlarmPercent", "alarmPercent"),)
    pre_alarm_percent: float = described("% of the converter's range.", default=55.0, minimum=0, maximum=100)
    alarm_percent: float = described("% of the converter's range.", default=75.0, minimum=0, maximum=100)
    digital: DigitalFlameOutput = described("What the digital output is while there is a flame.", default="activeHigh")


@dataclass(frozen=True, slots=True)
class Converter(Resource):
    """The devices' analog-to-digital converters."""

    bits: int = described("Resolution; 10 bits give 0 to 1023.", default=12, minimum=8, maximum=16)


@dataclass(frozen=True, slots=True)
class DeviceCommands(Resource):
    """The bare words sent to text devices."""

    start: str = described("Stream continuously.", default=START, pattern="^[!-~]*$", max_length=32)
    calibration: str = described("Send the calibration.", default=CALIBRATION, pattern="^[!-~]*$", max_length=32)
    request: str = described("Send one frame now.", default=REQUEST, pattern="^[!-~]*$", max_length=32)


@dataclass(frozen=True, slots=True)
class Telemetry(Resource):
    """Raw readings and frames as Parquet files, for people to ask; see docs/telemetry.md."""

    archive: bool = described("Keep them; the image needs the extra embereye[parquet].", default=False)
    size: Quantity = described("Of the files of one shard; the oldest go beyond it.", default=Quantity("10Gi"))
    claim: str = described(
        "Name of a PersistentVolumeClaim, ReadWriteMany, that they are kept in; empty: gone with the shard's pod.",
        default="",
        pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        hint="is not the name of a PersistentVolumeClaim",
        max_length=253,
    )


@dataclass(frozen=True, slots=True)
class ScaleDown(Resource):
    """How shards are taken away."""

    stabilization: Duration = described(
        "The highest recommendation of this window holds.",
        default=Duration(300 * SECOND),
        minimum=SECOND,
        maximum=HOUR,
    )


@dataclass(frozen=True, slots=True)
class Autoscaling(Resource):
    """Who decides how many shards there are."""

    RULES = (_ordered("minShards", "maxShards"),)
    mode: Literal["embedded", "hpa", "keda", "none"] = described(
        "embedded: the operator; hpa, keda: they write spec.shards by embereye_fleet_required_shards; none: you do.",
        default="embedded",
    )
    observe: bool = described("Only decide and tell: with mode embedded nothing is scaled.", default=False)
    min_shards: int = described("Never fewer.", default=1, minimum=1, maximum=MAX_SHARDS)
    max_shards: int = described("Never more.", default=8, minimum=1, maximum=MAX_SHARDS)
    target_utilization: float = described("Of one core per shard.", default=0.7, minimum=0.1, maximum=0.95)
    queue_depth: int = described(
        "Items waiting per shard above which a shard is added.", default=5000, minimum=1, maximum=10_000_000
    )
    catch_up: Duration = described(
        "Time in which a backlog is to be worked off.", default=Duration(MINUTE), minimum=SECOND, maximum=HOUR
    )
    scale_down: ScaleDown = described("How shards are taken away.", default=ScaleDown)


@dataclass(frozen=True, slots=True)
class Toleration(Resource):
    """A toleration, as Kubernetes has it."""

    key: str = described("Taint key; empty: all.", default="", max_length=316)
    operator: Literal["Exists", "Equal"] = described("How the value is compared.", default="Equal")
    value: str = described("Taint value.", default="", max_length=63)
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = described("Empty: all effects.", default="")
    toleration_seconds: int | None = described("How long a NoExecute taint is borne.", default=None, minimum=0)


@dataclass(frozen=True, slots=True)
class TopologySpread(Resource):
    """How the fleet's shards are spread; the label selector is ours."""

    topology_key: str = described("Node label.", max_length=316, min_length=1)
    max_skew: int = described("Largest difference.", default=1, minimum=1, maximum=100)
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = described(
        "What if it cannot be had.", default="ScheduleAnyway"
    )


@dataclass(frozen=True, slots=True)
class Resources(Resource):
    """Resource requests and limits of a shard."""

    requests: Mapping[str, Quantity] = described("For example cpu: 500m, memory: 256Mi.", default=dict, max_items=8)
    limits: Mapping[str, Quantity] = described("For example memory: 1Gi.", default=dict, max_items=8)


@dataclass(frozen=True, slots=True)
class Template(Resource):
    """What goes into every shard's pod."""

    resources: Resources = described("Resource requests and limits.", default=Resources)
    node_selector: Mapping[str, str] = described("Node labels.", default=dict, max_items=32, item=Limit(max_length=63))
    tolerations: tuple[Toleration, ...] = described("Taints that are borne.", default=(), max_items=32)
    topology_spread: tuple[TopologySpread, ...] = described(
        "Where not given: over nodes, as far as it can be had.", default=(), max_items=8
    )
    priority_class_name: str = described("Priority class of the pods.", default="", max_length=253)
    image_pull_secrets: tuple[PullSecret, ...] = described(
        "Secrets with which the kubelet pulls the shards' image from its registry.", default=(), max_items=8
    )


@dataclass(frozen=True, slots=True)
class Alerts(Resource):
    """Alerts about this fleet. The rules are the release's: see its values under monitoring.rules."""

    enabled: bool = described("Whether this fleet's alert rules fire.", default=True)
    labels: Mapping[str, str] = described(
        "Not used: alerts carry namespace, kind and fleet to route by; monitoring.rules.labels adds others.",
        default=dict,
        max_items=32,
        item=Limit(max_length=200),
    )
    runbook_url: str = described(
        "Not used: the release's value monitoring.rules.runbookUrl says where runbooks are.",
        default="",
        pattern="^(https?://[!-~]+)?$",
        hint="is not a URL",
        max_length=1024,
    )


def _shards() -> Any:
    return described(
        "How many shards share the devices. kubectl scale, HPA and KEDA write it.",
        default=1,
        minimum=1,
        maximum=MAX_SHARDS,
    )


def _deadline(seconds: int) -> Any:
    return described(
        "Time without analysed data after which a device is dark.",
        default=Duration(seconds * SECOND),
        minimum=100 * MILLISECOND,
        maximum=HOUR,
    )


def _devices(what: str) -> Any:
    return described(f"The fleet's {what}.", default=(), list_key="id", max_items=MAX_DEVICES)


def _devices_from(what: str) -> Any:
    return described(f"More {what}, from ConfigMaps in the fleet's namespace.", default=(), max_items=32)


@dataclass(frozen=True, slots=True)
class SensorFleetSpec(Resource):
    """Sensors that are watched together."""

    sensors: tuple[Sensor, ...] = _devices("sensors")
    sensors_from: tuple[DevicesFrom, ...] = _devices_from("sensors")
    deadline: Duration = _deadline(5)
    listen: SensorListen = described("The ports that devices connect to.", default=SensorListen)
    batching: Batching = described("When what arrived is analysed together.", default=Batching)
    queue: Queue = described("What happens to a backlog.", default=Queue)
    thermal: Thermal = described("Thresholds for heat.", default=Thermal)
    gas: Gas = described("Thresholds for gas.", default=Gas)
    smoke: SmokePercent = described("Thresholds for smoke.", default=SmokePercent)
    flame: FlamePercent = described("Thresholds for flame.", default=FlamePercent)
    converter: Converter = described("The devices' analog-to-digital converters.", default=Converter)
    commands: DeviceCommands = described("The bare words sent to text devices.", default=DeviceCommands)
    telemetry: Telemetry = described("Raw readings and frames as Parquet files.", default=Telemetry)
    shards: int = _shards()
    autoscaling: Autoscaling = described("Who decides how many shards there are.", default=Autoscaling)
    template: Template = described("What goes into every shard's pod.", default=Template)
    alerts: Alerts = described("Alert rules for Prometheus.", default=Alerts)
    paused: bool = described("Leave everything as it is.", default=False)


@dataclass(frozen=True, slots=True)
class FleetRate(Resource):
    """Frame rates."""

    RULES = (_ordered("min", "target"),)
    target: float = described("Frames per second to analyse.", default=15.0, minimum=1, maximum=60)
    min: float = described("Frames per second kept under overload.", default=5.0, minimum=1, maximum=60)


@dataclass(frozen=True, slots=True)
class ScoreThreshold(Resource):
    """A detector's threshold."""

    # 0.5 are even odds; real fires score 0.7 to 0.99.
    threshold: float = described("Score from 0 to 1 that is reported as an alarm.", default=0.5, minimum=0, maximum=1)


@dataclass(frozen=True, slots=True)
class ModelInput(Resource):
    """How a picture becomes the model's input: per channel (pixel x scale - mean) / std, pixels 0 to 255."""

    width: int = described("Pixels.", default=640, minimum=16, maximum=2048)
    height: int = described("Pixels.", default=640, minimum=16, maximum=2048)
    fit: Literal["letterbox", "stretch"] = described(
        "letterbox keeps the picture's proportions, with grey bars.", default="letterbox"
    )
    color: Literal["RGB", "BGR"] = described("Order of the channels.", default="RGB")
    scale: float = described("0.00392157 makes 0 to 1.", default=0.00392157, minimum=0.0001, maximum=1000)
    mean: tuple[float, ...] = described("Per channel, in their order.", default=(), min_items=3, max_items=3)
    std: tuple[float, ...] = described(
        "Per channel, in their order.", default=(), min_items=3, max_items=3, item=Limit(minimum=0.0001)
    )


@dataclass(frozen=True, slots=True)
class ModelClass(Resource):
    """A class of the model's that is a sign of fire; the others are not listed."""

    index: int = described("Number of the class, from 0.", minimum=0, maximum=9999)
    kind: Literal["flame", "smoke"] = described("What it is a sign of.")
    threshold: float = described("Score from which on it counts.", default=0.5, minimum=0.01, maximum=1)


@dataclass(frozen=True, slots=True)
class VolumeFile(Resource):
    """A file in a PersistentVolumeClaim of the fleet's namespace, mounted read-only in every shard."""

    claim_name: str = described(
        "Name of the claim.", pattern=OBJECT_NAME, hint="is not the name of a claim", max_length=253
    )
    path: str = described(
        "Of the file in the volume.",
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*$",
        hint="is not a path inside the volume, such as models/fire.onnx",
        max_length=1024,
    )


@dataclass(frozen=True, slots=True)
class MapFile(Resource):
    """A file in a ConfigMap of the fleet's namespace (binaryData, at most 1 MiB), mounted in every shard."""

    name: str = described(
        "Name of the ConfigMap.", pattern=OBJECT_NAME, hint="is not the name of a ConfigMap", max_length=253
    )
    key: str = described(
        "The key that holds the file.", pattern=r"^[-._A-Za-z0-9]+$", hint="is not a key of a ConfigMap", max_length=253
    )


MODEL_PLACES = ("path", "configMapRef", "volumeRef")


@dataclass(frozen=True, slots=True)
class DetectionModel(Resource):
    """An ONNX model of your own, besides the built-in detectors."""

    RULES = (
        Rule(
            "[has(self.path), has(self.configMapRef), has(self.volumeRef)].filter(given, given).size() == 1",
            f"needs exactly one of {', '.join(MODEL_PLACES)}",
            lambda value, _: sum(name in value for name in MODEL_PLACES) == 1,
        ),
    )
    decoder: Literal["yolov5", "yolov8", "classification"] = described("What its output means; see docs/models.md.")
    classes: tuple[ModelClass, ...] = described("Its classes that are signs of fire.", min_items=1, max_items=32)
    path: str | None = described(
        "Of the file, where the shard sees it: in its image, or on this machine.",
        default=None,
        min_length=1,
        max_length=1024,
    )
    config_map_ref: MapFile | None = described("The file in a ConfigMap.", default=None)
    volume_ref: VolumeFile | None = described("The file in a PersistentVolumeClaim.", default=None)
    activation: Literal["none", "sigmoid", "softmax"] = described(
        "What its scores still need to be 0 to 1.", default="none"
    )
    input: ModelInput = described("How a picture becomes its input.", default=ModelInput)
    overlap: float = described(
        "Two boxes of a class that share more of their union are one thing.", default=0.45, minimum=0.05, maximum=0.95
    )
    runtime: Literal["opencv", "onnxruntime"] = described(
        "onnxruntime is often faster; the image needs the extra embereye[onnx].", default="opencv"
    )
    every: Duration = described(
        "Between two looks at a camera in which something moves or is suspected.",
        default=Duration(SECOND),
        minimum=50 * MILLISECOND,
        maximum=MINUTE,
    )
    idle: Duration = described(
        "Between two looks at a camera in which nothing does.",
        default=Duration(10 * SECOND),
        minimum=50 * MILLISECOND,
        maximum=HOUR,
    )
    budget: Duration = described(
        "That one look may take; a slower model degrades its cameras.",
        default=Duration(SECOND),
        minimum=MILLISECOND,
        maximum=MINUTE,
    )
    alarm_after: Duration = described(
        "That a sign must last to be an alarm.",
        default=Duration(4 * SECOND),
        minimum=100 * MILLISECOND,
        maximum=10 * MINUTE,
    )


@dataclass(frozen=True, slots=True)
class Detection(Resource):
    """What is looked for in pictures."""

    detectors: tuple[Detector, ...] = described(
        "Which built-in detectors run; a model runs wherever it is declared.",
        default=("motion", "flame", "smoke"),
        unique=True,
        min_items=1,
        max_items=5,
    )
    model: DetectionModel | None = described("An ONNX model of your own.", default=None)
    flame: ScoreThreshold = described("Flame.", default=ScoreThreshold)
    smoke: ScoreThreshold = described("Smoke.", default=ScoreThreshold)
    heat: Heat = described("Heat, of cameras that send temperatures.", default=Heat)


@dataclass(frozen=True, slots=True)
class Evidence(Resource):
    """Pictures kept around an alarm."""

    before: Duration = described(
        "Before the alarm.", default=Duration(5 * SECOND), minimum=MILLISECOND, maximum=2 * MINUTE
    )
    after: Duration = described(
        "After the alarm.", default=Duration(10 * SECOND), minimum=MILLISECOND, maximum=10 * MINUTE
    )
    retention: Duration = described("How long they are kept.", default=Duration(7 * DAY), long=True)


@dataclass(frozen=True, slots=True)
class CameraFleetSpec(Resource):
    """Cameras that are watched together."""

    cameras: tuple[Camera, ...] = _devices("cameras")
    cameras_from: tuple[DevicesFrom, ...] = _devices_from("cameras")
    deadline: Duration = _deadline(2)
    listen: CameraListen = described("The port that cameras push to.", default=CameraListen)
    fps: FleetRate = described("Frame rates, where a camera has none of its own.", default=FleetRate)
    detection: Detection = described("What is looked for in pictures.", default=Detection)
    evidence: Evidence = described("Pictures kept around an alarm.", default=Evidence)
    shards: int = _shards()
    autoscaling: Autoscaling = described("Who decides how many shards there are.", default=Autoscaling)
    template: Template = described("What goes into every shard's pod.", default=Template)
    alerts: Alerts = described("Alert rules for Prometheus.", default=Alerts)
    paused: bool = described("Leave everything as it is.", default=False)


# --- status ---------------------------------------------------------------------------------------------------------

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_DARK = 20


@dataclass(frozen=True, slots=True)
class Condition(Resource):
    """The answer to one question about the fleet."""

    type: str = described("Which question.", max_length=63)
    status: ConditionStatus = described("The answer.")
    reason: str = described("Why, in one word.", default="", max_length=63)
    message: str = described("Why, in a sentence.", default="", max_length=4096)
    last_transition_time: str = described("When status last changed.", default="", format="date-time")
    observed_generation: int = described("Of the spec that was judged.", default=0, minimum=0)


@dataclass(frozen=True, slots=True)
class DarkDevice(Resource):
    """A declared device that is not covered."""

    id: str = described("The device.")
    zone: str = described("Its zone.", default="")
    reason: str = described("Why it is dark.", default="")


@dataclass(frozen=True, slots=True)
class DeviceSummary(Resource):
    """How many devices are watched."""

    declared: int = described("Devices in the fleet.", default=0)
    covered: int = described("Heard, analysed and able to see, within the deadline.", default=0)
    summary: str = described("covered/declared.", default="")
    dark: tuple[DarkDevice, ...] = described("The others, the first 20.", default=(), max_items=MAX_DARK)


@dataclass(frozen=True, slots=True)
class LoadSummary(Resource):
    """Measured by the shards, rounded."""

    arrival_rate: float = described("Items per second.", default=0.0)
    utilization: float = described("Of one core, mean over the shards.", default=0.0)
    queue_depth: int = described("Items waiting.", default=0)
    oldest_age: float = described("Seconds that the oldest item has waited.", default=0.0)
    cost: float = described("CPU seconds per item.", default=0.0)
    lead: float = described("Seconds until a new shard is ready.", default=0.0)


@dataclass(frozen=True, slots=True)
class LedgerSummary(Resource):
    """What became of everything its devices ever offered: offered = analysed + shed + duplicate + rejected."""

    time: str = described(
        "When it was so. It is written with other changes, when it has doubled, and when more was lost.",
        format="date-time",
    )
    offered: int = described("Packets or frames.", default=0)
    analysed: int = described("Of them, looked at.", default=0)
    shed: int = described("Of them, given up under overload.", default=0)
    duplicate: int = described("Of them, sent again though they had been taken.", default=0)
    rejected: int = described("Of them, not understood, or from an older sender.", default=0)


@dataclass(frozen=True, slots=True)
class LastScale(Resource):
    """The latest change of the number of shards."""

    time: str = described("When.", format="date-time")
    from_: int = described("Shards before.", default=0)
    to: int = described("Shards after.", default=0)
    reason: str = described("Why.", default="", max_length=1024)
    inputs: Mapping[str, float] = described("What it was decided on.", default=dict)


@dataclass(frozen=True, slots=True)
class HoldingOperator(Resource):
    """The operator that looks after a fleet; others leave it alone."""

    name: str = described("Its Lease: namespace/name.", max_length=320)
    image: str = described("What its shards run.", default="", max_length=512)


@dataclass(frozen=True, slots=True)
class FleetStatus(Resource):
    """What the operator says about a fleet."""

    operator: HoldingOperator | None = described("Who looks after it; others leave it alone.", default=None)
    observed_generation: int = described("Of the spec this status is about.", default=0)
    shards: int = described("Shards that exist.", default=0)
    ready_shards: int = described("Shards that work under the current placement.", default=0)
    selector: str = described("Label selector of the shards' pods, for HPA.", default="")
    devices: DeviceSummary = described("How many devices are watched.", default=DeviceSummary)
    load: LoadSummary | None = described("Measured by the shards.", default=None)
    ledger: LedgerSummary | None = described("What became of everything its devices ever offered.", default=None)
    required_shards: int = described("What the scaling law asks for.", default=0)
    last_scale: LastScale | None = described("The latest change of the number of shards.", default=None)
    placement_epoch: int = described("Grows with every change of placement or settings.", default=0)
    conditions: tuple[Condition, ...] = described("One per question.", default=(), list_key="type", max_items=16)

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


# --- fleets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FleetType:
    """Names of a fleet resource."""

    resource: str  # "SensorFleet"
    kind: FleetKind  # also the plural's beginning and part of its children's names
    plural: str
    short: str
    spec: type[SensorFleetSpec] | type[CameraFleetSpec]
    component: str  # what `embereye shard …` is given


SENSORS = FleetType("SensorFleet", "sensors", "sensorfleets", "sf", SensorFleetSpec, "sensor")
CAMERAS = FleetType("CameraFleet", "cameras", "camerafleets", "cf", CameraFleetSpec, "camera")
FLEET_TYPES: Mapping[str, FleetType] = {fleet.resource: fleet for fleet in (SENSORS, CAMERAS)}

NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_NAME = 40  # its children's names append up to 18 characters and must fit in a DNS label
ROOT_RULES = (
    Rule(
        f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{NAME_PATTERN}')",
        f"metadata.name must be at most {MAX_NAME} lower-case letters, digits and '-', beginning with a letter",
        lambda value, _: _valid_name(value["metadata"]["name"]),
    ),
)


def _valid_name(name: str) -> bool:
    return len(name) <= MAX_NAME and bool(re.fullmatch(NAME_PATTERN.strip("^$"), name))


class FleetError(UserError):
    """A manifest that is not a fleet; `problems` has a sentence for each reason."""

    def __init__(self, what: str, problems: list[str]) -> None:
        super().__init__(f"{what}: {'; '.join(problems)}")
        self.problems = problems


@dataclass(frozen=True, slots=True)
class FleetReference:
    """Which fleet: all that is known of one that cannot be parsed."""

    type: FleetType
    namespace: str
    name: str
    uid: str

    @property
    def kind(self) -> FleetKind:
        """`sensors` or `cameras`."""
        return self.type.kind

    @property
    def key(self) -> str:
        """`namespace/kind/name`, the `fleet` of the wire contract."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet as it is declared."""

    type: FleetType
    namespace: str
    name: str
    uid: str
    generation: int
    spec: SensorFleetSpec | CameraFleetSpec
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    manifest: Manifest = field(repr=False)  # as it was read, with defaults

    @property
    def kind(self) -> FleetKind:
        """`sensors` or `cameras`."""
        return self.type.kind

    @property
    def key(self) -> str:
        """`namespace/kind/name`, the `fleet` of the wire contract."""
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def devices(self) -> tuple[Sensor, ...] | tuple[Camera, ...]:
        """The devices that the manifest itself declares."""
        return self.spec.sensors if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras

    @property
    def devices_from(self) -> tuple[DevicesFrom, ...]:
        """Where more devices are declared."""
        return self.spec.sensors_from if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras_from

    @property
    def status(self) -> Manifest:
        """The status in the manifest, as it was read."""
        return dict(self.manifest.get("status") or {})


def parse_fleet(manifest: Mapping[str, Any], *, old: Mapping[str, Any] | None = None, strict: bool = True) -> Fleet:
    """The fleet that `manifest` declares; FleetError says why it is none.

    `old` is the manifest in force, for what may not change. `strict` refuses unknown fields: right for what a person
    wrote, wrong for what an API server with a newer schema sends.
    """
    resource = str(manifest.get("kind"))
    if resource not in FLEET_TYPES or manifest.get("apiVersion") != API_VERSION:
        what = f"{manifest.get('apiVersion')} {resource}"
        raise FleetError("manifest", [f"kind: {what} is not {API_VERSION} {' or '.join(FLEET_TYPES)}"])
    fleet_type = FLEET_TYPES[resource]
    metadata = manifest.get("metadata") or {}
    name = str(metadata.get("name") or "")
    if not name:
        raise FleetError(resource, ["metadata.name: is required"])
    namespace = str(metadata.get("namespace") or "default")
    schema = schema_of(cast("type", fleet_type.spec))
    if manifest.get("spec") is None:
        raise FleetError(f"{resource} {namespace}/{name}", ["spec: is required"])
    spec = with_defaults(schema, manifest["spec"])
    before = with_defaults(schema, old.get("spec") or {}) if old else None
    found = problems(fleet_type.spec, spec, before, strict=strict)
    found += [rule.message for rule in ROOT_RULES if not rule.holds(manifest, None)]
    if strict and (unknown := sorted(set(manifest) - {"apiVersion", "kind", "metadata", "spec", "status"})):
        found.append(f"{unknown[0]}: there is no such field; known here: apiVersion, kind, metadata, spec, status")
    if found:
        raise FleetError(f"{resource} {namespace}/{name}", found)
    return Fleet(
        type=fleet_type,
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 1),
        spec=from_manifest(fleet_type.spec, spec),
        annotations={str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()},
        labels={str(key): str(value) for key, value in (metadata.get("labels") or {}).items()},
        manifest={**manifest, "spec": spec},
    )


@dataclass(frozen=True, slots=True)
class DeviceList(Resource):
    """What a ConfigMap's key holds, wrapped so that it is validated as a fleet's own list is."""

    sensors: tuple[Sensor, ...] = _devices("sensors")
    cameras: tuple[Camera, ...] = _devices("cameras")


def parse_devices(kind: FleetKind, text: str, where: str) -> tuple[Sensor, ...] | tuple[Camera, ...]:
    """The devices in a ConfigMap's value (a YAML or JSON list); FleetError names `where` and what is wrong."""
    try:
        # The safe loader in C: a list of thousands of devices is read while other fleets wait.
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise FleetError(where, [f"is neither YAML nor JSON: {str(error).splitlines()[0]}"]) from error
    value = with_defaults(schema_of(DeviceList), {kind: [] if document is None else document})
    if found := problems(DeviceList, value, path=""):
        raise FleetError(where, [sentence.removeprefix(".") for sentence in found])
    parsed: DeviceList = from_manifest(DeviceList, value)
    return parsed.sensors if kind == "sensors" else parsed.cameras
