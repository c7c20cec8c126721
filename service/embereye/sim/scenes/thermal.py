"""Draw scenes as a 32 x 24 thermal sensor sees them: growing fires, and warm things that are not on fire.

Every object is a patch with a place, a size, a temperature and an emissivity. A pixel mixes the patches in it by
radiance, T^4, as the calibration does. So an object smaller than a pixel reads as cool as in reality.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embereye.detect.thermal.mlx90640 import COLUMNS, KELVIN, ROWS
from embereye.sim.mlx90640 import HOTTEST

Floats = NDArray[np.float64]
NOISE_K = 0.33  # of a pixel between frames; the median of a recorded device
# Share of a pixel's light that its neighbours receive: optics are not sharp.
BLUR = np.array([0.1, 0.8, 0.1])

# NFPA 72's growth of fires, Q = growth x t^2 in kW and s: 1,055 kW after 600, 300, 150 and 75 s.
GROWTH = {"slow": 0.00293, "medium": 0.01172, "fast": 0.0469, "ultrafast": 0.1876}
HEAT_PER_AREA = 500.0  # kW/m2 of burning surface; wood and furnishings
FLAME_C, FLAME_ABSORPTION = 850.0, 1.1  # °C, 1/m: small flames are nearly transparent to long-wave infrared
FUEL_C, FUEL_EMISSIVITY = 600.0, 0.9  # °C of the burning fuel
SEEN_OBLIQUELY = 0.5  # share of a horizontal surface visible to a sensor on the wall


@dataclass(frozen=True)
class Lens:
    """A sensor's field of view, degrees."""

    across: float
    up: float


NARROW = Lens(55, 35)  # MLX90640BAB
WIDE = Lens(110, 75)  # MLX90640BAA


@dataclass(frozen=True)
class Patch:
    """An upright rectangle; `left` and `top` are its middle, in metres right of and above the middle of the view."""

    left: float
    top: float
    width: float  # m
    height: float  # m
    celsius: float
    emissivity: float = 0.95
    distance: float = 0.0  # m; 0: the scene's


@dataclass(frozen=True)
class Scene:
    """A sensor's view: `patches` and the room's temperature are functions of time in seconds."""

    name: str
    distance: float  # m
    patches: Callable[[float], Sequence[Patch]]
    seconds: float
    room: Callable[[float], float] = lambda _: 22.0  # °C
    lens: Lens = NARROW
    fire: bool = True

    def picture(self, time: float) -> Floats:
        """°C (24, 32) without noise."""
        room = self.room(time) + KELVIN
        radiance = np.full((ROWS, COLUMNS), room**4)
        for patch in self.patches(time):
            distance = patch.distance or self.distance
            wide = 2 * distance * math.tan(math.radians(self.lens.across / 2)) / COLUMNS  # m of a pixel
            high = 2 * distance * math.tan(math.radians(self.lens.up / 2)) / ROWS
            share = np.outer(
                _covered(-patch.top / high, patch.height / high, ROWS),
                _covered(patch.left / wide, patch.width / wide, COLUMNS),
            )
            radiance += share * patch.emissivity * ((patch.celsius + KELVIN) ** 4 - room**4)
        celsius: Floats = np.minimum(radiance**0.25 - KELVIN, HOTTEST)
        return celsius


def _covered(middle: float, size: float, count: int) -> Floats:
    """The covered share of each of `count` pixels in a row, with the blur of optics; in pixels from their middle."""
    edges = np.arange(count + 1) - count / 2
    low, high = middle - size / 2, middle + size / 2
    covered = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, 1)
    return np.convolve(covered, BLUR, mode="same")


def power(growth: float, age: float) -> float:
    """The heat release of a fire `age` seconds old, in kW."""
    return growth * max(age, 0.0) ** 2


