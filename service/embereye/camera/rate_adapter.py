"""The analysis rates of a shard's cameras, adapted to the pool's load, and the refusal of those it cannot serve.

The shard's tick calls `adapt` twice a second. It measures the pool's load since the last call and passes it, with each
camera's demand, to the `PoolBudget`. The budget decides the decoder seconds per second that each camera may use. From
that follow the rate of each camera and, for a video, the pictures that are decoded. `admit` lets `CameraAdmission`
refuse cameras if even the minimum rates of all are too much.
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from embereye.camera.decode.pool import DecoderPool
from embereye.camera.device.camera import CameraDevice
from embereye.camera.scheduling.admission import CameraAdmission, Demand
from embereye.camera.scheduling.live_pause import LivePause
from embereye.camera.scheduling.pool_budget import PoolBudget, PoolLoad, Want
from embereye.camera.scheduling.video import ROTATION_SECONDS, Depth
from embereye.camera.scheduling.video_mailbox import VIDEO_SLOTS
from embereye.process.timing.thread_time import ThreadTime


@dataclass(frozen=True, slots=True)
class _Totals:
    """Counts up to one moment."""

    at: float = 0.0  # monotonic seconds
    busy: float = 0.0  # seconds of all decoders
    analysed: int = 0  # frames
    superseded: int = 0  # frames
    finished: int = 0  # turns
    waited: float = 0.0  # seconds that results waited for the event loop


class RateAdapter:
    """Measures the pool's load and adapts the cameras' rates, or refuses cameras. Use it on the event loop."""

    def __init__(self, pool: DecoderPool) -> None:
        self.admission = CameraAdmission()
        self.budget = PoolBudget()
        self.live_pause = LivePause()
        self.load = PoolLoad(decoders_busy=0.0, loop_busy=0.0, backlog_age_seconds=0.0, served=1.0, late=0.0)
        self._pool = pool
        self._thread: ThreadTime | None = None
        self._before = _Totals()

    @property
    def is_overloaded(self) -> bool:
        """True if cameras are analysed less often than they should be, or not at all, because CPU time is missing."""
        return self.budget.is_limited or bool(self.admission.refused)

    def adapt(self, cameras: Collection[CameraDevice], now_ns: int) -> None:
        """Set every camera's rate from the load since the last call, at `now_ns` (Unix epoch)."""
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
        # Cameras that are handed over remove their counts from the sum.
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
        rotation = totals.at / ROTATION_SECONDS
        for camera, want in zip(cameras, wants, strict=True):
            video, rates = camera.arrivals.video, camera.arrivals.mailbox.rate_controller
            if camera.encoding:
                # Fewer analysed pictures of a video save up to a third of the work; after that, decode less.
                video.slots = 1 if self.budget.is_limited else VIDEO_SLOTS
                seconds, flow = self.budget.seconds, video.flow
                video.depth = flow.depth(seconds, (camera.phase + rotation) % 1.0, camera.arrivals.least_rate)
                rates.grant(flow.analysis_rate(seconds, video.depth))
            else:
                rates.grant(self.budget.rate(want))
            camera.arrivals.judge_rate(now_ns)

    def admit(self, cameras: Mapping[str, CameraDevice], now_ns: int) -> None:
        """Refuse cameras for which the pool is too small, and admit them again, at `now_ns` (Unix epoch)."""
        demands = [_demand(name, camera) for name, camera in cameras.items()]
        self.admission.decide(demands, self._pool.count, now_ns)
        for name, camera in cameras.items():
            camera.arrivals.refused = self.admission.refused.get(name, "")


def _demand(name: str, camera: CameraDevice) -> Demand:
    """The minimum that `camera` needs: its minimum rate, or a video's key frames."""
    flow = camera.arrivals.video.flow
    if camera.encoding and flow.is_known:
        return Demand(name, flow.key_rate, flow.key_seconds or flow.cost)
    return Demand(name, camera.arrivals.least_rate, camera.analyser.cost.frame_seconds)


def _want(camera: CameraDevice, now_ns: int) -> Want:
    """Return the demand of `camera` on the pool; for a video, all units are wanted and key frames are the minimum.

    A calm camera wants its checks only.
    """
    arrivals, flow = camera.arrivals, camera.arrivals.video.flow
    if camera.encoding and flow.is_known:
        if arrivals.calm.is_calm:
            return Want(flow.key_rate, flow.key_rate, (flow.key_seconds or flow.cost) + flow.analysis_seconds)
        return Want(flow.rate, flow.work(Depth.KEYS) / flow.cost, flow.cost, camera.urgent)
    if arrivals.calm.is_calm:
        rate = min(arrivals.calm.check_rate, arrivals.wanted_rate(now_ns))
        return Want(rate, min(rate, arrivals.least_rate), camera.analyser.cost.frame_seconds)
    return Want(arrivals.wanted_rate(now_ns), arrivals.least_rate, camera.analyser.cost.frame_seconds, camera.urgent)
