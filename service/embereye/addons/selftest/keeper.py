"""The self-tests: run on their schedules or by a person, one after the other, with their newest results.

A run announces the test to the device's shard, which from then on ignores the test's region, and only that. Once the
shard knows the values before the test, the lamp or heater is switched on. It must be seen within its bound. It is then
switched off, and the announcement ends after a cooldown. Nothing is switched if the shard does not answer, or the
device's zone is not normal.

A device that did not see its test is degraded until a later run sees it. A run that was not possible changes nothing,
but is shown, and is repeated after RETRY_SECONDS. Results are stored with an audit entry each.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from embereye.addons.selftest.options import DeclaredTest, SelfTestOptions
from embereye.addons.selftest.switch import SECONDS, SwitchError, switch
from embereye.addons.selftest.tables import SELFTESTS
from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.roles import HUB, Principal
from embereye.hub.tables.transaction import Rows
from embereye.levels import ZoneState
from embereye.process.tasks import first_of
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Region, SelfTest, SelfTests, SelfTestState

logger = logging.getLogger(__name__)
SEEN, UNSEEN, NOT_RUN, RUNNING = "seen", "not seen", "not run", "running"
READY_SECONDS = 15.0  # for the shard to measure the values before the test
SPARE_SECONDS = 60.0  # after which the shard ends a test that the hub forgot
RETRY_SECONDS = 300.0  # after a run that was not possible
POLL_SECONDS = 0.05
PERIOD_SECONDS = 1.0  # between two looks for due tests


@dataclass(frozen=True)
class Result:
    """The newest run of a test."""

    started_ns: int  # by the wall clock
    outcome: str  # one of the words above
    seconds: float = 0.0  # from the switch until it was seen
    rise: float = 0.0  # largest one, in the test's unit
    reason: str = ""  # why it was not run
    failed: bool = False  # it, or the newest run before it that was possible, was not seen


class NotRunError(Exception):
    """A test cannot be run now; the text says why."""


class SelfTestKeeper:
    """All self-tests. Let `run` run."""

    def __init__(self, options: SelfTestOptions, hub: Hub) -> None:
        self.options = options
        self._hub = hub
        self._rows = Rows(SELFTESTS)
        hub.add_part(self._rows)
        self._queue: dict[str, Principal] = {}  # tests that people started, in order
        self._wake = asyncio.Event()
        self._announce()

    # People

    def results(self) -> Mapping[str, Result | None]:
        """The newest result of each test, by name; None: it was never run."""
        return {name: self._result(name) for name in self.options.tests}

    def next_ns(self, name: str) -> int:
        """When a test is due, by the wall clock; 0: it was never run, so it is due now."""
        result = self._result(name)
        if result is None:
            return 0
        every = self.options.tests[name].every
        return result.started_ns + int(SECOND * (min(every, RETRY_SECONDS) if result.outcome == NOT_RUN else every))

    def start(self, by: Principal, name: str) -> None:
        """Run a test next. Raises UnknownNameError, and ConflictError if it runs or waits already."""
        if name not in self.options.tests:
            raise UnknownNameError(f"there is no self-test {name[:80]}")
        if name in self._queue:
            raise ConflictError(f"the self-test {name} runs or waits already")
        self._queue[name] = by
        self._wake.set()

    def is_waiting(self, name: str) -> bool:
        """True if a test runs, or waits for one that runs."""
        return name in self._queue

    def _result(self, name: str) -> Result | None:
        document = self._rows.get(("result", name))
        return Result(**json.loads(document)) if document else None

    # Runs

    async def run(self) -> None:
        """Run tests until cancelled."""
        for name, test in self.options.tests.items():
            if (result := self._result(name)) and result.outcome == RUNNING:  # an earlier hub ended meanwhile
                await self._switch_off(test)
                await self._store(test, Result(result.started_ns, NOT_RUN, reason="the hub ended meanwhile"), HUB)
        while True:
            now_ns = self._hub.timeline.wall_ns()
            for name in self.options.tests:
                if self.next_ns(name) <= now_ns:
                    self._queue.setdefault(name, HUB)
            while self._queue:
                name, by = next(iter(self._queue.items()))
                try:
                    await self._perform(self.options.tests[name], by)
                finally:
                    self._queue.pop(name, None)
            self._wake.clear()
            await first_of(self._wake.wait(), timeout=PERIOD_SECONDS)

    async def _perform(self, test: DeclaredTest, by: Principal) -> None:
        started_ns = self._hub.timeline.wall_ns()
        try:
            result = await self._measure(test, started_ns, by)
        except NotRunError as error:
            result = Result(started_ns, NOT_RUN, reason=str(error))
        finally:
            self._announce()
        await self._store(test, result, by)
        self._announce()

    async def _measure(self, test: DeclaredTest, started_ns: int, by: Principal) -> Result:
        if reason := self._unfit(test):
            raise NotRunError(reason)
        name = secrets.token_hex(8)
        self._announce(test, self._message(test, name))
        if await self._await_rise(test, name, 0.0, READY_SECONDS) is None:
            raise NotRunError(
                "its shard does not measure the region: it is not covered, or its frames have another unit"
            )
        await self._store(test, Result(started_ns, RUNNING), by)
        try:
            try:
                await switch(self.options, self._hub.outputs, test.switch, on=True)
            except SwitchError as error:
                raise NotRunError(f"its actuator was not switched on: {error}") from error
            began = time.monotonic()
            state = await self._await_rise(test, name, test.rise, test.within)
            seconds = time.monotonic() - began
        finally:
            await self._switch_off(test)
        await asyncio.sleep(test.cooldown)
        if state is None:
            latest = self._state(test, name)
            return Result(started_ns, UNSEEN, rise=latest.rise if latest else 0.0, failed=True)
        return Result(started_ns, SEEN, seconds, state.rise)

    def _unfit(self, test: DeclaredTest) -> str:
        """The reason why a test cannot be run now, or ''."""
        fleet = self._hub.coverage.book.fleets.get(test.fleet)
        watched = fleet.devices.get(test.device) if fleet else None
        if fleet is None or watched is None:
            return f"{test.fleet} has no device {test.device}"
        for zone in self._hub.zones.messages():
            if (zone.namespace, zone.name) == (fleet.namespace, watched.device.zone):
                return "" if ZoneState(zone.state) == ZoneState.NORMAL else f"its zone {zone.name} is not normal"
        return ""

    def _message(self, test: DeclaredTest, name: str) -> SelfTest:
        x, y, width, height = test.region
        seconds = READY_SECONDS + 2 * SECONDS + test.within + test.cooldown + SPARE_SECONDS
        return SelfTest(
            id=name, device=test.device, region=Region(x=x, y=y, width=width, height=height), rise=test.rise,
            unit=test.unit, limit_ns=int(seconds * SECOND),
        )  # fmt: skip

    async def _await_rise(self, test: DeclaredTest, name: str, rise: float, seconds: float) -> SelfTestState | None:
        """Wait for a state of the run `name` with at least `rise`; None if there is none in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (state := self._state(test, name)) and state.rise >= rise:
                return state
            await asyncio.sleep(POLL_SECONDS)
        return None

    def _state(self, test: DeclaredTest, name: str) -> SelfTestState | None:
        fleet = self._hub.coverage.book.fleets.get(test.fleet)
        watched = fleet.devices.get(test.device) if fleet else None
        states = (sighting.status.self_test for sighting in watched.sightings.values()) if watched else ()
        return next((state for state in states if state.id == name), None)

    async def _switch_off(self, test: DeclaredTest) -> None:
        try:
            await switch(self.options, self._hub.outputs, test.switch, on=False)
        except SwitchError as error:
            logger.error(  # noqa: TRY400 - the reason is enough
                "self-test %s: its actuator was not switched off: %s. Switch it off by hand", test.name, error
            )

    # Results

    async def _store(self, test: DeclaredTest, result: Result, by: Principal) -> None:
        before = self._result(test.name)
        if result.outcome in {RUNNING, NOT_RUN}:
            result = replace(result, failed=before is not None and before.failed)
        # A test that is not possible for days is repeated often.
        repeated = by is HUB and before and (before.outcome, before.reason) == (NOT_RUN, result.reason)
        announced = result.outcome != RUNNING and not repeated

        def step(draft: Draft) -> None:
            self._rows.put(draft.transaction, ("result", test.name), json.dumps(asdict(result)))
            if announced:
                add_entry(draft, by, "self-test", f"{test.fleet}/{test.device}", f"{test.name}: {words(test, result)}")

        try:
            await self._hub.committer.commit(step)
        except StoreFailingError as error:
            logger.warning("self-test %s: its result is not stored: %s", test.name, error)
        if announced and result.outcome != SEEN:
            logger.warning("self-test %s of device %s: %s", test.name, test.device, words(test, result))

    def failed(self) -> Mapping[str, Mapping[str, str]]:
        """The reasons why devices are degraded by their newest results, by fleet and device."""
        failed: dict[str, dict[str, str]] = {test.fleet: {} for test in self.options.tests.values()}
        for name, test in self.options.tests.items():
            result = self._result(name)
            if result and result.failed:
                known = failed[test.fleet].get(test.device)
                why = f"self-test: {name} not seen within {test.within:g} s"
                failed[test.fleet][test.device] = f"{known}; {why}" if known else why
        return failed

    def _announce(self, test: DeclaredTest | None = None, message: SelfTest | None = None) -> None:
        """Send the shards the `message` of a running `test`, and the devices whose newest one failed."""
        for fleet, devices in self.failed().items():
            running = [message] if test and message and test.fleet == fleet else []
            self._hub.coverage.self_tests.set(fleet, SelfTests(running=running, failed=devices))


def words(test: DeclaredTest, result: Result) -> str:
    """A result for people."""
    unit = " K" if test.unit == "K" else " %"
    if result.outcome == SEEN:
        return f"seen after {result.seconds:.1f} s, a rise of {result.rise:.0f}{unit}"
    if result.outcome == UNSEEN:
        return f"not seen within {test.within:g} s: a rise of {result.rise:.0f}{unit} instead of {test.rise:g}{unit}"
    return f"{result.outcome}: {result.reason}" if result.reason else result.outcome
