"""The fields of a camera fleet's own model."""

from typing import Literal

from embereye.units import HOUR, MILLISECOND, MINUTE, SECOND
from embereye_operator.api.schema import Constraint as Limit
from embereye_operator.api.schema import Duration, Resource, Rule, described
from embereye_operator.api.shared import object_name


class ModelInput(Resource):
    """The conversion of a picture into the model's input: per channel (pixel x scale - mean) / std, pixels 0 to 255."""

    width: int = described("Pixels.", default=640, between=(16, 2048))
    height: int = described("Pixels.", default=640, between=(16, 2048))
    fit: Literal["letterbox", "stretch"] = described(
        "letterbox keeps the picture's proportions, with grey bars.", default="letterbox"
    )
    color: Literal["RGB", "BGR"] = described("Order of the channels.", default="RGB")
    scale: float = described(
        "Factor for each value; 0.00392157 maps 255 to 1.", default=0.00392157, between=(0.0001, 1000)
    )
    mean: tuple[float, ...] = described(
        "One value per channel, in channel order.", default=(), min_items=3, max_items=3
    )
    std: tuple[float, ...] = described(
        "One value per channel, in channel order.",
        default=(),
        min_items=3,
        max_items=3,
        item=Limit(between=(0.0001, None)),
    )


class ModelClass(Resource):
    """A class of the model that is a sign of fire; other classes are not listed."""

    index: int = described("Number of the class, from 0.", between=(0, 9999))
    kind: Literal["flame", "smoke"] = described("The kind of fire it is a sign of.")
    threshold: float = described("Lowest score that counts.", default=0.5, between=(0.01, 1))


class VolumeFile(Resource):
    """A file in a PersistentVolumeClaim of the fleet's namespace, mounted read-only in every shard."""

    claim_name: str = object_name("claim", "Name of the claim.")
    path: str = described(
        "Path of the file in the volume.",
        pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*$",
        hint="is not a path inside the volume, such as models/fire.onnx",
        max_length=1024,
    )


class MapFile(Resource):
    """A file in a ConfigMap of the fleet's namespace (binaryData, at most 1 MiB), mounted in every shard."""

    name: str = object_name("ConfigMap", "Name of the ConfigMap.")
    key: str = described(
        "The key that holds the file.", pattern=r"^[-._A-Za-z0-9]+$", hint="is not a key of a ConfigMap", max_length=253
    )


MODEL_PLACES = ("path", "configMapRef", "volumeRef")


class DetectionModel(Resource):
    """An ONNX model of your own, besides the built-in detectors."""

    RULES = (
        Rule(
            "[has(self.path), has(self.configMapRef), has(self.volumeRef)].filter(given, given).size() == 1",
            f"needs exactly one of {', '.join(MODEL_PLACES)}",
            lambda value, _: sum(name in value for name in MODEL_PLACES) == 1,
        ),
    )
    decoder: Literal["yolov5", "yolov8", "classification"] = described(
        "The form of its output; see docs/how-to/models.md."
    )
    classes: tuple[ModelClass, ...] = described("The classes that are signs of fire.", min_items=1, max_items=32)
    path: str | None = described(
        "Path of the file as the shard sees it: in its image, or on this machine.",
        default=None,
        min_length=1,
        max_length=1024,
    )
    config_map_ref: MapFile | None = described("The file in a ConfigMap.", default=None)
    volume_ref: VolumeFile | None = described("The file in a PersistentVolumeClaim.", default=None)
    activation: Literal["none", "sigmoid", "softmax"] = described(
        "The function that maps its scores to 0 to 1.", default="none"
    )
    input: ModelInput = described("The conversion of a picture into its input.", default=ModelInput)
    overlap: float = described(
        "Share of their union (IoU) above which two boxes of a class count as one object.",
        default=0.45,
        between=(0.05, 0.95),
    )
    runtime: Literal["opencv", "onnxruntime"] = described(
        "onnxruntime is often faster, but the image needs the extra embereye[onnx].", default="opencv"
    )
    every: Duration = described(
        "Interval between runs on a camera with motion or a suspected fire.",
        default=Duration(SECOND),
        between=(50 * MILLISECOND, MINUTE),
    )
    idle: Duration = described(
        "Interval between runs on a quiet camera.", default=Duration(10 * SECOND), between=(50 * MILLISECOND, HOUR)
    )
    budget: Duration = described(
        "Time that one run may take; a slower model marks its cameras as degraded.",
        default=Duration(SECOND),
        between=(MILLISECOND, MINUTE),
    )
    alarm_after: Duration = described(
        "How long a sign must last to become an alarm.",
        default=Duration(4 * SECOND),
        between=(100 * MILLISECOND, 10 * MINUTE),
    )
