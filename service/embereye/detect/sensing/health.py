"""Whether a sensor's readings can be those of a working sensor: one that is stuck, noisy or silent is a fault.

Pure: values and times go in. Call it every few seconds where there are new ones: for each it would cost too much.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from embereye.units import SECOND

FULL_SCALE = 4095.0  # counts of the converter for which the limits below are given
# A converter of 12 bits behind a real sensor moves by a count or two all the time. Half an hour without is no air that
# calm but a broken wire, a frozen converter or a program that sends the same line over and over. A coarser converter
# does not see those counts: it is given longer, by as much as it is coarser.
STUCK_NS = 1800 * SECOND
STUCK_LOOKS = 30  # at least, at which it was the same: of a device that reports rarely a few may well be
LOOK_NS = STUCK_NS // STUCK_LOOKS  # that counts between two of them, at most: a device may have been switched off
# Channels without a sensor read next to nothing, and may do so for ever. One that read more before has lost its sensor.
UNUSED_COUNTS = 16.0
LOST_NS = 60 * SECOND
# A channel that the device used to speak of, and does not although it speaks of others.
SILENT_NS = 60 * SECOND
# Mean change from inspection to inspection, in counts, that no smoke or gas goes on to make.
NOISY_COUNTS = 250.0
NOISE_SAMPLES = 30.0  # inspections over which it is averaged
CHANNELS = ("smoke", "flame", "gas")
SLOW = ("smoke", "gas")  # a flame does flicker


class _Channel(NamedTuple):
    value: float
    same_ns: int  # for which it has not changed
    looked_ns: int
    noise: float
    alive_ns: int  # when it last read more than an unused channel does; 0: never
    same: int  # looks in a row without a change


class SensorHealth:
    """Follows the three analog channels of one device."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    def inspect_row(
        self,
        row: Sequence[float],
        now_ns: int,
        *,
        full_scale: float = FULL_SCALE,
        omitted: Mapping[int, int] | None = None,
        alarmed: bool = False,
    ) -> dict[str, str]:
        """Inspect the latest reading (smoke, flame, gas in ADC counts; NaN: never said): channel → why it is faulty.

        A value that the converter does not give is a fault of its own, which `thresholds` tells: one line that was
        garbled on its way must not pass for noise, which takes minutes to be forgotten.
        `omitted` has since when channels, by number, have not been said any more. While it is `alarmed` a sensor at
        its end may well read the same: what it says is not called stuck.
        """
        faults: dict[str, str] = {}
        scale = full_scale / FULL_SCALE
        stuck_ns = STUCK_NS / min(scale, 1.0)
        for number, (name, value) in enumerate(zip(CHANNELS, row, strict=False)):
            if not 0 <= value <= full_scale:  # nor is it NaN
                continue
            channel = self._channels[name] = self._next(name, value, now_ns, UNUSED_COUNTS * scale)
            silent_ns = now_ns - (omitted or {}).get(number, now_ns)
            used = value > UNUSED_COUNTS * scale
            if silent_ns >= SILENT_NS:
                faults[name] = f"{name} has not been said for {silent_ns / SECOND:.0f} s"
            elif channel.same_ns >= stuck_ns and channel.same >= STUCK_LOOKS and used and not alarmed:
                faults[name] = f"{name} is stuck at {value:g} counts for {channel.same_ns / SECOND / 60:.0f} min"
            elif name in SLOW and channel.noise > NOISY_COUNTS * scale:
                faults[name] = f"{name} jumps by {channel.noise:.0f} counts up and down"
            elif not used and channel.alive_ns and now_ns - channel.alive_ns >= LOST_NS:
                faults[name] = f"{name} fell to {value:g} counts, as if its sensor had been unplugged"
        return faults

    def _next(self, name: str, value: float, now_ns: int, unused: float) -> _Channel:
        before = self._channels.get(name, _Channel(value, 0, now_ns, 0.0, 0, 0))
        change = abs(value - before.value)
        return _Channel(
            value,
            0 if change else before.same_ns + min(now_ns - before.looked_ns, LOOK_NS),
            now_ns,
            before.noise + (change - before.noise) / NOISE_SAMPLES,
            now_ns if value > unused else before.alive_ns,
            0 if change else before.same + 1,
        )
