"""A camera's rate of analysed frames: its target, or less while the pool is overloaded.

The mailbox asks it about every frame. At the target rate a frame is shed only if it comes clearly before its time.
While the rate is cut, a camera gains credit with time and pays with it for each frame, so that any rate can be reached.
`RateAdapter` grants the rate, never below the minimum. `wanted_ns` says when the next frame is worth reading from a
pushing sender.
"""

from embereye.units import SECOND

EARLY = 0.8  # of the target period: cameras jitter, and every second frame of a doubled rate is still admitted
MIN_RATE_EARLY = 0.9  # of the minimum rate's period: the next frame may come a whole camera period later
ANALYSES_PER_DEADLINE = 2.0  # frames to analyse within a camera's deadline, even if fps.min is lower


class RateController:
    """Admits one camera's frames at its rate: its share of the pool's budget, but at least `least`."""

    def __init__(self) -> None:
        self.target = 0.0  # frames/s; 0: every frame, never cut
        self.least = 0.0  # frames/s that a cut never goes below
        self.rate = 0.0  # frames/s now
        self._admitted_ns = 0  # when a frame was last admitted
        self._due_ns = 0  # when the next one is expected
        self._credit = 1.0  # frames
        self._exceeded = False  # the latest frame came too soon after the one before

    def configure(self, target: float, least: float) -> None:
        """Set new limits in frames/s; a changed target also sets the rate."""
        if target != self.target:
            self.rate = target
        self.target, self.least, self._exceeded = target, min(least, target), False
        self.rate = max(self.rate, self.least)

    @property
    def is_limited(self) -> bool:
        """True if the rate is cut because the pool is overloaded."""
        return self.rate < self.target

    def admit_frame(self, now_ns: int, early_ns: int = 0) -> str:
        """Admit a frame that arrives at `now_ns`: return '' if it is analysed, else the ledger's reason for shedding.

        While the rate is cut, a frame may come `early_ns` before its time.
        """
        if not self.target:
            return ""
        period = int(SECOND / self.target)
        self._exceeded = int((1 - EARLY) * period) < self._due_ns - now_ns <= period  # more: the clock was set back
        if self._exceeded:
            return "above target rate"
        elapsed = now_ns - self._admitted_ns
        if self.is_limited:
            # Use credit, not a minimum pause: pauses reduce a camera of 15/s to 15 or 7.5, never to 10.
            credit = min(2.0, self._credit + elapsed * self.rate / SECOND)
            if now_ns + early_ns < self.wanted_ns:
                return "overload"
            self._credit = max(-1.0, credit - 1.0)
        self._admitted_ns = now_ns
        # A delayed frame must not make the next one, which is on time, look early.
        self._due_ns = min(now_ns, max(self._due_ns, now_ns - period)) + period if self._due_ns else now_ns + period
        return ""

    @property
    def wanted_ns(self) -> int:
        """The time before which no frame is analysed; 0 if the rate is neither cut nor exceeded."""
        if not self.is_limited and not self._exceeded:
            return 0
        wanted_ns = self._due_ns - int((1 - EARLY) * int(SECOND / self.target))
        if self.is_limited:
            pause = min((1.0 - self._credit) / self.rate, MIN_RATE_EARLY / max(self.least, 0.001))
            wanted_ns = max(wanted_ns, self._admitted_ns + int(pause * SECOND))
        return wanted_ns

    def grant(self, rate: float) -> None:
        """Analyse `rate` frames/s from now on, within the configured limits."""
        self.rate = max(self.least, min(self.target, rate))


def least_rate(fps_min: float, deadline_ns: int) -> float:
    """The minimum frames/s for a camera's `fps.min` and its deadline."""
    return max(fps_min, ANALYSES_PER_DEADLINE * SECOND / deadline_ns)
