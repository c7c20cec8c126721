"""Who is looked at next, how often, and who not at all: decisions on costs and times, without a clock or a thread."""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from embereye.units import SECOND

Key = TypeVar("Key")  # a camera, hashable


LONG_SECONDS = 0.2  # that somebody has been in line without a break
EARLY = 0.8  # of the target period: cameras jitter, and every second frame of a doubled rate is on time
LEAST_EARLY = 0.9  # of the least rate's period: the frame behind it may be a whole period of the camera later
LATE_SECONDS = 0.1  # that a frame may wait for its turn; more, and the pool does not keep up
CALM_SECONDS = 0.03
LATE_FRAMES = 3  # in a row: one pause of the machine is no overload
CUT = 0.75  # of the rate is kept at every cut
CUT_UNSEEN = 0.5  # the same where frames take each other's place
UNSEEN_SECONDS = 0.4  # that a camera waits for its turn before that counts: behind a short pause the pool catches up
CUT_NS = SECOND // 2  # between two cuts: the last one takes effect first
RAISE = 1.0  # frames/s
RAISE_NS = SECOND  # between two raises
CALM_NS = 3 * SECOND  # without a frame that waited CALM_SECONDS before the first raise
LOOKS_PER_DEADLINE = 2.0  # frames of a camera that have to be analysed within its deadline, whatever its fps.min says
FULL, ROOM = 0.9, 0.75  # of the pool's time: above FULL cameras are refused, below ROOM they are taken again
REFUSE_NS = 5 * SECOND  # that the pool has to be too small for


@dataclass(slots=True)
class _Place:
    tag: float = 0.0  # virtual seconds: pool time that this camera has had, or forgone
    began: float = float("-inf")  # when it was looked at last, seconds
    entered: float = 0.0
    stamp: int = 0  # of its entries in the heaps; 0: it is not in line


class Line(Generic[Key]):
    """Start-time fair queueing (Goyal et al., 1996) over measured seconds, with a floor for everybody.

    A camera's mailbox holds one frame, so it leaves the line at every turn: a round-robin that keeps a deficit only
    for those in line would forget what an expensive camera owes. Here everybody's tag grows by the time that was
    spent on them, the smallest tag is next, and whoever was away starts at the present. Those that have not been
    looked at for their longest allowed pause come before all others, the latest first; then those under suspicion.

    While the line has not been long for LONG_SECONDS all that would be of no use: whoever came first is next, so that
    nobody's frame waits until the one behind it takes its place.
    """

    def __init__(self) -> None:
        self._places: dict[Key, _Place] = {}
        self._fair: list[tuple[bool, float, int, Key]] = []
        self._due: list[tuple[float, int, Key]] = []
        self._come: deque[tuple[int, Key]] = deque()
        self._since = 0.0  # when somebody came into the empty line
        self._stamps = itertools.count(1)
        self._present = 0.0  # virtual seconds: the tag of whoever was picked last
        self._owed = 0.0  # the largest tag of those who came first: forgiven once nobody waits
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def enter(self, key: Key, now: float, *, pause: float, urgent: bool) -> bool:
        """Put `key` in line at `now`, not to be left alone for more than `pause` seconds; False where it is in line."""
        place = self._places.setdefault(key, _Place())
        if place.stamp:
            return False
        place.entered, place.stamp = now, next(self._stamps)
        place.tag = max(place.tag, self._present)
        if not self._waiting:
            self._since = now
        self._waiting += 1
        self._come.append((place.stamp, key))
        heapq.heappush(self._fair, (not urgent, place.tag, place.stamp, key))
        heapq.heappush(self._due, (place.began + pause, place.stamp, key))
        return True

    def pick(self, now: float) -> tuple[Key, float] | None:
        """Take whoever is next out of the line, and how many seconds it waited; None where nobody can be looked at."""
        while self._due and self._due[0][0] <= now:
            _, stamp, key = heapq.heappop(self._due)
            if self._stands(key, stamp):
                return self._take(key, now)
        while self._fair and not self._stands(self._fair[0][3], self._fair[0][2]):
            heapq.heappop(self._fair)
        if not self._fair:
            return None
        while not self._stands(self._come[0][1], self._come[0][0]):
            self._come.popleft()
        calm, tag, _, key = self._fair[0]
        if calm and now - self._since < LONG_SECONDS:
            key = self._come[0][1]
            self._owed = max(self._owed, self._places[key].tag)
        else:
            self._present = max(self._present, tag)
        return self._take(key, now)

    def _stands(self, key: Key, stamp: int) -> bool:
        """Whether an entry of the heaps is the one that counts: each camera has one in both."""
        place = self._places.get(key)
        return place is not None and place.stamp == stamp

    def _take(self, key: Key, now: float) -> tuple[Key, float]:
        place = self._places[key]
        place.stamp, place.began = 0, now
        self._waiting -= 1
        if not self._waiting:
            self._present = max(self._present, self._owed)
            self._fair.clear()
            self._due.clear()
            self._come.clear()
        return key, now - place.entered

    def charge(self, key: Key, seconds: float) -> None:
        """Count `seconds` that were spent on `key`."""
        if place := self._places.get(key):
            place.tag += seconds

    def forget(self, key: Key) -> None:
        """Take `key` out of the line and drop what is known of it."""
        place = self._places.pop(key, None)
        self._waiting -= bool(place and place.stamp)


