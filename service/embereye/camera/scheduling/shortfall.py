"""Whether a camera is analysed less often than its least rate, or than flames, ask for: that is never left unsaid."""

from dataclasses import dataclass

from embereye.detect.vision.thresholds import FLICKER_RATE
from embereye.units import SECOND

PERIOD_NS = 4 * SECOND  # over which frames are counted; a pause of the machine is over sooner
SLACK = 0.9  # of the least rate: a camera that sends no more than that may lose a frame in a period
SLOW_PERIODS = 3  # one after another; in fewer a camera may just have started, or come back


@dataclass(slots=True)
class Shortfall:
    """Compares what was analysed of one camera with what should have been, period by period."""

    reason: str = ""  # for people; empty: its least rate is kept, or it does not send as much
    slow: str = ""  # for people: why flames cannot be told by what it sends; empty: they can
    _slow_periods: int = 0
    _began_ns: int = 0
    _analysed: int = 0
    _superseded: int = 0

    def judge(self, now_ns: int, *, analysed: int, superseded: int, least: float, arriving: float) -> None:
        """Judge by the running totals at `now_ns`; `arriving` frames/s come, and `least` of them should be analysed.

        Only frames that waited until the next one took their place are the shard's fault.
        """
        passed_ns = now_ns - self._began_ns
        if 0 <= passed_ns < PERIOD_NS:
            return
        rate = (analysed - self._analysed) * SECOND / max(1, passed_ns)
        short = rate < SLACK * min(least, arriving) and superseded > self._superseded
        known = self._began_ns and 0 < passed_ns < 2 * PERIOD_NS  # else nobody was there to judge, nor to analyse
        self.reason = f"analysed {rate:.1f} times/s, its least rate is {least:g}: {REMEDY}" if known and short else ""
        self._began_ns, self._analysed, self._superseded = now_ns, analysed, superseded
        if arriving >= SLACK * FLICKER_RATE:
            self._slow_periods = 0
        elif known and arriving:
            self._slow_periods += 1
        slow = self._slow_periods >= SLOW_PERIODS
        self.slow = f"it sends {arriving:.1f} frames/s; flames need {FLICKER_RATE:g}" if slow else ""


REMEDY = "its shard has too little processor time; add shards, give them more processor, or lower fps.min"
