"""The fields of a CameraFleet."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from embereye.units import DAY, MILLISECOND, MINUTE, SECOND, listed
from embereye_operator.api.candidates import CameraCandidate
from embereye_operator.api.models import DetectionModel
from embereye_operator.api.schema import Duration, Resource, Rule, described
from embereye_operator.api.shared import (
    GRPC_PORT,
    IMMUTABLE,
    NOT_METRICS,
    DevicesFrom,
    FleetSpec,
    Heat,
    MeasuringArea,
    Point,
    SecretReference,
    corners,
    deadline,
    device_id,
    device_list,
    listened,
    measuring_areas,
    more_devices,
    ordered,
    zone_name,
)

Detector = Literal["motion", "flame", "smoke", "heat", "model"]
SOURCES = "rtsp, rtsps, rtp, http, https, onvif, push, file"
DEVICE = "/dev/videoN"
STREAM = r"^((rtsp|rtsps|http|https|onvif)://[!-~]+|[^:/\x00-\x1f]{1,64})$"
RECORDED = r"^((rtsp|rtsps|onvif)://[!-~]+|[^:/\x00-\x1f]{1,64})$"
SOURCE = r"^((rtsp|rtsps|rtp|http|https|onvif|file)://[!-~]+|push(:[!-~]*)?|/dev/video[0-9]{1,3})$"


_PASSWORD = re.compile(r"://[^/?#@]+:[^/?#@]+@")


class PictureMask(Resource):
    """A region that is not analysed."""

    points: tuple[Point, ...] = corners()


class CameraRate(Resource):
    """A camera's frame rate, instead of the fleet's."""

    RULES = (
        Rule(
            "!has(self.target) || !has(self.min) || self.min <= self.target",
            "must not be more than target",
            lambda value, _: "target" not in value or "min" not in value or value["min"] <= value["target"],
            ".min",
        ),
    )
    target: float | None = described("Frames per second to analyse.", default=None, between=(1, 60))
    min: float | None = described("Frames per second guaranteed under overload.", default=None, between=(1, 60))


class CameraStreams(Resource):
    """The use of a camera's streams. An ONVIF profile is given by its name or its token."""

    detect: str = described(
        "The analysed stream, instead of source: a URL, or a profile of a source onvif://HOST. Without it, EmberEye "
        "chooses a profile.",
        default="",
        pattern=STREAM,
        hint="is neither a URL whose scheme is one of rtsp, rtsps, http, https, onvif nor the name of an ONVIF profile",
        max_length=1024,
    )
    record: str = described(
        "The full-size H.264 or H.265 stream for clips: a URL, or a profile of a source onvif://HOST. Without it, "
        "clips come from the analysed stream.",
        default="",
        pattern=RECORDED,
        hint="is neither a URL whose scheme is one of rtsp, rtsps, onvif nor the name of an ONVIF profile",
        max_length=1024,
    )


def _is_profile_allowed(camera: Mapping[str, Any]) -> bool:
    streams = camera.get("streams") or {}
    profiles = [value for value in streams.values() if "://" not in value]
    return not profiles or camera["source"].startswith("onvif://")


def _source_advice(value: Any) -> str:
    """Return the URL that an address without a scheme probably means; empty if it is no address."""
    text = str(value).rpartition("@")[2]
    if not re.fullmatch(r"([\w-]+\.)+[\w-]+(:[0-9]+)?(/[!-~]*)?", text):
        return ""
    return f". Did you mean rtsp://{text.partition('/')[0]}/…?"


def _reference_advice(value: Any) -> str:
    """Return the reference for a plain name; empty if `value` is no name."""
    return f": is a name: write {{name: {value}}}" if isinstance(value, str) else ""


class PixelScale(Resource):
    """The temperature of a radiometric camera's pixel: scale times its 16-bit word, plus offset, in °C."""

    scale: float = described("°C per count.", default=0.01, between=(0.0001, 10))
    offset: float = described("°C at a count of 0.", default=-273.15, between=(-1000, 1000))


class Camera(Resource):
    """A camera."""

    RULES = (
        Rule(
            "!has(self.streams) || self.source.startsWith('onvif://') || "
            "(!has(self.streams.detect) || self.streams.detect.contains('://')) && "
            "(!has(self.streams.record) || self.streams.record.contains('://'))",
            "names a profile, which only a source onvif://HOST has: use a URL",
            lambda value, _: _is_profile_allowed(value),
            ".streams",
        ),
    )
    id: str = device_id("camera")
    zone: str = zone_name()
    source: str = described(
        f"The source of its pictures: a URL with the scheme {SOURCES}; push: the camera calls Frames.Push; "
        f"rtp://:PORT: the camera sends to that port; {DEVICE}: a camera of the shard's machine.",
        pattern=SOURCE,
        hint=f"is neither a URL whose scheme is one of {SOURCES} nor {DEVICE}",
        advice=_source_advice,
        max_length=1024,
    )
    streams: CameraStreams | None = described("Separate streams for detection and for clips.", default=None)
    location: str = described("Where it is, in words for people.", default="", max_length=200)
    fps: CameraRate | None = described("Overrides the fleet's frame rate.", default=None)
    detectors: tuple[Detector, ...] = described(
        "Overrides the fleet's detectors. Your model runs only if model is among them.",
        default=(),
        unique=True,
        max_items=5,
    )
    masks: tuple[PictureMask, ...] = described("Regions that are ignored.", default=(), max_items=8)
    privacy_masks: tuple[PictureMask, ...] = described(
        "Regions that are ignored, and black in everything that is shown, stored or sent. The camera is shown as "
        "pictures, two a second, instead of a video.",
        default=(),
        max_items=8,
    )
    areas: tuple[MeasuringArea, ...] = measuring_areas()
    credentials_ref: SecretReference | None = described(
        "The camera's user name and password.", default=None, advice=_reference_advice
    )
    radiometry: PixelScale | None = described(
        "The unit of its 16-bit frames; by default hundredths of a kelvin.", default=None
    )
    view: str = described(
        "Any text, for example a date. Change it after moving the camera, so that its new view becomes the reference.",
        default="",
        max_length=63,
    )


