"""The rates of a shard's cameras: measures whether the pool keeps up, and gives each camera its rate."""

import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from embereye.camera.decode.pool import DecoderPool
from embereye.camera.device.camera import CameraDevice
from embereye.camera.scheduling.mailbox import VIDEO_SLOTS
from embereye.camera.scheduling.pool_budget import PoolBudget, PoolLoad, Want
from embereye.camera.scheduling.video import ROTATION_SECONDS, Depth
from embereye.process.timing.thread_time import ThreadTime


@dataclass(frozen=True, slots=True)
class _Totals:
    """What was counted up to one moment."""

    at: float = 0.0  # monotonic seconds
    busy: float = 0.0  # seconds of all decoders
    analysed: int = 0  # frames
    superseded: int = 0  # frames
    finished: int = 0  # turns
    waited: float = 0.0  # seconds, of their results for the event loop


class RateAdapter:
    """Reads the pool and its cameras and adapts their rates; on the event loop."""

    def __init__(self, pool: DecoderPool) -> None:
        self.budget = PoolBudget()
        self.load = PoolLoad(decoders_busy=0.0, loop_busy=0.0, backlog_age_seconds=0.0, served=1.0, late=0.0)
        self._pool = pool
        self._thread: ThreadTime | None = None
        self._before = _Totals()

    def adapt(self, cameras: Collection[CameraDevice], now_ns: int) -> None:
        """Give every camera its rate for the time to come, at `now_ns` (Unix epoch)."""
        self._thread = self._thread or ThreadTime()
        ledgers = [camera.arrivals.mailbox.ledger for camera in cameras]
        totals = _Totals(
            at=time.monotonic(),
            busy=self._pool.busy_seconds,
            analysed=sum(ledger.analysed for ledger in ledgers),
            superseded=sum(ledger.shed["superseded"] for ledger in ledgers),
            finished=self._pool.finished,
            waited=self._pool.results_waited,
        )
        before, self._before = self._before, totals
        passed = max(1e-3, totals.at - before.at)
        # Cameras that are handed over take their counts with them.
        analysed, superseded = max(0, totals.analysed - before.analysed), max(0, totals.superseded - before.superseded)
        finished = totals.finished - before.finished
        self.load = PoolLoad(
            decoders_busy=min(1.0, (totals.busy - before.busy) / passed / self._pool.count),
            loop_busy=self._thread.busy_share(),
            backlog_age_seconds=self._pool.backlog_age_seconds,
            served=analysed / (analysed + superseded) if superseded else 1.0,
            late=(totals.waited - before.waited) / finished if finished else math.inf,
        )
        wants = [_want(camera, now_ns) for camera in cameras]
        self.budget.adapt(self.load, wants, totals.at)
        turned = totals.at / ROTATION_SECONDS
        for camera, want in zip(cameras, wants, strict=True):
            mailbox = camera.arrivals.mailbox
            if mailbox.encoding:
                # To look at fewer pictures of a video saves a third of the work; then what is decoded less counts.
                mailbox.slots = 1 if self.budget.limited else VIDEO_SLOTS
                seconds, flow = self.budget.seconds, mailbox.flow
                mailbox.depth = flow.depth(seconds, (camera.phase + turned) % 1.0, camera.arrivals.least_rate)
                mailbox.rate_controller.grant(flow.analysis_rate(seconds, mailbox.depth))
            else:
                mailbox.rate_controller.grant(self.budget.rate(want))
            camera.arrivals.judge_rate(now_ns)


def _want(camera: CameraDevice, now_ns: int) -> Want:
    """What `camera` would use of the pool: of a video all of its units are decoded, or its key frames at least."""
    arrivals, flow = camera.arrivals, camera.arrivals.mailbox.flow
    if arrivals.mailbox.encoding and flow.known:
        return Want(flow.rate, flow.work(Depth.KEYS) / flow.cost, flow.cost, camera.urgent)
    return Want(arrivals.wanted_rate(now_ns), arrivals.least_rate, camera.analyser.cost.frame_seconds, camera.urgent)
