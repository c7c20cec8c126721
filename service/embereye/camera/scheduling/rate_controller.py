"""How many frames of a camera are analysed per second: its target, less while the pool does not keep up."""

from embereye.units import SECOND

EARLY = 0.8  # of the target period: cameras jitter, and every second frame of a doubled rate is on time
LEAST_EARLY = 0.9  # of the least rate's period: the frame after it may be one whole camera period later
ANALYSES_PER_DEADLINE = 2.0  # frames to analyse within a camera's deadline, whatever its fps.min says


class RateController:
    """Admits the frames of one camera at its rate, which is its share of the pool's budget but no less than `least`."""

    def __init__(self) -> None:
        self.target = 0.0  # frames/s; 0: every frame, and the rate is never cut
        self.least = 0.0  # frames/s that a cut never goes below
        self.rate = 0.0  # frames/s now
        self._admitted_ns = 0  # when a frame was admitted last
        self._due_ns = 0  # when the next one is expected
        self._credit = 1.0  # frames
        self._exceeded = False  # the last frame came too soon after the one before

    def configure(self, target: float, least: float) -> None:
        """Set new limits in frames/s; the rate starts at a new target."""
        if target != self.target:
            self.rate = target
        self.target, self.least, self._exceeded = target, min(least, target), False
        self.rate = max(self.rate, self.least)

    @property
    def limited(self) -> bool:
        """Whether the rate is cut because the pool does not keep up with this camera."""
        return self.rate < self.target

    def admit_frame(self, now_ns: int, early_ns: int = 0) -> str:
        """Whether a frame that arrives at `now_ns` is analysed: '' if so, else the ledger's reason for shedding it.

        While the rate is cut, a frame may come `early_ns` before its time.
        """
        if not self.target:
            return ""
        period = int(SECOND / self.target)
        self._exceeded = int((1 - EARLY) * period) < self._due_ns - now_ns <= period  # more: the clock was set back
        if self._exceeded:
            return "above target rate"
        elapsed = now_ns - self._admitted_ns
        if self.limited:
            # Credit, not a shortest pause: of a camera that sends 15/s, pauses make either 15 or 7.5, never 10.
            credit = min(2.0, self._credit + elapsed * self.rate / SECOND)
            if now_ns + early_ns < self.wanted_ns:
                return "overload"
            self._credit = max(-1.0, credit - 1.0)
        self._admitted_ns = now_ns
        # A frame that was held up on its way must not make the next one, which is on time, look too early.
        self._due_ns = min(now_ns, max(self._due_ns, now_ns - period)) + period if self._due_ns else now_ns + period
        return ""

    @property
    def wanted_ns(self) -> int:
        """The time before which no frame is analysed; 0: the rate is neither cut nor exceeded."""
        if not self.limited and not self._exceeded:
            return 0
        wanted_ns = self._due_ns - int((1 - EARLY) * int(SECOND / self.target))
        if self.limited:
            pause = min((1.0 - self._credit) / self.rate, LEAST_EARLY / max(self.least, 0.001))
            wanted_ns = max(wanted_ns, self._admitted_ns + int(pause * SECOND))
        return wanted_ns

    def grant(self, rate: float) -> None:
        """Analyse `rate` frames/s from now on, within the limits that are configured."""
        self.rate = max(self.least, min(self.target, rate))


def least_rate(fps_min: float, deadline_ns: int) -> float:
    """The frames/s below which a camera breaks its `fps.min` or its deadline."""
    return max(fps_min, ANALYSES_PER_DEADLINE * SECOND / deadline_ns)
