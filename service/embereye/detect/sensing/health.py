"""Health of a sensor, judged by its readings: a channel that is stuck, noisy or silent is faulty.

Pure. Call it every few seconds if there are new readings; a call per reading would cost too much.

From check to check it follows each channel: how long its value has not changed, how much it jumps on average, and when
it last read more than an unused channel. A limit on each of these makes a fault. The limits are for a 12-bit converter
and scale with the range.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from embereye.units import SECOND

FULL_SCALE = 4095.0  # counts of the converter that the limits below refer to
# A 12-bit converter behind a real sensor moves by a count or two all the time. Half an hour without change means a
# broken wire, a frozen converter or a program that repeats one line. A coarser converter does not see those counts, so
# it gets proportionally more time.
STUCK_NS = 1800 * SECOND
STUCK_CHECKS = 30  # unchanged checks, at least: a device that reports rarely may have a few equal readings
# longest time that counts between two checks: the device may have been switched off
CHECK_NS = STUCK_NS // STUCK_CHECKS
# A channel without a sensor may read nearly nothing for ever. One that read more before has lost its sensor.
UNUSED_COUNTS = 16.0
LOST_NS = 60 * SECOND
# silence of a channel while the device still reports others
SILENT_NS = 60 * SECOND
# Mean change from check to check, in counts, that no smoke or gas causes for long.
NOISY_COUNTS = 250.0
NOISE_SAMPLES = 30.0  # checks over which it is averaged
CHANNELS = ("smoke", "flame", "gas")
SLOW = ("smoke", "gas")  # flames flicker, so flame is not listed


class _Channel(NamedTuple):
    value: float
    same_ns: int  # how long it has not changed
    checked_ns: int
    noise: float
    alive_ns: int  # when it last read more than an unused channel; 0: never
    same: int  # checks in a row without a change


class SensorHealth:
    """Monitors the three analog channels of one device."""

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
        """Check the latest reading (smoke, flame, gas in ADC counts; NaN: never reported) and return faults by channel.

        A value that the converter cannot give is a separate fault, reported by `thresholds`: one garbled line must not
        count as noise, which fades only after minutes. `omitted` says since when channels, by number, have been
        missing. While it is `alarmed`, a sensor at the end of its range may read the same for long, so it is not called
        stuck.
        """
        faults: dict[str, str] = {}
        scale = full_scale / FULL_SCALE
        stuck_ns = STUCK_NS / min(scale, 1.0)
        for number, (name, value) in enumerate(zip(CHANNELS, row, strict=False)):
            if not 0 <= value <= full_scale:  # an impossible value, or NaN
                continue
            channel = self._channels[name] = self._next(name, value, now_ns, UNUSED_COUNTS * scale)
            silent_ns = now_ns - (omitted or {}).get(number, now_ns)
            used = value > UNUSED_COUNTS * scale
            if silent_ns >= SILENT_NS:
                faults[name] = f"{name} has not been reported for {silent_ns / SECOND:.0f} s"
            elif channel.same_ns >= stuck_ns and channel.same >= STUCK_CHECKS and used and not alarmed:
                faults[name] = f"{name} is stuck at {value:g} counts for {channel.same_ns / SECOND / 60:.0f} min"
            elif name in SLOW and channel.noise > NOISY_COUNTS * scale:
                faults[name] = f"{name} is noisy: it jumps by {channel.noise:.0f} counts"
            elif not used and channel.alive_ns and now_ns - channel.alive_ns >= LOST_NS:
                faults[name] = f"{name} fell to {value:g} counts, as if its sensor were unplugged"
        return faults

    def _next(self, name: str, value: float, now_ns: int, unused: float) -> _Channel:
        before = self._channels.get(name, _Channel(value, 0, now_ns, 0.0, 0, 0))
        change = abs(value - before.value)
        return _Channel(
            value,
            0 if change else before.same_ns + min(now_ns - before.checked_ns, CHECK_NS),
            now_ns,
            before.noise + (change - before.noise) / NOISE_SAMPLES,
            now_ns if value > unused else before.alive_ns,
            0 if change else before.same + 1,
        )
