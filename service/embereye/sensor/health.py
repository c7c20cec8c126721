"""Whether a sensor's readings can be those of a working sensor: one that is stuck or noisy is a fault, not a reading.

Pure: values and times go in. It looks every few seconds, so that it costs the path of the packets nothing.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

SECOND = 1_000_000_000  # nanoseconds
# A converter of 12 bits behind a real sensor moves by a count or two all the time. Half an hour without is no air that
# calm but a broken wire, a frozen converter or a program that sends the same line over and over.
STUCK_NS = 1800 * SECOND
# Channels without a sensor read next to nothing, and may do so for ever.
UNUSED_COUNTS = 16.0
# Mean change from look to look, in counts, that no smoke or gas goes on to make.
NOISY_COUNTS = 250.0
NOISE_SAMPLES = 30.0  # looks over which it is averaged
CHANNELS = ("smoke", "flame", "gas")
SLOW = ("smoke", "gas")  # a flame does flicker


class _Channel(NamedTuple):
    value: float
    changed_ns: int
    noise: float


class Health:
    """Follows the three analog channels of one device."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def look(self, row: Sequence[float], now_ns: int) -> dict[str, str]:
        """Look at the latest reading (smoke, flame, gas in ADC counts; NaN: never said); why each faulty channel is."""
        faults: dict[str, str] = {}
        for name, value in zip(CHANNELS, row, strict=False):
            if math.isnan(value):
                continue
            before = self._channels.get(name, _Channel(value, now_ns, 0.0))
            change = abs(value - before.value)
            noise = before.noise + (change - before.noise) / NOISE_SAMPLES
            changed = now_ns if change else before.changed_ns
            self._channels[name] = _Channel(value, changed, noise)
            if now_ns - changed >= STUCK_NS and value > UNUSED_COUNTS:
                faults[name] = f"{name} is stuck at {value:g} counts for {(now_ns - changed) / SECOND / 60:.0f} min"
            elif name in SLOW and noise > NOISY_COUNTS:
                faults[name] = f"{name} jumps by {noise:.0f} counts up and down"
        return faults
