"""Script a fire: its time, its place, and its strength at each moment."""

import math
from dataclasses import dataclass

from embereye.process.lifecycle import UserError

GROWTH_S = 20.0  # from the first flame to full strength; at most half of the fire's duration
COOLING_S = 5.0  # time constant after the fire is out


@dataclass(frozen=True)
class Fire:
    """A fire at one device, in one zone, or everywhere if neither is named."""

    at: float  # seconds after the simulation starts
    duration: float  # seconds
    device: str = ""
    zone: str = ""

    def is_visible_to(self, device: str, zone: str) -> bool:
        """True if the device in `zone` sees the fire."""
        if self.device:
            return device == self.device
        return not self.zone or zone == self.zone

    def seconds_burning(self, elapsed: float) -> float:
        """The age of the fire `elapsed` seconds after the simulation's start; -1 while it does not burn."""
        age = elapsed - self.at
        return age if 0 <= age < self.duration else -1.0

    def intensity(self, elapsed: float) -> float:
        """Strength 0..1 `elapsed` seconds after the simulation's start: grows with time squared, then cools down."""
        age = elapsed - self.at
        if age <= 0:
            return 0.0
        growth = min(GROWTH_S, self.duration / 2)
        reached = min(min(age, self.duration) / growth, 1.0) ** 2
        return reached * math.exp(-max(age - self.duration, 0.0) / COOLING_S)


def intensity(fires: tuple[Fire, ...], device: str, zone: str, elapsed: float) -> float:
    """The strength 0..1 of the strongest of `fires` that `device` in `zone` sees."""
    return max((fire.intensity(elapsed) for fire in fires if fire.is_visible_to(device, zone)), default=0.0)


def parse_fire(text: str) -> Fire:
    """Parse `at=SECONDS,for=SECONDS[,device=ID|,zone=ZONE]`; a UserError says what is wrong."""
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in {"at", "for", "device", "zone"} or key in values:
            raise UserError(
                f'--fire {text}: "{part}" is not one of at=SECONDS, for=SECONDS, device=ID, zone=ZONE, each once'
            )
        values[key] = value
    if "device" in values and "zone" in values:
        raise UserError(f"--fire {text}: name a device or a zone, not both")
    seconds = {}
    for key, default in (("at", None), ("for", "60")):
        try:
            seconds[key] = float(values.get(key, default or ""))
        except ValueError:
            seconds[key] = math.nan
        if not 0 <= seconds[key] < math.inf or (key == "for" and not seconds[key]):
            raise UserError(f"--fire {text}: {key}={values.get(key, '')} is not a number of seconds")
    return Fire(seconds["at"], seconds["for"], values.get("device", ""), values.get("zone", ""))
