"""The measured costs of readings, thermal frames, pictures and devices, with the machine and date.

`plan.py` calculates with them. CPU costs are curves of measured points, not single numbers, because items cost less the
more arrive together. A stored file has the numbers with the machine that they were measured on, so a user can measure
another machine and use that file instead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

MEGAPIXEL = 1e6


@dataclass(frozen=True)
class Curve:
    """One shard's CPU use by items per second: straight lines between measurements, starting at zero.

    Items cost less the more arrive, because they are analysed together; one number would be wrong by half.
    """

    points: tuple[tuple[float, float], ...]  # (items/s, cores), ascending

    def cores(self, rate: float) -> float:
        """Return the cores at `rate` items/s; beyond the last measurement the cost per item is constant."""
        line = [(0.0, 0.0), *self.points]
        for (x0, y0), (x1, y1) in pairwise(line):
            if rate <= x1:
                return y0 + (y1 - y0) * (rate - x0) / (x1 - x0)
        most, cores = line[-1]
        return cores * rate / most


@dataclass(frozen=True)
class PictureCost:
    """The cost of one codec's pictures, by their size."""

    curve: Curve  # pictures/s of `pixels` each
    pixels: int
    per_megapixel: float  # CPU seconds per additional million pixels of a picture
    bits_per_pixel: float  # on the network, per pixel of a picture

    def cores(self, rate: float, pixels: int) -> float:
        """Return one shard's cores for `rate` pictures/s of `pixels`."""
        extra = rate * self.per_megapixel * (pixels - self.pixels) / MEGAPIXEL
        return max(self.curve.cores(rate) + extra, 0.0)

    def size(self, pixels: int) -> float:
        """Return the bytes of a picture with so many `pixels`."""
        return self.bits_per_pixel * pixels / 8


@dataclass(frozen=True)
class Costs:
    """All inputs of a plan's calculation."""

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
    sensor_shard: float  # cores of a sensor shard that receives nothing
    camera_shard: float  # cores of a camera shard that receives nothing
    hub_idle: float  # cores of the hub
    hub_device: float  # cores of the hub for each watched device
    hub_mb: float
    hub_device_mb: float

    def to_json(self) -> str:
        """Encode the costs for `parse_costs`."""
        return json.dumps(asdict(self), indent=1) + "\n"


def parse_costs(text: str) -> Costs:
    """Parse the result of `Costs.to_json`; ValueError has the reason."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 -- about a file, not an argument
    names = {field.name for field in fields(Costs)}
    if missing := sorted(names - document.keys()):
        raise ValueError(f"{', '.join(missing)} is missing: measure again with `embereye bench --calibrate`")
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
        raise ValueError(f"{points}: not measurements at rising rates")
    return Curve(points)