class Pace:
    """How many frames of one camera are looked at: its target, less while the pool does not keep up.

    Additive increase, multiplicative decrease on the time that frames wait for their turn: cameras that share a pool
    end up with equal shares of what it can do, and it is left some air, so that what is looked at is fresh.
    """

    def __init__(self) -> None:
        self.target = 0.0  # frames/s; 0: all there are, and nothing is ever cut
        self.least = 0.0  # frames/s that are kept
        self.rate = 0.0  # frames/s now
        self._taken_ns = 0  # when a frame was taken last
        self._due_ns = 0  # when the next one is expected
        self._credit = 1.0  # frames
        self._exceeded = False  # the last frame came too soon behind the one before
        self._late = 0  # frames in a row that waited too long
        self._cut_ns = 0
        self._raised_ns = 0
        self._disturbed_ns = 0  # when a frame last waited noticeably

    def configure(self, target: float, least: float) -> None:
        """Take new limits in frames/s."""
        if target != self.target:
            self.rate = target
        self.target, self.least, self._exceeded = target, min(least, target), False
        self.rate = max(self.rate, self.least)

    @property
    def cut(self) -> bool:
        """Whether the pool does not keep up with this camera."""
        return self.rate < self.target

    def take(self, now_ns: int, early_ns: int = 0) -> str:
        """Whether a frame that arrives at `now_ns` is looked at: '', or why it is shed.

        While the rate is cut it may come `early_ns` before its time.
        """
        if not self.target:
            return ""
        period = int(SECOND / self.target)
        self._exceeded = int((1 - EARLY) * period) < self._due_ns - now_ns <= period  # more: the clock was set back
        if self._exceeded:
            return "above target rate"
        elapsed = now_ns - self._taken_ns
        if self.cut:
            # Credit, not a shortest pause: of a camera that sends 15/s, pauses make either 15 or 7.5, never 10.
            credit = min(2.0, self._credit + elapsed * self.rate / SECOND)
            if now_ns + early_ns < self.wanted_ns:
                return "overload"
            self._credit = max(-1.0, credit - 1.0)
        self._taken_ns = now_ns
        # A frame that was held up on its way does not make the one behind it, which is on time, come too early.
        self._due_ns = min(now_ns, max(self._due_ns, now_ns - period)) + period if self._due_ns else now_ns + period
        return ""

    @property
    def wanted_ns(self) -> int:
        """Before when no frame is looked at; 0: the rate is neither cut nor exceeded."""
        if not self.cut and not self._exceeded:
            return 0
        wanted_ns = self._due_ns - int((1 - EARLY) * int(SECOND / self.target))
        if self.cut:
            pause = min((1.0 - self._credit) / self.rate, LEAST_EARLY / max(self.least, 0.001))
            wanted_ns = max(wanted_ns, self._taken_ns + int(pause * SECOND))
        return wanted_ns

    def learn(self, waited: float, now_ns: int, *, urgent: bool, unseen: bool = False) -> None:
        """A frame had its turn at `now_ns` after `waited` seconds; an `urgent` camera is never cut.

        `unseen`: it had no turn, the next frame took its place, so that at most every second one has a turn.
        """
        if waited > CALM_SECONDS:
            self._disturbed_ns = now_ns
        if unseen:
            self._late += waited > UNSEEN_SECONDS
        else:
            self._late = self._late + 1 if waited > LATE_SECONDS else 0
        if urgent:
            self.rate = self.target
        elif self._late >= LATE_FRAMES:
            if now_ns - self._cut_ns >= CUT_NS:
                kept = CUT_UNSEEN if unseen else CUT
                self.rate, self._cut_ns, self._late = max(self.least, kept * self.rate), now_ns, 0
        elif self.rate < self.target:
            calm = now_ns - max(self._disturbed_ns, self._cut_ns) >= CALM_NS
            if calm and now_ns - self._raised_ns >= RAISE_NS:
                self.rate, self._raised_ns = min(self.target, self.rate + RAISE), now_ns


