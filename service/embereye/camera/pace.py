"""The pace of a shard's cameras: measures whether the pool keeps up, and gives each camera its rate."""

import time
from collections.abc import Collection
from dataclasses import dataclass

from embereye.camera.decode.pool import DecoderPool
from embereye.camera.device.camera import CameraDevice
from embereye.camera.scheduling.pool_budget import PoolBudget, PoolLoad, Want
from embereye.process.thread_time import ThreadTime


@dataclass(frozen=True, slots=True)
class _Totals:
    """What was counted up to one moment."""

    at: float = 0.0  # monotonic seconds
    busy: float = 0.0  # seconds of all decoders
    analysed: int = 0  # frames
    superseded: int = 0  # frames


class Pace:
    """Reads the pool and its cameras and adapts their rates; on the event loop."""

    def __init__(self, pool: DecoderPool) -> None:
        self.budget = PoolBudget()
        self.load = PoolLoad(decoders_busy=0.0, loop_busy=0.0, standing=0.0, served=1.0)
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
        )
        before, self._before = self._before, totals
        passed = max(1e-3, totals.at - before.at)
        # Cameras that are handed over take their counts with them.
        analysed, superseded = max(0, totals.analysed - before.analysed), max(0, totals.superseded - before.superseded)
        self.load = PoolLoad(
            decoders_busy=min(1.0, (totals.busy - before.busy) / passed / self._pool.count),
            loop_busy=self._thread.busy_share(),
            standing=self._pool.standing,
            served=analysed / (analysed + superseded) if superseded else 1.0,
        )
        wants = [
            Want(of.arrivals.wanted_rate(now_ns), of.arrivals.least_rate, of.analyser.cost.frame_seconds, of.urgent)
            for of in cameras
        ]
        self.budget.adapt(self.load, wants, totals.at)
        for camera, want in zip(cameras, wants, strict=True):
            camera.arrivals.mailbox.rate_controller.grant(self.budget.rate(want))
            camera.arrivals.judge_rate(now_ns)
