"""When the next pushed frame is worth receiving: one that would be shed is left with its sender, which costs less."""

from dataclasses import dataclass

# Reading resumes this much before the next frame is wanted: what has queued up on the way is passed over, and the first
# frame that is known to be fresh is analysed; without one, the first after the wanted time.
from embereye.units import SECOND

FLUSH_NS = SECOND // 16
HOLD_NS = SECOND * 4 // 5  # at most: what waits no longer than that looks neither late nor like a clock that jumps
HELD_UP_NS = SECOND // 3  # of lateness: a sender whose frames have queued already gets no reason to queue more
REJECTED_NS = SECOND // 50  # after an unusable frame: more of them must not cost what other cameras need


@dataclass
class PushBackpressure:
    """How one pushing camera is held back. Times are nanoseconds since the Unix epoch."""

    frame_rate: float = 0.0  # frames/s that its sender had when it was first held back; 0: it is not held back
    unread: float = 0.0  # frames that were left with it, estimated from that rate
    _heard_ns: int = 0

    def next_read_ns(self, now_ns: int, *, wanted_ns: int, flush_ns: int, late_ns: int, frame_rate: float) -> int:
        """When to read the frame after the one that arrived at `now_ns`; 0: as soon as it comes.

        No frame is analysed before `wanted_ns` (0: any is), or `flush_ns` earlier where it is fresh. `late_ns` is how
        much longer than usual this frame travelled, `frame_rate` how many analysable frames/s its sender has.
        """
        if self.frame_rate:
            self.unread += max(0.0, (now_ns - self._heard_ns) * self.frame_rate / SECOND - 1.0)
        self._heard_ns = now_ns
        self.frame_rate = (self.frame_rate or frame_rate) if wanted_ns else 0.0
        if not wanted_ns or late_ns > HELD_UP_NS:
            return 0
        return min(wanted_ns - flush_ns, now_ns + HOLD_NS)