def least_rate(fps_min: float, deadline_ns: int) -> float:
    """Frames/s below which a camera breaks its `fps.min` or its deadline."""
    return max(fps_min, LOOKS_PER_DEADLINE * SECOND / deadline_ns)


@dataclass(frozen=True)
class Demand:
    """The least that one camera needs of the pool."""

    camera: str
    rate: float  # frames/s
    cost: float  # seconds of one thread per frame; 0: not known yet

    @property
    def share(self) -> float:
        """Of one thread."""
        return self.rate * self.cost


class Admission:
    """Which cameras the pool cannot serve even at their least rate. The others are served as if those were not there.

    Whoever was there first stays: a camera that is added must not darken one that was watched.
    """

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # camera: why, for people
        self._short_ns = 0  # since when the pool has been too small; 0: it is not

    def decide(self, demands: Iterable[Demand], threads: int, now_ns: int) -> None:
        """Look at the demands of all cameras, the oldest camera first."""
        demands = list(demands)
        known = {demand.camera for demand in demands}
        served = sum(demand.share for demand in demands if demand.camera not in self.refused)
        self.refused = {camera: why for camera, why in self.refused.items() if camera in known}
        if served <= FULL * threads:
            self._short_ns = 0
            self._take_back(demands, served, threads)
            return
        self._short_ns = self._short_ns or now_ns
        if now_ns - self._short_ns < REFUSE_NS:
            return
        taken = 0.0
        for demand in demands:
            if demand.camera in self.refused:
                continue
            if taken + demand.share > FULL * threads:
                self.refused[demand.camera] = _refusal(demand, taken, threads)
            else:
                taken += demand.share

    def _take_back(self, demands: list[Demand], served: float, threads: int) -> None:
        for demand in demands:
            if demand.camera in self.refused:
                if served + demand.share <= ROOM * threads:
                    served += demand.share
                    del self.refused[demand.camera]
                else:
                    self.refused[demand.camera] = _refusal(demand, served, threads)


def _refusal(demand: Demand, taken: float, threads: int) -> str:
    return (
        f"refused: at {demand.rate:g} frames/s of {1e3 * demand.cost:.0f} ms this camera needs"
        f" {100 * demand.share:.0f} % of a thread, and the others need {100 * taken:.0f} % of this shard's"
        f" {100 * threads} %: add shards, or lower its fps.min or its resolution"
    )
