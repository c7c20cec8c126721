"""Optical self-tests in a shard: the regions that are tested, and what was measured there.

The hub announces a test before it switches the lamp or the heater on. From then on, the device's detectors ignore the
test's region, and only that, until the hub ends the test or its limit has passed. The first frames give the values
before the test; then the largest rise is reported with the device's status.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from embereye.process.timing.clock import now_ns
from embereye.units import SECOND, Box, pixels_of
from embereye.v1.evidence_pb2 import DeviceStatus, SelfTest, SelfTests, SelfTestState

FRAMES = 3  # whose mean is the value before the test
MAX_NS = 600 * SECOND  # longest time that a region is ignored, also if the hub asks for more
KELVIN, PERCENT = "K", "%"
V = TypeVar("V", bound=np.generic)


class RunningTest:
    """A test of one device."""

    def __init__(self, test: SelfTest, seen: Callable[[], None], until_ns: int) -> None:
        """`seen` is called once the test's state changes."""
        region = test.region
        self.test = test
        self.box: Box = (region.x, region.y, region.width, region.height)
        self.rise = 0.0  # largest one
        self._seen = seen
        self._until_ns = until_ns
        self._frames, self._before = 0, 0.0

    def is_over(self, time_ns: int) -> bool:
        """True if its limit has passed, although the hub did not end it."""
        return time_ns >= self._until_ns

    @property
    def is_ready(self) -> bool:
        """True if the value before the test is known."""
        return self._frames >= FRAMES

    def observe(self, frame: NDArray[Any], unit: str) -> None:
        """Measure the region in a frame: in °C (rows, columns) for K, in 0..255 (rows, columns, channels) for %."""
        part = frame[pixels_of(self.box, *frame.shape[:2])]
        if unit != self.test.unit or not part.size:
            return
        value = float(part.mean()) / 2.55 if unit == PERCENT else float(np.max(part))
        if not math.isfinite(value):
            return  # the region is not measured in this frame
        if not self.is_ready:
            self._frames += 1
            self._before += (value - self._before) / self._frames
            if self._frames == FRAMES:
                self._seen()
            return
        was_seen = self.rise >= self.test.rise
        self.rise = max(self.rise, value - self._before)
        if not was_seen and self.rise >= self.test.rise:
            self._seen()


class FrozenRegion:
    """Replaces the region of a test by what it showed when the test began."""

    def __init__(self) -> None:
        self._test: RunningTest | None = None
        self._part: NDArray[Any] = np.zeros(0)

    def apply(self, frame: NDArray[V], test: RunningTest | None) -> NDArray[V]:
        """`frame` (rows, columns) without what the test shows; the same frame if `test` is None."""
        if test is None:
            self._test = None
            return frame
        region = pixels_of(test.box, *frame.shape[:2])
        if test is not self._test or self._part.shape != frame[region].shape:
            self._test, self._part = test, frame[region].copy()
        frozen = frame.copy()
        frozen[region] = self._part
        return frozen


class ShardTests:
    """The tests of a shard's devices, as the hub announced them last."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called on the event loop when a status has news."""
        self._changed = changed
        self._failed: Mapping[str, str] = {}
        self.running: dict[str, RunningTest] = {}  # by device

    def announce(self, tests: SelfTests) -> None:
        """Replace all tests; those that are known continue. For the event loop."""
        known = {test.test.id: test for test in self.running.values()}
        now = now_ns()
        loop = asyncio.get_running_loop()

        def seen() -> None:  # frames of temperatures are analysed on threads
            loop.call_soon_threadsafe(self._changed)

        self.running = {
            test.device: known.get(test.id) or RunningTest(test, seen, now + min(test.limit_ns, MAX_NS))
            for test in tests.running
        }
        self._failed = dict(tests.failed)
        self._changed()

    def add_to(self, status: DeviceStatus) -> DeviceStatus:
        """Add the test of the status's device, and the failure of its latest one."""
        if failed := self._failed.get(status.id):
            status.degraded = "; ".join(filter(None, (status.degraded, failed)))
        test = self.running.get(status.id)
        if test and test.is_ready:
            status.self_test.CopyFrom(SelfTestState(id=test.test.id, rise=test.rise))
        return status
