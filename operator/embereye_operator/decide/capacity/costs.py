"""What one reading, thermal frame, picture or device costs, as it was measured, where and when."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MEGAPIXEL = 1e6


@dataclass(frozen=True)
class PictureCost:
    """CPU seconds of one picture by its size: a part that each has, and one that grows with its pixels."""

    each: float  # CPU seconds
    per_megapixel: float  # CPU seconds
    bits_per_pixel: float  # on the network, of each picture

    def seconds(self, pixels: int) -> float:
        """CPU seconds of a picture of so many pixels."""
        return self.each + self.per_megapixel * pixels / MEGAPIXEL

    def size(self, pixels: int) -> float:
        """Bytes of a picture of so many pixels."""
        return self.bits_per_pixel * pixels / 8


@dataclass(frozen=True)
class Costs:
    """All that a plan is calculated from."""

    measured: str  # when, on which machine
    reading: float  # CPU seconds, by the text protocol at some readings a second
    frame: float  # CPU seconds of a thermal frame, calibrated
    reading_bytes: float  # on the network, headers of TCP and IP included
    frame_bytes: float
    pictures: Mapping[str, PictureCost]  # by codec
    sensor_shard_mb: float  # a sensor shard without sensors
    sensor_mb: float  # a sensor with thermal frames
    camera_shard_mb: float  # a camera shard without cameras, decoders included
    camera_mb: Mapping[str, float]  # a camera, by codec
    shard_idle: float  # cores of a shard to which nothing is sent
    hub_idle: float  # cores of the hub
    hub_device: float  # cores of the hub for each device that is watched
    hub_mb: float
    hub_device_mb: float

    def to_json(self) -> str:
        """As `parse_costs` reads it."""
        return json.dumps(asdict(self), indent=1) + "\n"


def parse_costs(text: str) -> Costs:
    """What `Costs.to_json` wrote; ValueError says what is wrong with it."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it holds no object")  # noqa: TRY004 -- of what is read, not of an argument
    names = {field.name for field in fields(Costs)}
    if missing := sorted(names - document.keys()):
        raise ValueError(f"{', '.join(missing)} is missing: measure anew with `embereye bench --calibrate`")
    known: dict[str, Any] = {name: document[name] for name in names}
    known["pictures"] = {codec: PictureCost(**cost) for codec, cost in document["pictures"].items()}
    return Costs(**known)
