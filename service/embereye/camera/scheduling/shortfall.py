"""Detection of cameras that are analysed, or send frames, too rarely: the status always says so.

`RateAdapter` passes running totals twice a second, and they are compared once per period of some seconds. A camera is
short if its frames are superseded before their turn and fewer than its minimum are analysed, or if only the key frames
of its video are decoded, which are too few. It is slow if it sends too few to detect flames. A period in which the
shard did not run says nothing.

A shortage is reported after `SHORT_PERIODS`, and until `AMPLE_PERIODS` had none. A shard at its limit would otherwise
change its status every few seconds, and each change is an Event and a write to the API server.
"""

from dataclasses import dataclass

from embereye.camera.scheduling.video import ROTATION_SECONDS
from embereye.detect.vision.thresholds import FLICKER_RATE
from embereye.units import SECOND

PERIOD_NS = 4 * SECOND  # over which frames are counted; longer than a pause of the machine
SLACK = 0.9  # of the minimum rate: a camera that sends no more than that may lose a frame per period
SHORT_PERIODS = 2  # in a row; a single one is a moment without a CPU
# In a row without a shortage: longer than the rotation in which cameras take turns at decoding key frames only.
AMPLE_PERIODS = int(ROTATION_SECONDS * SECOND / PERIOD_NS) + 1
SLOW_PERIODS = 3  # in a row; after fewer, the camera may have just started or returned


@dataclass(slots=True)
class Shortfall:
    """Compares, per period, how many frames of one camera were analysed with how many should have been."""

    reason: str = ""  # for people; empty: it gets its minimum rate, or sends less
    slow: str = ""  # for people: why it sends too few frames to detect flames; empty: it sends enough
    _short_periods: int = 0
    _ample_periods: int = 0
    _slow_periods: int = 0
    _key_frames_only: str = ""  # the reason of this period, if any
    _began_ns: int = 0
    _analysed: int = 0
    _superseded: int = 0

    def judge(
        self, now_ns: int, *, analysed: int, superseded: int, least: float, arriving: float, key_frames_only: str = ""
    ) -> None:
        """Judge by the running totals at `now_ns`; `arriving` frames/s come, and `least` of them should be analysed.

        Only superseded frames are the shard's fault: they waited until the next frame replaced them.
        `key_frames_only` is the reason if the shard decodes key frames only at present, and those are too few.
        """
        passed_ns = now_ns - self._began_ns
        self._key_frames_only = key_frames_only or self._key_frames_only
        if 0 <= passed_ns < PERIOD_NS:
            return
        rate = (analysed - self._analysed) * SECOND / max(1, passed_ns)
        short = rate < SLACK * min(least, arriving) and superseded > self._superseded
        known = self._began_ns and 0 < passed_ns < 2 * PERIOD_NS  # else the shard was not running
        too_few = f"{rate:.1f} frames/s analysed, below its minimum of {least:g}. {REMEDY}" if short else ""
        self._note_period(self._key_frames_only or too_few if known else "")
        self._began_ns, self._analysed, self._superseded = now_ns, analysed, superseded
        self._key_frames_only = ""
        if arriving >= SLACK * FLICKER_RATE:
            self._slow_periods = 0
        elif known and arriving:
            self._slow_periods += 1
        slow = self._slow_periods >= SLOW_PERIODS
        self.slow = (
            f"it sends {arriving:.1f} frames/s, too few to detect flames ({FLICKER_RATE:g} needed)" if slow else ""
        )

    def _note_period(self, shortage: str) -> None:
        """Begin, continue or end the report of a shortage after a period; '' for a period without one."""
        self._short_periods = self._short_periods + 1 if shortage else 0
        self._ample_periods = 0 if shortage else self._ample_periods + 1
        if self._ample_periods >= AMPLE_PERIODS:
            self.reason = ""
        elif self._short_periods >= SHORT_PERIODS:
            self.reason = self.reason or shortage  # one cause may hide the other from period to period


REMEDY = "Add shards, give them more CPU, or lower fps.min"