class CameraListen(Resource):
    """The port that cameras push to."""

    grpc: int = listened("gRPC, Frames.Push.", default=GRPC_PORT, rules=(IMMUTABLE, NOT_METRICS))


class FleetRate(Resource):
    """Frame rates."""

    RULES = (ordered("min", "target"),)
    target: float = described("Frames per second to analyse.", default=15.0, between=(1, 60))
    min: float = described("Frames per second guaranteed under overload.", default=5.0, between=(1, 60))


class ScoreThreshold(Resource):
    """A detector's threshold."""

    # 0.5 are even odds; real fires score 0.7 to 0.99.
    threshold: float = described("Score from 0 to 1 at which an alarm is reported.", default=0.5, between=(0, 1))


class SmokeDetection(ScoreThreshold):
    """The detector for smoke."""

    scene: Literal["room", "yard", "landscape"] = described(
        "What the cameras watch. In a yard smoke must last longer, and in a landscape longer still, "
        "because steam, dust, clouds and haze resemble it there.",
        default="room",
    )


class Detection(Resource):
    """The detectors for pictures, and their thresholds."""

    detectors: tuple[Detector, ...] = described(
        "The built-in detectors to run; a declared model always runs.",
        default=("motion", "flame", "smoke"),
        unique=True,
        min_items=1,
        max_items=5,
    )
    model: DetectionModel | None = described("An ONNX model of your own.", default=None)
    flame: ScoreThreshold = described("Flame.", default=ScoreThreshold)
    smoke: SmokeDetection = described("Smoke.", default=SmokeDetection)
    heat: Heat = described("Heat, for cameras that send temperatures.", default=Heat)
    candidate: CameraCandidate | None = described(
        "Changed thresholds, or another model, that judge the same pictures silently; every difference is recorded.",
        default=None,
    )


class Decoding(Resource):
    """The decoding of H.264 and H.265."""

    hardware: Literal["none", "vaapi", "nvdec"] = described(
        "The node's hardware decoder. If it is unavailable, software decodes, and the shard is degraded.",
        default="none",
    )
    while_calm: Literal["all", "keyFrames"] = described(
        "The pictures to decode while nothing happens in front of a camera. With keyFrames, those between two key "
        "frames stay compressed, and are decoded later if a key frame shows a change. That needs a key frame every "
        "2 s or more often, and as often as fps.min. Of JPEG, two pictures a second are decoded, or fps.min.",
        default="all",
    )


class Evidence(Resource):
    """The recordings around an alarm."""

    before: Duration = described(
        "Length of the recording before the alarm.", default=Duration(5 * SECOND), between=(MILLISECOND, 2 * MINUTE)
    )
    after: Duration = described(
        "Length of the recording after the alarm.", default=Duration(10 * SECOND), between=(MILLISECOND, 10 * MINUTE)
    )
    retention: Duration = described("How long recordings are stored.", default=Duration(7 * DAY), long=True)


def _addresses(camera: Camera) -> tuple[str, ...]:
    return (camera.source, camera.streams.detect, camera.streams.record) if camera.streams else (camera.source,)


def with_passwords(cameras: Iterable[Camera]) -> list[str]:
    """The ids of the cameras whose addresses contain a password."""
    return [camera.id for camera in cameras if any(map(_PASSWORD.search, _addresses(camera)))]


def exposed_passwords(cameras: Iterable[Camera]) -> str:
    """Name the cameras whose addresses contain a password, in a sentence with the remedy; '' if there are none."""
    if not (ids := with_passwords(cameras)):
        return ""
    return (
        f"the source of {listed(ids)} contains a password, which everyone who can read the fleet sees: "
        "store it by `embereye credentials set NAME`, and name it in credentialsRef"
    )


class CameraFleetSpec(FleetSpec):
    """Cameras that are watched together."""

    cameras: tuple[Camera, ...] = device_list("cameras")
    cameras_from: tuple[DevicesFrom, ...] = more_devices("cameras")
    deadline: Duration = deadline(2)
    listen: CameraListen = described("The port that cameras push to.", default=CameraListen)
    fps: FleetRate = described("Frame rates of cameras that set none.", default=FleetRate)
    detection: Detection = described("The detectors for pictures, and their thresholds.", default=Detection)
    decoding: Decoding = described("The decoding of H.264 and H.265.", default=Decoding)
    evidence: Evidence = described("The recordings around an alarm.", default=Evidence)
