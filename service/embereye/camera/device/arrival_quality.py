"""How well a camera's frames arrive: how much of them is unusable, and whether their time stamps can be true."""

from collections import deque
from dataclasses import dataclass, field

from embereye.units import SECOND

PART_NS = SECOND // 2  # of the window: frames are counted in parts of this length, so that few counters are kept
WINDOW_NS = 10 * SECOND  # over which frames are judged; a fault ends when its cause has left this window
FRAMES_MIN = 10  # in the window; a share of fewer says nothing
# Of the window's frames. Flicker is measured over a second: with half of the frames missing at random, too few pairs of
# neighbours are left.
DAMAGED_SHARE = 0.5
# A clock that is set once, or a stream that starts anew, is one jump; a clock that cannot be relied on jumps again.
JUMPS = 3  # in the window that make a fault
JUMP_NS = SECOND  # that a time stamp runs ahead of our clock at once
STILL_NS = 2 * SECOND  # that a time stamp may stand while frames arrive
DRIFT = 0.01  # of elapsed time: how fast two clocks may part, or a network path become longer for good


@dataclass(slots=True)
class _Part:
    """A part of the window."""

    began_ns: int
    frames: int = 0
    damage: float = 0.0  # of frames: the sum of the shares that are unusable


@dataclass
class ArrivalQuality:
    """The last seconds of one camera's frames. Times are nanoseconds since the Unix epoch."""

    _parts: deque[_Part] = field(default_factory=deque)  # of the window
    _frames: int = 0  # in all of them
    _damage: float = 0.0  # in all of them
    _latest: float = 1.0  # share of the latest frame that is unusable
    _jumps: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=JUMPS))  # arrival, by how much
    _stamp_ns: int = 0
    _stamped_ns: int = 0  # when the stamp before arrived
    _stood_since_ns: int = 0  # 0: the stamp advances
    _least_ns: int = 0  # from stamp to arrival at best: the network path and the difference of the clocks
    late_ns: int = 0  # how much longer the latest frame took: it was queued somewhere on its way

    def record_frame(self, damage: float, now_ns: int) -> None:
        """Record a frame that arrived at `now_ns` and of which the share `damage` (0..1) is unusable."""
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
        """Record that the latest frame turned out to be unusable as a whole."""
        self._add_damage(1.0 - self._latest)

    def _add_damage(self, damage: float) -> None:
        if damage:
            self._latest += damage
            self._parts[-1].damage += damage
            self._damage += damage

    def record_stamp(self, time_ns: int, now_ns: int) -> None:
        """Record the sender's own time stamp of a frame that arrived at `now_ns`."""
        if self._stamped_ns:
            advance = time_ns - self._stamp_ns
            if advance == 0:
                self._stood_since_ns = self._stood_since_ns or self._stamped_ns
            else:
                self._stood_since_ns = 0
                # A frame that the network holds up comes late, but its stamp does not run ahead.
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
        """Record a frame without a time stamp: those of a source before it, which had them, say nothing of it."""
        self._stamped_ns = self._stood_since_ns = self.late_ns = 0

    def record_jump(self, advance_ns: int, now_ns: int) -> None:
        """Record that the sender's clock jumped by `advance_ns` with what came up to `now_ns`."""
        self._jumps.append((now_ns, advance_ns))

    def fault(self, now_ns: int) -> str:
        """What is wrong with the arrivals at `now_ns`, or ''."""
        frames = self._frames
        recent = frames >= FRAMES_MIN and now_ns - self._parts[-1].began_ns <= WINDOW_NS
        if recent and self._damage > DAMAGED_SHARE * frames:
            return f"broken frames: {self._damage / frames:.0%} of what arrived in 10 s cannot be decoded or is missing"
        if self._stood_since_ns and self._stamped_ns - self._stood_since_ns > STILL_NS:
            return f"the sender's clock stands still: {frames} frames with the same time stamp"
        if len(self._jumps) == JUMPS and now_ns - self._jumps[0][0] <= WINDOW_NS:
            seconds = self._jumps[-1][1] / SECOND
            return f"the sender's clock jumps: {JUMPS} times in 10 s, at last by {seconds:+.1f} s"
        return ""
