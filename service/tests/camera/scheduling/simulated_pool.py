"""Simulation of cameras that share a pool: real mailboxes, fair queue and rates; simulated clock, decoders, stalls.

It ignores the time for receiving and the kernel's scheduling, which `embereye bench cameras --only neighbour` measures.
"""

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.mailbox import Frame, Mailbox
from embereye.camera.scheduling.pool_budget import PoolBudget, PoolLoad, Want
from embereye.units import SECOND

from ..conftest import noisy_jpeg

JPEG = noisy_jpeg(size=(16, 16))
TICK = 0.5  # seconds between two adaptations, as in a shard
JITTER = 0.1  # of a camera's period
LOOP_SECONDS = 0.0002  # of the event loop for receiving a frame, and for finishing one
AHEAD = 6  # frames that a decoder has at most
EPOCH_NS = 1_000 * SECOND
Stalls = list[tuple[float, float]]  # (begin, end) in seconds, in order, while a decoder does not run


@dataclass(eq=False)
class Camera:
    """One camera: its costs and the outcome of its frames."""

    rate: float  # frames/s sent
    cost: float  # seconds of a decoder per frame
    target: float
    least: float
    urgent: bool = False
    box: Mailbox = field(default_factory=Mailbox)
    analysed: list[float] = field(default_factory=list)  # times
    ages: list[float] = field(default_factory=list)  # from arrival to analysed

    def __post_init__(self) -> None:
        self.box.rate_controller.configure(self.target, self.least)


def slices(share: float, begin: float, end: float, mean: float, seed: int) -> Stalls:
    """Return stalls that take `share` of a decoder from `begin` to `end`, `mean` seconds each on average."""
    dice, stalls, now = random.Random(seed), [], begin
    while share and (now := now + dice.expovariate(share / mean / (1 - share))) < end:
        length = min(end - now, dice.expovariate(1 / mean))
        stalls.append((now, now + length))
        now += length
    return stalls


def merge(*stalls: Stalls) -> Stalls:
    """Merge the stalls, joining those that overlap."""
    merged: Stalls = []
    for begin, end in sorted(itertools.chain(*stalls)):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def time_got(stalls: Stalls, begin: float, end: float) -> float:
    """Return the seconds between `begin` and `end` in which a decoder with `stalls` ran."""
    return end - begin - sum(max(0.0, min(end, until) - max(begin, since)) for since, until in stalls)


def end_of_work(stalls: Stalls, now: float, seconds: float) -> float:
    """Return when `seconds` of work that begin at `now` are done."""
    end = now + seconds
    for begin, until in itertools.islice(stalls, bisect.bisect(stalls, now, key=lambda stall: stall[1]), None):
        if begin >= end:
            break
        end += until - max(begin, now)
    return end


class SimulatedPool:
    """Runs `cameras` on one decoder per list of stalls; `loop` are the event loop's stalls."""

    def __init__(self, cameras: Iterable[Camera], stalls: list[Stalls], loop: Stalls | None = None) -> None:
        self.cameras = list(cameras)
        self.rates: list[tuple[float, float]] = []  # (second, frames/s granted to all cameras together)
        self._stalls, self._loop_stalls = stalls, loop or []
        self._queue: FairQueue[Camera] = FairQueue()
        self.budget = PoolBudget()
        self._dice = random.Random(11)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()
        self._free = [0.0] * len(stalls)  # when each decoder will have finished its orders
        self._room = [AHEAD] * len(stalls)  # frames that each decoder may still get
        self._loop_free = 0.0  # when the event loop will have finished its work
        self._loop_busy = self._decoders_busy = 0.0  # seconds
        self._waited, self._finished = 0.0, 0  # seconds that results waited for the event loop, and their number
        self._counted = 0.0, 0.0, 0.0, 0, 0, 0.0, 0

    def run(self, seconds: float) -> None:
        """Send, analyse and adapt from 0 to `seconds`."""
        for number, camera in enumerate(self.cameras):
            for turn in range(int(seconds * camera.rate)):
                at = (turn + number / len(self.cameras) + JITTER * self._dice.random()) / camera.rate
                self._at(at, partial(self._on_loop, partial(self._arrive, camera)))
        for tick in range(1, int(seconds / TICK)):
            self._at(TICK * tick, partial(self._on_loop, self._tick))
        while self._events and self._events[0][0] < seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act))

    def _on_loop(self, act: Callable[[float], None], now: float) -> None:
        """Run `act` on the event loop after everything before it."""
        begin = max(now, self._loop_free)
        self._loop_free = end_of_work(self._loop_stalls, begin, LOOP_SECONDS)
        self._at(self._loop_free, partial(self._done_on_loop, act, self._loop_free - begin))

    def _done_on_loop(self, act: Callable[[float], None], seconds: float, now: float) -> None:
        self._loop_busy += seconds
        act(now)

    def _arrive(self, camera: Camera, now: float) -> None:
        now_ns = EPOCH_NS + int(now * SECOND)
        camera.box.offer_frame(JPEG, now_ns, now_ns, boosted=camera.urgent)
        if camera.box.waiting:
            self._queue.enter(camera, now, pause=1 / camera.least, urgent=camera.urgent)
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        while max(self._room) and (picked := self._queue.pick(now)):
            camera, _ = picked
            if frame := camera.box.take_frame():
                decoder = max(range(len(self._room)), key=lambda number: self._room[number])
                begin = max(now, self._free[decoder])
                done = end_of_work(self._stalls[decoder], begin, camera.cost)
                self._free[decoder] = done
                self._room[decoder] -= 1
                finish = partial(self._finish, decoder, camera, frame, done - begin, done)
                self._at(done, partial(self._on_loop, finish))

    def _finish(self, decoder: int, camera: Camera, frame: Frame, seconds: float, done: float, now: float) -> None:
        self._waited += now - done
        self._finished += 1
        self._room[decoder] += 1
        self._decoders_busy += seconds
        camera.box.count_analysed(frame)
        camera.analysed.append(now)
        camera.ages.append(now - (frame.received_ns - EPOCH_NS) / SECOND)
        self._queue.charge(camera, seconds)
        self._dispatch(now)

    def _tick(self, now: float) -> None:
        analysed = sum(camera.box.ledger.analysed for camera in self.cameras)
        missed = sum(camera.box.ledger.shed["superseded"] for camera in self.cameras)
        before = self._counted
        self._counted = now, self._decoders_busy, self._loop_busy, analysed, missed, self._waited, self._finished
        passed, decoders, loop, done, lost, waited, finished = (
            after - past for after, past in zip(self._counted, before, strict=True)
        )
        load = PoolLoad(
            decoders_busy=decoders / passed / len(self._stalls),
            loop_busy=loop / passed,
            backlog_age_seconds=self._queue.backlog_age_seconds(now),
            served=done / (done + lost) if done + lost else 1.0,
            late=waited / finished if finished else math.inf,
        )
        wants = [Want(min(of.rate, of.target), of.least, of.cost, of.urgent) for of in self.cameras]
        self.budget.adapt(load, wants, now)
        for camera, want in zip(self.cameras, wants, strict=True):
            camera.box.rate_controller.grant(self.budget.rate(want))
        self.rates.append((now, sum(camera.box.rate_controller.rate for camera in self.cameras)))
