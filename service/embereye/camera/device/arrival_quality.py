"""Quality of a camera's arriving frames: the share that is unusable, and whether time stamps are plausible.

`Arrivals` records each frame's damage and time stamp here, and the status reads `fault`. Damage is counted in a sliding
window of 10 s, in parts of half a second, so a fault ends when its cause has left the window. A time stamp is compared
with our clock: if it stays the same, or jumps several times, that is a fault. The shortest time from stamp to arrival
is taken as normal, and the excess over it is a frame's lateness.
"""

from collections import deque
from dataclasses import dataclass, field

from embereye.units import SECOND

PART_NS = SECOND // 2  # the window is counted in parts of this length, which needs few counters
WINDOW_NS = 10 * SECOND  # over which frames are judged; a fault ends when its cause has left this window
FRAMES_MIN = 10  # in the window; the share of fewer frames is not judged
# Of the window's frames. Flicker is measured over a second: if half of the frames are missing at random, too few
# neighbouring pairs remain.
DAMAGED_SHARE = 0.5
# A clock that is set, or a stream that restarts, jumps once; an unreliable clock jumps again.
JUMPS = 3  # in the window that are a fault
JUMP_NS = SECOND  # a time stamp this far ahead of our clock's progress is a jump
STILL_NS = 2 * SECOND  # how long a time stamp may stay the same while frames arrive
DRIFT = 0.01  # of elapsed time: how fast two clocks may diverge, or a network path may become slower for good


@dataclass(slots=True)
class _Part:
    """A part of the window."""

    began_ns: int
    frames: int = 0
    damage: float = 0.0  # sum of the unusable shares, in frames


@dataclass
class ArrivalQuality:
    """Statistics of one camera's latest frames. Times are nanoseconds since the Unix epoch."""

    _parts: deque[_Part] = field(default_factory=deque)  # of the window
    _frames: int = 0  # in the window
    _damage: float = 0.0  # in the window
    _latest: float = 1.0  # unusable share of the latest frame
    _jumps: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=JUMPS))  # arrival, size
    _stamp_ns: int = 0
    _stamped_ns: int = 0  # when the latest stamp arrived
    _stood_since_ns: int = 0  # since when the stamp has not advanced; 0: it advances
    _least_ns: int = 0  # shortest time from stamp to arrival: the network path plus the clocks' difference
    late_ns: int = 0  # how much longer the latest frame took, because it was queued on its way

    def record_frame(self, damage: float, now_ns: int) -> None:
        """Record a frame that arrived at `now_ns` with the unusable share `damage` (0..1)."""
        parts = self._parts
        if not parts or not 0 <= now_ns - parts[-1].began_ns < PART_NS:
            parts.append(_Part(now_ns))
        parts[-1].frames += 1
        self._frames += 1
        self._latest = 0.0
        self._add_damage(damage)
        while now_ns - parts[0].began_ns > WINDOW_NS:
            gone = parts.popleft()
            self._frames -= gone.frames
            self._damage -= gone.damage

    def spoil_latest(self) -> None:
        """Record that the latest frame turned out to be completely unusable."""
        self._add_damage(1.0 - self._latest)

    def _add_damage(self, damage: float) -> None:
        if damage:
            self._latest += damage
            self._parts[-1].damage += damage
            self._damage += damage

    def record_stamp(self, time_ns: int, now_ns: int) -> None:
        """Record the sender's time stamp of a frame that arrived at `now_ns`."""
        if self._stamped_ns:
            advance = time_ns - self._stamp_ns
            if advance == 0:
                self._stood_since_ns = self._stood_since_ns or self._stamped_ns
            else:
                self._stood_since_ns = 0
                # A frame that the network delays comes late, but its stamp does not jump ahead.
                if advance < 0 or advance - (now_ns - self._stamped_ns) > JUMP_NS:
                    self.record_jump(advance, now_ns)
                    self._least_ns = now_ns - time_ns  # the clock was set
            self._least_ns += int(DRIFT * max(0, now_ns - self._stamped_ns))
            self._least_ns = min(self._least_ns, now_ns - time_ns)
            self.late_ns = now_ns - time_ns - self._least_ns
        else:
            self._least_ns = now_ns - time_ns
        self._stamp_ns, self._stamped_ns = time_ns, now_ns

    def forget_stamps(self) -> None:
        """Record a frame without a time stamp; stamps of an earlier source no longer matter."""
        self._stamped_ns = self._stood_since_ns = self.late_ns = 0

    def record_jump(self, advance_ns: int, now_ns: int) -> None:
        """Record that the sender's clock jumped by `advance_ns` in frames up to `now_ns`."""
        self._jumps.append((now_ns, advance_ns))

    def fault(self, now_ns: int) -> str:
        """Return the fault of the arrivals at `now_ns`, or ''."""
        frames = self._frames
        recent = frames >= FRAMES_MIN and now_ns - self._parts[-1].began_ns <= WINDOW_NS
        if recent and self._damage > DAMAGED_SHARE * frames:
            return f"broken frames: {self._damage / frames:.0%} of the frames of 10 s cannot be decoded or are missing"
        if self._stood_since_ns and self._stamped_ns - self._stood_since_ns > STILL_NS:
            return f"the sender's clock stopped: {frames} frames with the same time stamp"
        if len(self._jumps) == JUMPS and now_ns - self._jumps[0][0] <= WINDOW_NS:
            seconds = self._jumps[-1][1] / SECOND
            return f"the sender's clock jumps: {JUMPS} times in 10 s, last by {seconds:+.1f} s"
        return ""
