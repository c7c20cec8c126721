"""Detection of cameras that are analysed, or send frames, too rarely: the status always says so.

`RateAdapter` passes running totals twice a second, and they are compared once per period of some seconds. A camera is
short if its frames are superseded before their turn and fewer than its minimum are analysed. It is slow if it sends too
few to detect flames. A period in which the shard did not run says nothing.
"""

from dataclasses import dataclass

from embereye.detect.vision.thresholds import FLICKER_RATE
from embereye.units import SECOND

PERIOD_NS = 4 * SECOND  # over which frames are counted; longer than a pause of the machine
SLACK = 0.9  # of the minimum rate: a camera that sends no more than that may lose a frame per period
SLOW_PERIODS = 3  # in a row; after fewer, the camera may have just started or returned


@dataclass(slots=True)
class Shortfall:
    """Compares, per period, how many frames of one camera were analysed with how many should have been."""

    reason: str = ""  # for people; empty: it gets its minimum rate, or sends less
    slow: str = ""  # for people: why it sends too few frames to detect flames; empty: it sends enough
    _slow_periods: int = 0
    _began_ns: int = 0
    _analysed: int = 0
    _superseded: int = 0

    def judge(self, now_ns: int, *, analysed: int, superseded: int, least: float, arriving: float) -> None:
        """Judge by the running totals at `now_ns`; `arriving` frames/s come, and `least` of them should be analysed.

        Only superseded frames are the shard's fault: they waited until the next frame replaced them.
        """
        passed_ns = now_ns - self._began_ns
        if 0 <= passed_ns < PERIOD_NS:
            return
        rate = (analysed - self._analysed) * SECOND / max(1, passed_ns)
        short = rate < SLACK * min(least, arriving) and superseded > self._superseded
        known = self._began_ns and 0 < passed_ns < 2 * PERIOD_NS  # else the shard was not running
        self.reason = (
            f"{rate:.1f} frames/s analysed, below its minimum of {least:g}. {REMEDY}" if known and short else ""
        )
        self._began_ns, self._analysed, self._superseded = now_ns, analysed, superseded
        if arriving >= SLACK * FLICKER_RATE:
            self._slow_periods = 0
        elif known and arriving:
            self._slow_periods += 1
        slow = self._slow_periods >= SLOW_PERIODS
        self.slow = (
            f"it sends {arriving:.1f} frames/s, too few to detect flames ({FLICKER_RATE:g} needed)" if slow else ""
        )


REMEDY = "Add shards, give them more CPU, or lower fps.min"
