"""The share of the pool's time that each camera may use, reduced while the pool is overloaded.

`RateAdapter` calls `adapt` twice a second with the pool's load and all cameras' demands. An overload that lasts cuts
the budget to a little less than the work that was served. After that it is raised step by step until no camera is
limited. A step sets the work of all cameras together; bisection finds the share per camera that leads to it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A suspended machine leaves frames waiting too, but they are gone once it resumes. As in CoDel (RFC 8289), only a
# backlog that lasts this long is an overload, however late single frames are.
OVERLOAD_SECONDS = 0.5  # age of a backlog that is an overload; also how long a cut takes to show its effect
SATURATED = 0.97  # of the time; at this load there is no spare time
FULL = 0.95  # of the time; a pool that is less busy gets enough more work to reach it
# average wait of results for the event loop; a saturated loop that is later than this is overloaded
LATE_SECONDS = 0.05
SERVED = 0.95  # of the frames get their turn before the next one arrives: no overload, however old the backlog
CUT = 0.95  # at a cut, new work relative to the work that was served
CUT_LOOP = 0.8  # at a cut because of the event loop, work relative to now: its load does not show its capacity
CUT_MIN = 0.5  # smallest factor of a cut: one bad measurement must not cost everything
RAISE_DELAY_SECONDS = 1.0  # between a cut and the first raise
GROWTH_MAX = 1.5  # largest factor of a raise
PROBE = 1.04  # factor of the work while the pool is neither overloaded nor idle; each step in a row is larger
PROBE_POWER = 1.5  # each further step is larger than the previous one by this factor
COST_UNKNOWN = 0.001  # seconds per frame, while no camera's cost is known
MIN_SECONDS = 0.001  # smallest budget: a raise multiplies it, and zero would stay zero


@dataclass(frozen=True, slots=True)
class Want:
    """One camera's demand on the pool."""

    target: float  # frames/s that arrive and are wanted; 0: every frame, without limit
    least: float  # frames/s that are never refused
    cost: float  # seconds of a decoder per frame; 0: not known yet
    urgent: bool = False  # it always gets its target


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The pool's load since the previous measurement."""

    decoders_busy: float  # share of the time that they worked, 0..1
    loop_busy: float  # share of the time that the event loop ran or waited for a CPU, 0..1
    backlog_age_seconds: float  # since when frames have always been waiting
    served: float  # share of the admitted frames that got a turn before being superseded, 0..1
    late: float  # average seconds that results waited for the event loop; infinite: no results


class PoolBudget:
    """One number for all cameras: the decoder seconds per second that each may use.

    Cameras that want less are not limited, so expensive ones do not slow down cheap ones. A backlog with idle moments
    or spare time is a pause of the machine and limits no camera.
    """

    def __init__(self) -> None:
        self.seconds = math.inf  # decoder seconds per second and camera
        self._cut_at = -math.inf  # seconds
        self._raised_at = -math.inf  # seconds
        self._short_since = math.inf  # seconds; infinite: the pool is not overloaded
        self._served: list[float] = []  # shares of frames served since the overload began
        self._probe = PROBE

    @property
    def is_limited(self) -> bool:
        """True if any camera may get less than it wants."""
        return self.seconds < math.inf

    def rate(self, want: Want) -> float:
        """The frames/s of a camera to analyse; infinite: all."""
        if want.urgent or not self.is_limited:
            return math.inf
        return max(want.least, self.seconds / (want.cost or COST_UNKNOWN))

    def adapt(self, load: PoolLoad, wants: Sequence[Want], now: float) -> None:
        """Adapt the budget to the `load` since the previous call, at `now` (seconds)."""
        # If other processes use the CPUs, a loop is always ready to run, but it may still keep up.
        loop_short = load.loop_busy >= SATURATED and (load.served < SERVED or load.late >= LATE_SECONDS)
        decoders_short = load.backlog_age_seconds >= OVERLOAD_SECONDS or load.decoders_busy >= SATURATED
        if loop_short or (decoders_short and load.served < SERVED):
            self._short_since = min(self._short_since, now)
            self._served.append(load.served)
        else:
            self._short_since = math.inf
            self._served.clear()
        if now - max(self._short_since, self._cut_at) >= OVERLOAD_SECONDS:
            proved = CUT * statistics.fmean(self._served)
            self._scale(max(CUT_MIN, min(proved, CUT_LOOP) if loop_short else proved), wants)
            self._cut_at, self._probe = now, PROBE
            self._served.clear()
        elif (
            self.is_limited and now - self._cut_at >= RAISE_DELAY_SECONDS and now - self._raised_at >= OVERLOAD_SECONDS
        ):
            self._scale(min(GROWTH_MAX, max(self._probe, FULL / max(load.decoders_busy, load.loop_busy, 0.1))), wants)
            self._raised_at, self._probe = now, 1.0 + (self._probe - 1.0) * PROBE_POWER

    def _scale(self, factor: float, wants: Sequence[Want]) -> None:
        """Let all cameras together use `factor` times what they use now, within each camera's limits."""
        wants = [want for want in wants if want.target]
        allowed = factor * sum(_work(want, self.seconds) for want in wants)
        if allowed >= sum(_work(want, math.inf) for want in wants):
            self.seconds = math.inf
            return
        low, high = (choose(_work(want, share) for want in wants) for choose, share in ((min, 0.0), (max, math.inf)))
        low = max(MIN_SECONDS, low)
        while high > 1.01 * low:
            middle = (low + high) / 2
            if sum(_work(want, middle) for want in wants) > allowed:
                high = middle
            else:
                low = middle
        self.seconds = low


def _work(want: Want, seconds: float) -> float:
    """The decoder seconds per second that `want` takes if each camera may use `seconds`."""
    cost = want.cost or COST_UNKNOWN
    most = want.target * cost
    return most if want.urgent else min(most, max(want.least * cost, seconds))
