"""Back-pressure on pushed frames: a frame that would be shed stays with its sender, which costs less."""

from dataclasses import dataclass

# Reading resumes this long before the next frame is wanted. Frames that queued up on the way are skipped, and the first
# frame known to be fresh is analysed; without one, the first after the wanted time.
from embereye.units import SECOND

FLUSH_NS = SECOND // 16
PAUSE_MAX_NS = SECOND * 4 // 5  # longest pause in reading: a longer one would look like late frames or a jumping clock
LATE_NS = SECOND // 3  # of lateness: a sender whose frames already queue up must not queue more
REJECTED_NS = SECOND // 50  # pause after an unusable frame: many of them must not cost the time of other cameras


@dataclass
class PushBackpressure:
    """The pauses in reading from one pushing camera. Times are nanoseconds since the Unix epoch."""

    frame_rate: float = 0.0  # the sender's frames/s when reading first paused; 0: reading does not pause
    unread: float = 0.0  # frames left with the sender, estimated from that rate
    _heard_ns: int = 0

    def next_read_ns(self, now_ns: int, *, wanted_ns: int, flush_ns: int, late_ns: int, frame_rate: float) -> int:
        """Return when to read the frame after the one that arrived at `now_ns`; 0: as soon as it comes.

        No frame is analysed before `wanted_ns` (0: any is), or `flush_ns` earlier if it is fresh. `late_ns` is how much
        longer than usual this frame travelled. `frame_rate` is the sender's analysable frames/s.
        """
        if self.frame_rate:
            self.unread += max(0.0, (now_ns - self._heard_ns) * self.frame_rate / SECOND - 1.0)
        self._heard_ns = now_ns
        self.frame_rate = (self.frame_rate or frame_rate) if wanted_ns else 0.0
        if not wanted_ns or late_ns > LATE_NS:
            return 0
        return min(wanted_ns - flush_ns, now_ns + PAUSE_MAX_NS)
