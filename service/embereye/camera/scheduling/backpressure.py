"""When a pushed frame is worth receiving: one that will not be looked at is left with its sender, which is cheaper."""

from dataclasses import dataclass

from embereye.units import SECOND

# A rest ends this early, so that what has waited on its way is passed over and a fresh frame is looked at: the next one
# that is known to be fresh, else the first when the time has come.
FLUSH_NS = SECOND // 16
REST_NS = SECOND * 4 // 5  # at most: what waits no longer than that looks neither late nor like a clock that jumps
HELD_UP_NS = SECOND // 3  # by which a frame is late: whoever sends what has waited is given no reason to wait
REJECTED_NS = SECOND // 50  # after a frame that is none: more of them must not cost what others need


@dataclass
class Rest:
    """One camera's rests. Times are nanoseconds since the Unix epoch."""

    frame_rate: float = 0.0  # frames/s that its sender had when it was first held back; 0: it is not
    unread: float = 0.0  # frames that were left with it, as far as can be told
    _heard_ns: int = 0

    def after(self, now_ns: int, *, wanted_ns: int, flush_ns: int, late_ns: int, frame_rate: float) -> int:
        """When the frame after the one that arrived at `now_ns` is worth receiving; 0: whenever it comes.

        None is looked at before `wanted_ns` (0: any is), `flush_ns` less where it is fresh. `late_ns` is how much more
        than usual it took, `frame_rate` how many a second its sender has that would be looked at.
        """
        if self.frame_rate:
            self.unread += max(0.0, (now_ns - self._heard_ns) * self.frame_rate / SECOND - 1.0)
        self._heard_ns = now_ns
        self.frame_rate = (self.frame_rate or frame_rate) if wanted_ns else 0.0
        if not wanted_ns or late_ns > HELD_UP_NS:
            return 0
        return min(wanted_ns - flush_ns, now_ns + REST_NS)
