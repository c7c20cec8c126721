"""How much of the pool's time each camera may use: what it wants, or less while the pool does not keep up."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A pause of the machine leaves frames waiting as well, but they are gone once it is over. As in CoDel (RFC 8289), only
# what stands for as long as this is an overload, however late single frames are.
STANDING_SECONDS = 0.5  # in which frames waited at every moment; also how long a cut takes to have its effect
SATURATED = 0.97  # of the time: less than the rest is no time to spare
FULL = 0.95  # of its time that the pool is to be busy: one that is busy for less gets as much more as fills it
LATE_SECONDS = 0.05  # that results wait for the event loop on average: one without time to spare does not keep up
SERVED = 0.95  # of the frames have their turn before the next one comes: no overload, whatever stands
CUT = 0.95  # of what the pool has proved to do, at a cut
CUT_LOOP = 0.8  # of the work, at a cut for the event loop, which tells nothing of what it could do
KEPT_LEAST = 0.5  # of the work, at a cut: what was measured in a bad moment must not cost everything
SETTLE_SECONDS = 1.0  # after a cut before the first raise
GROWTH_MOST = 1.5  # times the work, at a raise
PROBE = 1.04  # times the work, where the pool is neither short nor has room; each step in a row is larger
PROBE_POWER = 1.5  # of the step before
COST_UNKNOWN = 0.001  # seconds per frame, where no camera's cost is known yet
LEAST_SECONDS = 0.001  # that the budget never falls below: of nothing, each raise would be nothing


@dataclass(frozen=True, slots=True)
class Want:
    """What one camera would use of the pool."""

    target: float  # frames/s that come and are asked for; 0: every frame, at no limit
    least: float  # frames/s that are never refused
    cost: float  # seconds of a decoder per frame; 0: not known yet
    urgent: bool = False  # it is never given less than its target


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """How a pool fared since it was looked at last."""

    decoders_busy: float  # share of the time that they worked, 0..1
    loop_busy: float  # share of the time that the event loop ran or waited for a processor, 0..1
    standing: float  # seconds for which frames have waited at every moment
    served: float  # share of the admitted frames that had their turn before the next one took their place, 0..1
    late: float  # seconds that results waited for the event loop, on average; infinite: there were none


class PoolBudget:
    """One number for all cameras: the seconds of a decoder that each may use per second.

    Cameras that want less than that are not touched, so that the expensive ones do not slow down the cheap ones. The
    pool is judged as a whole and by what stands: while no frame waits at some moment, or the pool has time to spare,
    late frames are a pause of the machine, for which nobody is slowed down.
    """

    def __init__(self) -> None:
        self.seconds = math.inf  # of a decoder, per second and camera
        self._cut_at = -math.inf  # seconds
        self._raised_at = -math.inf  # seconds
        self._short_since = math.inf  # seconds; infinite: the pool keeps up
        self._served: list[float] = []  # what was served while it has been short, share of the frames
        self._probe = PROBE

    @property
    def limited(self) -> bool:
        """Whether any camera may be given less than it wants."""
        return self.seconds < math.inf

    def rate(self, want: Want) -> float:
        """The frames/s to analyse of a camera; infinite: all that it is asked for."""
        if want.urgent or not self.limited:
            return math.inf
        return max(want.least, self.seconds / (want.cost or COST_UNKNOWN))

    def adapt(self, load: PoolLoad, wants: Sequence[Want], now: float) -> None:
        """Adapt to the `load` since this was called last, at `now` (seconds)."""
        # Where others take the processor a loop is ready to run all the time, and keeps up all the same.
        loop_short = load.loop_busy >= SATURATED and (load.served < SERVED or load.late >= LATE_SECONDS)
        decoders_short = load.standing >= STANDING_SECONDS or load.decoders_busy >= SATURATED
        if loop_short or (decoders_short and load.served < SERVED):
            self._short_since = min(self._short_since, now)
            self._served.append(load.served)
        else:
            self._short_since = math.inf
            self._served.clear()
        if now - max(self._short_since, self._cut_at) >= STANDING_SECONDS:
            proved = CUT * statistics.fmean(self._served)
            self._scale(max(KEPT_LEAST, min(proved, CUT_LOOP) if loop_short else proved), wants)
            self._cut_at, self._probe = now, PROBE
            self._served.clear()
        elif self.limited and now - self._cut_at >= SETTLE_SECONDS and now - self._raised_at >= STANDING_SECONDS:
            self._scale(min(GROWTH_MOST, max(self._probe, FULL / max(load.decoders_busy, load.loop_busy, 0.1))), wants)
            self._raised_at, self._probe = now, 1.0 + (self._probe - 1.0) * PROBE_POWER

    def _scale(self, factor: float, wants: Sequence[Want]) -> None:
        """Let all cameras together use `factor` times what they use now, each as far as it may."""
        wants = [want for want in wants if want.target]
        allowed = factor * sum(_work(want, self.seconds) for want in wants)
        if allowed >= sum(_work(want, math.inf) for want in wants):
            self.seconds = math.inf
            return
        low, high = (choose(_work(want, each) for want in wants) for choose, each in ((min, 0.0), (max, math.inf)))
        low = max(LEAST_SECONDS, low)
        while high > 1.01 * low:
            middle = (low + high) / 2
            if sum(_work(want, middle) for want in wants) > allowed:
                high = middle
            else:
                low = middle
        self.seconds = low


def _work(want: Want, seconds: float) -> float:
    """Seconds of a decoder per second that `want` takes where each may use `seconds`."""
    cost = want.cost or COST_UNKNOWN
    most = want.target * cost
    return most if want.urgent else min(most, max(want.least * cost, seconds))