def flames(kilowatts: float, left: float, top: float, flicker: float = 0.0) -> list[Patch]:
    """A fire on the floor: the burning fuel, and the flame above it.

    The flame's height is Heskestad's, L = 0.235 Q^(2/5) - 1.02 D. A flame is thinner than its fuel, and hotter in
    infrared the thicker it is.
    """
    if kilowatts <= 0:
        return []
    diameter = math.sqrt(4 * kilowatts / HEAT_PER_AREA / math.pi)
    height = max(0.235 * kilowatts**0.4 - 1.02 * diameter, 0.0) * (1 + flicker)
    emissivity = 1 - math.exp(-FLAME_ABSORPTION * diameter)
    surface = diameter * math.pi / 4 * SEEN_OBLIQUELY
    return [
        Patch(left, top, diameter, surface, FUEL_C, FUEL_EMISSIVITY),
        Patch(left, top + surface / 2 + height / 2, 0.6 * diameter, height, FLAME_C, emissivity),
    ]


def burning(
    kind: str, distance: float, *, start: float = 60.0, seconds: float = 600.0, most: float = math.inf, seed: int = 1
) -> Scene:
    """A room with a fire of growth `kind`, which starts after `start` seconds and burns with at most `most` kW."""
    dice = np.random.default_rng(seed)
    left, top = dice.uniform(-0.15, 0.15, 2) * distance  # its place relative to pixel borders is random
    flickers = dice.normal(0, 0.2, 997).clip(-0.5, 0.5)

    def patches(time: float) -> Sequence[Patch]:
        kilowatts = min(power(GROWTH[kind], time - start), most)
        return flames(kilowatts, left, top, float(flickers[int(time * 10) % 997]))

    return Scene(f"{kind} fire at {distance:g} m", distance, patches, seconds)


def _ramp(time: float, start: float, seconds: float) -> float:
    return min(max((time - start) / seconds, 0.0), 1.0)


def _person(time: float) -> list[Patch]:
    left = -2.5 + (time * 0.8) % 5.0
    return [Patch(left, -0.5, 0.5, 1.3, 29.0, 0.95), Patch(left, 0.3, 0.18, 0.25, 34.5, 0.97)]


def _sun(time: float) -> list[Patch]:
    clouds = 0.5 + 0.5 * math.tanh(4 * math.sin(2 * math.pi * time / 240))
    return [Patch(0.5, -0.6, 1.0, 1.5, 22 + 21 * _ramp(time, 60, 900) * (0.6 + 0.4 * clouds))]


def _car(time: float) -> list[Patch]:
    left = -6 + 6 * _ramp(time, 60, 8)
    return [Patch(left, -0.5, 1.6, 0.8, 38.0), Patch(left - 0.6, -0.9, 0.07, 0.07, 180.0, 0.7)]


HARMLESS = (
    Scene("people walking to and fro at 3 m", 3, _person, 600, fire=False),
    Scene("sun patch with clouds at 4 m", 4, _sun, 1800, fire=False),
    Scene("room that warms from 12 to 32 °C in 20 min", 4, lambda _: [], 1500,
          room=lambda time: 12 + 20 * _ramp(time, 60, 1200), fire=False),
    Scene("radiator that heats to 55 °C in 10 min at 3 m", 3,
          lambda time: [Patch(0, -0.5, 1.2, 0.6, 22 + 33 * _ramp(time, 60, 600), 0.92)], 1500, fire=False),
    Scene("car that arrives, exhaust of 180 °C, at 8 m", 8, _car, 600, fire=False),
    Scene("mug of 70 °C put down at 3 m", 3,
          lambda time: [Patch(0.2, -0.3, 0.08, 0.09, 70.0, 0.95)] if time > 60 else [], 300, fire=False),
    Scene("enamel kettle that boils at 3 m", 3,
          lambda time: [Patch(0.2, -0.3, 0.2, 0.2, 22 + 70 * _ramp(time, 60, 180), 0.9)], 400, fire=False),
    Scene("steel kettle that boils at 3 m", 3,
          lambda time: [Patch(0.2, -0.3, 0.2, 0.2, 22 + 73 * _ramp(time, 60, 180), 0.25)], 400, fire=False),
)  # fmt: skip
