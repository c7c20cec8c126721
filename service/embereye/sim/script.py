"""When and where a simulated fire burns: `at=SECONDS,for=SECONDS,device=ID|zone=ZONE`."""

import math
from dataclasses import dataclass

from embereye.process.lifecycle import UserError

FORM = "at=SECONDS,for=SECONDS,device=ID or zone=ZONE"


@dataclass(frozen=True)
class FireScript:
    """One fire: when it starts, how long it burns, at which device or in which zone."""

    at: float  # seconds after the simulation's start
    duration: float  # seconds
    device: str = ""  # this device only
    zone: str = ""  # every device of this zone; neither: every device

    @classmethod
    def parse(cls, text: str) -> "FireScript":
        """The script in `text`; `camera=` and `sensor=` mean `device=`. UserError where it is none."""
        values: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = part.strip().partition("=")
            key = {"camera": "device", "sensor": "device"}.get(key, key)
            if not equals or not value or key not in {"at", "for", "device", "zone"} or key in values:
                raise UserError(f'fire "{text}": "{part}" is not understood; write {FORM}')
            values[key] = value
        if "device" in values and "zone" in values:
            raise UserError(f'fire "{text}" names a device and a zone: name one of them')
        return cls(
            at=_seconds(text, "at", values.get("at", "0")),
            duration=_seconds(text, "for", values.get("for", "60")),
            device=values.get("device", ""),
            zone=values.get("zone", ""),
        )

    def concerns(self, device: str, zone: str) -> bool:
        """Whether this fire is seen by `device` in `zone`."""
        return (not self.device or self.device == device) and (not self.zone or self.zone == zone)

    def burning(self, seconds: float) -> float:
        """How long it has been burning, `seconds` after the start; negative while it does not."""
        elapsed = seconds - self.at
        return elapsed if 0 <= elapsed < self.duration else -1.0


def _seconds(text: str, key: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UserError(f'fire "{text}": {key}={value} is not a number of seconds; write {FORM}')
    return seconds
