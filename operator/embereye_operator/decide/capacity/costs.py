"""What readings, thermal frames, pictures and devices cost, as it was measured, where and when."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

MEGAPIXEL = 1e6


@dataclass(frozen=True)
class Curve:
    """Cores that one shard needs for so many items a second: straight lines between measurements, from nothing on.

    One item costs less the more there are, since they are handled together; a single figure would be wrong by half.
    """

    points: tuple[tuple[float, float], ...]  # (items/s, cores), ascending

    def cores(self, rate: float) -> float:
        """Cores at `rate` items/s; beyond the last measurement one item costs what it cost there."""
        line = [(0.0, 0.0), *self.points]
        for (x0, y0), (x1, y1) in pairwise(line):
            if rate <= x1:
                return y0 + (y1 - y0) * (rate - x0) / (x1 - x0)
        most, cores = line[-1]
        return cores * rate / most


@dataclass(frozen=True)
class PictureCost:
    """What pictures of one codec take, by their size."""

    curve: Curve  # pictures/s of `pixels` each
    pixels: int
    per_megapixel: float  # CPU seconds that a picture takes more with each million pixels
    bits_per_pixel: float  # on the network, of each picture

    def cores(self, rate: float, pixels: int) -> float:
        """Cores of one shard for `rate` pictures/s of `pixels`."""
        more = rate * self.per_megapixel * (pixels - self.pixels) / MEGAPIXEL
        return max(self.curve.cores(rate) + more, 0.0)

    def size(self, pixels: int) -> float:
        """Bytes of a picture of so many pixels."""
        return self.bits_per_pixel * pixels / 8


@dataclass(frozen=True)
class Costs:
    """All that a plan is calculated from."""

    measured: str  # when, on which machine
    readings: Curve  # by the text protocol
    frames: Curve  # thermal frames, calibrated
    reading_bytes: float  # on the network, headers of TCP and IP included
    frame_bytes: float
    pictures: Mapping[str, PictureCost]  # by codec
    sensor_shard_mb: float  # a sensor shard without sensors
    sensor_mb: float  # a sensor with thermal frames
    camera_shard_mb: float  # a camera shard without cameras, decoders included
    camera_mb: Mapping[str, float]  # a camera, by codec
    sensor_shard: float  # cores of a sensor shard to which nothing is sent
    camera_shard: float  # cores of a camera shard likewise
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
    for name in ("readings", "frames"):
        known[name] = _curve(document[name])
    known["pictures"] = {
        codec: PictureCost(**cost | {"curve": _curve(cost["curve"])}) for codec, cost in document["pictures"].items()
    }
    return Costs(**known)


def _curve(document: Mapping[str, Sequence[Sequence[float]]]) -> Curve:
    points = tuple((float(rate), float(cores)) for rate, cores in document["points"])
    if not points or [rate for rate, _ in points] != sorted({rate for rate, _ in points if rate > 0}):
        raise ValueError(f"{points} are no measurements at rising rates")
    return Curve(points)
