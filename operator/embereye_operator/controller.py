"""Keeps every fleet reconciled: what is dirty now, everything every two seconds, failures again after a while."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from embereye.process.identity.credentials import Credentials
from embereye.process.tasks import Tasks, first_of
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns, stepped_ns
from embereye.units import counted
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetError, FleetReference, parse_fleet
from embereye_operator.api.schema import Manifest, to_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.failure import GRACE, Failure, build_failed_status, is_to_be_told, judge
from embereye_operator.decide.fleet_memory import LOST, FleetMemory
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.status import read_status
from embereye_operator.errors import NotLeadingError, UnavailableError
from embereye_operator.reconcile.reconcile import Outcome, reconcile
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey, Stored
from embereye_operator.runtime.kubernetes.client.retry_after import retry_after
from embereye_operator.runtime.kubernetes.holds import Holds
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime
from embereye_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)
WORKERS = 8  # fleets reconciled at the same time
PERIOD = 2.0  # seconds between passes over all fleets, for what only shards know
REST_SECONDS = 0.03  # that a fleet at rest adds to the time between looks at those
REST_PASSES = 3  # without anything to do, after which a fleet is at rest
MAX_PERIOD = 60.0  # seconds between looks at a fleet at rest, however many there are
STATUS_LIMIT = 5.0  # seconds for writing that a pass failed
RESYNC_PERIOD = 30.0  # seconds between complete lists, for what watches may have missed; at least
NODES_PERIOD = 5.0  # seconds between looks at nodes that are being emptied or lost, where no event comes
IDENTITY_PERIOD = 60.0  # seconds between looks at certificates that may be due
IDENTITY_RETRY = 2.0  # seconds, as long as there are none
IDENTITY_LIMIT = 10.0  # seconds that passes wait for the first look at them; without, no shard can be asked anything
GUARD_PERIOD = 15.0  # seconds between looks at the budgets of fleets that are gone
OBJECT_SECONDS = 0.05  # that every object adds to it
PASS_LIMIT = 30.0  # seconds that one pass may take


def rest_period(fleets: int) -> float:
    """Seconds between looks at a fleet at rest, of so many."""
    return min(max(PERIOD, fleets * REST_SECONDS), MAX_PERIOD)


@dataclass
class FleetRecord:
    """How the passes over a fleet went."""

    status: FleetStatus = field(default_factory=FleetStatus)
    memory: FleetMemory = field(default_factory=FleetMemory)
    fleet: Fleet | None = None
    version: int = 0  # of the object that `fleet` was read from
    at_rest: int = 0  # passes since anything was on its way
    passes: int = 0
    failures: int = 0
    seconds: float = 0.0  # of all passes
    latest: float = 0.0  # monotonic seconds of the latest pass that succeeded
    left_alone: str = ""  # why
    failing: str = ""  # why the latest pass failed
    failing_since: float = 0.0  # monotonic seconds; 0: the latest pass succeeded
    not_before: float = 0.0  # monotonic seconds, where the API server asked to be left alone
    backoff: Backoff = field(default_factory=Backoff)

    def rests(self, now: float, fleets: int) -> bool:
        """Whether it need not be looked at yet at `now`, in monotonic seconds, with so many fleets there.

        Many fleets at rest are looked at less often: only what their shards say does not come as an event.
        """
        return self.at_rest >= REST_PASSES and now - self.latest < rest_period(fleets)

    def ended(self, outcome: Outcome, now: float) -> None:
        """Note that a pass succeeded at `now`, in monotonic seconds."""
        self.failing, self.failing_since = "", 0.0
        self.backoff.reset()
        self.latest = now
        self.status = outcome.status
        self.at_rest = self.at_rest + 1 if outcome.at_rest else 0

    def is_current(self, now: float, fleets: int) -> bool:
        """Whether what `status` says may be believed at `now`, in monotonic seconds, with so many fleets there."""
        told = not self.failing or now - self.failing_since < GRACE
        return bool(self.latest) and told and now - self.latest < PASS_LIMIT + 2 * rest_period(fleets)

    def read(self, stored: Stored) -> Fleet | None:
        """The fleet that was stored, None where it is being deleted; what did not change is not validated again."""
        if self.fleet is not None and self.version == stored.version:
            return self.fleet
        manifest = stored.manifest()
        known, metadata = self.fleet, manifest["metadata"]
        if metadata.get("deletionTimestamp"):
            return None
        annotations = metadata.get("annotations") or {}
        told = metadata.get("uid"), metadata.get("generation"), annotations, metadata.get("labels") or {}
        if known is None or (known.uid, known.generation, known.annotations, known.labels) != told:
            known = parse_fleet(manifest, strict=False)
        # Of a manifest that has been read only this is looked at, and that once: see `_pass`.
        kept = {"metadata": {"managedFields": metadata.get("managedFields")}, "status": manifest.get("status")}
        self.fleet, self.version = replace(known, manifest=kept), stored.version
        return self.fleet


class Controller:
    """Owns the queue and the workers. `observe` is fed by watches, `run` works until cancelled."""

    def __init__(
        self,
        runtime: KubernetesRuntime,
        settings: Settings,
        leads: Callable[[], bool] = lambda: True,
        holds: Holds | None = None,
    ) -> None:
        """Nothing is reconciled while `leads` says no, but what there is is observed all the same.

        A fleet that another operator holds, as `holds` knows, is left alone.
        """
        self._holds = holds
        self.records: dict[ObjectKey, FleetRecord] = {}
        self._runtime = runtime
        self._settings = settings
        self._jitter = Random()  # one is 2.5 kB, more than the rest of what a fleet's failures need
        self._leads = leads
        self._led = time.monotonic()  # since when
        self._ended = time.monotonic()  # when a pass last ended, well or not
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._retries: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._synced = asyncio.Event()
        self._elected = asyncio.Event()  # set when leading begins
        self._identified = False  # whether certificates were issued or found
        self._may_ask = asyncio.Event()  # set once that was tried
        self._gone = asyncio.Event()  # set when a fleet has gone: nothing else takes its budget away
        self._beat = time.monotonic()

    @property
    def credentials(self) -> Credentials | None:
        """What the operator proves itself with; None as long as it has nothing."""
        return self._runtime.identities.credentials if self._runtime.identities else None

    def observe(self, type_: str | None, manifest: Manifest) -> None:
        """Take a watch event."""
        for key in self._runtime.observe(type_, manifest):
            self._queue.add(key)

    def lead(self, leading: bool) -> None:
        """Begin to act at once, or forget what only the leader knows: its numbers, and with them autoscalers', too."""
        if leading:
            self._led = time.monotonic()
            self._elected.set()
            self._queue_all()
        else:
            self._may_ask.clear()  # whoever does not lead renews no certificate
            self.records.clear()
            if self._settings.turns:
                self._settings.turns.forget()

    def _queue_all(self) -> None:
        for key in self._fleets():
            self._queue.add(key, routine=True)

    async def run(self) -> None:
        """Work until cancelled; ends early only by a bug in a task, which is raised."""
        async with Tasks() as tasks:
            # Before the first list, which may take long, as while the server is away.
            tasks.start(self._keep_beat(), name="beat")
            tasks.start(self._resync(), name="resync")
            await self._synced.wait()
            for number in range(WORKERS):
                tasks.start(self._work(), name=f"worker-{number}")
            tasks.start(self._tick(), name="tick")
            if self._runtime.sees_nodes:
                tasks.start(self._runtime.nodes.watch(), name="watch-nodes")
            tasks.start(self._look_at_nodes(), name="look-at-nodes")
            tasks.start(self._guard_budgets(), name="guard-budgets")
            tasks.start(self._keep_identities(), name="keep-identities")
            tasks.start(self._runtime.write_events(), name="events")
            await tasks.failed.wait()
        raise RuntimeError("a task of the controller failed; the log says which")

    async def synced(self) -> None:
        """Wait until the world was seen once."""
        await self._synced.wait()

    def unhealthy(self) -> str:
        """Why the operator should be restarted; '' where it is well."""
        now = time.monotonic()
        if now - self._beat > 5 * PERIOD:
            return f"the event loop has not ticked for {now - self._beat:.0f} s"
        if dead := self._runtime.lag.dead(now):
            return dead
        if self._leads() and self._fleets():
            idle = now - max(self._ended, self._led)
            if self._synced.is_set() and idle > 2 * PASS_LIMIT:
                return f"no pass over any fleet has ended for {idle:.0f} s"
        stuck = [key for key, record in self.records.items() if record.latest and now - record.latest > 600]
        if stuck and len(stuck) == len(self.records):
            return "no pass over any fleet has succeeded for ten minutes"
        return ""

    # --- tasks ---

    async def _resync(self) -> None:
        backoff = Backoff(floor=0.5, cap=RESYNC_PERIOD)
        failing = ""
        while True:
            try:
                missed = await self._runtime.resync()
            except Exception as error:
                # The first fill needs the CRDs, which may be installed after the operator.
                if str(error) != failing:
                    logger.warning("cannot list what there is: %s; trying again", error)
                failing = str(error)
                await asyncio.sleep(max(backoff.next(), retry_after(error)))
                continue
            backoff.reset()
            failing = ""
            if missed and self._synced.is_set():
                logger.info("a list told %s before the watches did", counted(len(missed), "change"))
            if self._leads():
                self._queue_all()
            self._synced.set()
            await self._retain()
            # Lists of many objects cost more than what watches may have missed is worth.
            await asyncio.sleep(max(RESYNC_PERIOD, OBJECT_SECONDS * len(self._runtime.cache.objects)))

    async def _keep_beat(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(PERIOD)

    async def _tick(self) -> None:
        while True:
            now = time.monotonic()
            fleets = self._fleets() if self._leads() else []
            for key in fleets:
                record = self.records.get(key)
                if key not in self._retries and not (record and record.rests(now, len(fleets))):
                    self._queue.add(key, routine=True)
            await asyncio.sleep(PERIOD)

    async def _look_at_nodes(self) -> None:
        failing, changed = "", self._runtime.nodes.changed
        while True:
            changed.clear()
            try:
                if self._leads():
                    for key in await self._runtime.look_at_nodes(self._silent()):
                        self._queue.add(key)
                failing = ""
            except NotLeadingError:
                pass
            except Exception as error:
                if str(error) != failing:
                    logger.warning("cannot see which nodes are being emptied or lost: %s", error)
                failing = str(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NODES_PERIOD):
                    await changed.wait()

    def _silent(self) -> set[tuple[str, str]]:
        """Namespace and name of the shards that have not answered for long enough to count."""
        now = now_ns()
        return {
            (key[1], shard)
            for key, record in self.records.items()
            for shard, since in record.memory.silent.items()
            if now - since >= LOST
        }

    async def _guard_budgets(self) -> None:
        failing = ""
        while True:
            try:
                if self._leads():
                    await self._runtime.guard_budgets()
                failing = ""
            except NotLeadingError:
                pass
            except Exception as error:
                if str(error) != failing:
                    logger.warning("cannot look after disruption budgets: %s", error)
                failing = str(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GUARD_PERIOD):
                    await self._gone.wait()
            self._gone.clear()

    async def _keep_identities(self) -> None:
        failing, retry = "", Backoff(floor=IDENTITY_RETRY, cap=IDENTITY_PERIOD)
        while True:
            began = not self._identified
            try:
                if self._leads():
                    await self._runtime.keep_identities()
                    self._identified = True
                    if began:
                        self._queue_all()  # passes could not ask anybody until now
                failing = ""
            except NotLeadingError:
                pass
            except Exception as error:
                if str(error) != failing:
                    logger.warning("certificates cannot be kept: %s", error)
                failing = str(error)
            if self._leads():
                self._may_ask.set()
            # With our own only others' are missing, maybe for long, as where a namespace may not be seen.
            again = IDENTITY_PERIOD if self._identified else retry.next() if self.credentials else IDENTITY_RETRY
            await first_of(self._elected.wait(), timeout=again)
            self._elected.clear()

    async def _work(self) -> None:
        while True:
            key = await self._queue.next_key()
            try:
                if self._leads():
                    await self._until_may_ask()
                    await self._pass(key)
            finally:
                self._queue.done(key)
                self._ended = time.monotonic()

    async def _until_may_ask(self) -> None:
        """Who has only just begun to lead has no certificate yet: all shards would be told to be out of reach."""
        if not self._may_ask.is_set():
            await first_of(self._may_ask.wait(), timeout=IDENTITY_LIMIT)
            self._may_ask.set()

    # --- one pass ---

    async def _pass(self, key: ObjectKey) -> None:
        stored = self._runtime.cache.objects.get(key)
        if stored is None or stored.deleting:
            await self._forget(key)
            return
        if (record := self.records.get(key)) is None:
            record = self.records[key] = FleetRecord(backoff=Backoff(floor=0.2, cap=15.0, jitter=self._jitter))
        if time.monotonic() < record.not_before and key in self._retries:
            return  # an event came; the retry comes, too
        started = time.monotonic()
        record.passes += 1
        try:
            fleet = record.read(stored)
            if fleet is None:
                await self._forget(key)
                return
            async with asyncio.timeout(PASS_LIMIT):
                if self._holds and (why := await self._holds.why_not(fleet, stored)):
                    await self._leave_alone(key, record, why)
                    return
                record.left_alone = ""
                outcome = await reconcile(fleet, self._runtime, now_ns, self._settings, record.memory, stepped_ns)
        except NotLeadingError:
            return  # in the middle of it; whoever leads now goes on from there
        except Exception as error:
            await self._failed(key, record, error)
            return
        finally:
            record.seconds += time.monotonic() - started
        if record.failing:
            logger.info("%s: passes succeed again", fleet.key)
        record.ended(outcome, time.monotonic())
        record.fleet = replace(fleet, manifest={})
        if outcome.actions:
            logger.info("%s: %s", fleet.key, ", ".join(outcome.actions))

    async def _leave_alone(self, key: ObjectKey, before: FleetRecord, why: str) -> None:
        """Forget what was decided about it: the operator that holds it decides now."""
        if before.left_alone == why:
            return
        self.records[key] = FleetRecord(left_alone=why, backoff=before.backoff)
        if self._settings.turns:
            self._settings.turns.release(_fleet_key(key))
        logger.info("%s %s/%s is left alone: %s", *key, why)
        await self._retain()

    async def _forget(self, key: ObjectKey) -> None:
        # Owner references make the children go; the hub has none.
        if self.records.pop(key, None) is not None:
            logger.info("%s %s/%s is gone", *key)
            if self._settings.turns:
                self._settings.turns.release(_fleet_key(key))
            self._gone.set()
            await self._retain()

    async def _failed(self, key: ObjectKey, record: FleetRecord, error: Exception) -> None:
        now, failure = time.monotonic(), judge(error)
        record.failures += 1
        record.at_rest = 0
        record.failing_since = record.failing_since or now
        if failure.message != record.failing:
            expected = isinstance(error, FleetError)
            logger.warning("%s %s/%s: %s; trying again", *key, failure.message, exc_info=None if expected else error)
        record.failing = failure.message
        asked = retry_after(error)
        record.not_before = now + asked
        delay = max(record.backoff.next(), asked)
        if (before := self._retries.pop(key, None)) is not None:
            before.cancel()
        self._retries[key] = asyncio.get_running_loop().call_later(delay, self._retry, key)
        if is_to_be_told(failure, now - record.failing_since):
            await self._tell_failure(key, record, failure)

    async def _tell_failure(self, key: ObjectKey, record: FleetRecord, failure: Failure) -> None:
        """Write into the status that it cannot be kept up, and why."""
        if (stored := self._runtime.cache.objects.get(key)) is None:
            return
        manifest = stored.manifest()
        metadata = manifest["metadata"]
        fleet = FleetReference(FLEET_TYPES[key[0]], key[1], key[2], str(metadata.get("uid") or ""))
        previous = read_status(manifest.get("status"))
        record.status = build_failed_status(failure, previous, int(metadata.get("generation") or 1), time.time_ns())
        await self._runtime.event(fleet, "Warning", failure.reason, failure.message)
        if record.status == previous:
            return
        try:
            async with asyncio.timeout(STATUS_LIMIT):
                await self._runtime.write_status(fleet, to_manifest(record.status))
        except NotLeadingError:
            return
        except Exception as error:
            # Most likely what the pass failed of: the next one tries again, and /metrics says it meanwhile.
            logger.debug("%s: its status is not written: %s", fleet.key, error)

    def _retry(self, key: ObjectKey) -> None:
        self._retries.pop(key, None)
        self._queue.add(key, routine=True)

    async def _retain(self) -> None:
        if not self._leads():
            return
        others = {key for key, record in self.records.items() if record.left_alone}
        fleets = sorted(_fleet_key(key) for key in self._fleets() if key not in others)
        try:
            await self._runtime.retain(fleets)
        except (UnavailableError, NotLeadingError) as error:
            logger.debug("%s", error)  # every fleet's status says so

    def _fleets(self) -> list[ObjectKey]:
        """Those that are looked after: not those that are being deleted."""
        objects = self._runtime.cache.objects
        return [key for key, stored in objects.items() if key[0] in FLEET_TYPES and not stored.deleting]

    @property
    def writes(self) -> Mapping[tuple[str, bool], int]:
        """Patches so far, by kind and whether they changed anything."""
        return self._runtime.writes

    @property
    def tolerance(self) -> bool:
        """Whether HorizontalPodAutoscalers follow every change here, not only those of more than 10 %."""
        return self._runtime.offers(TOLERANCE)

    def known(self) -> Mapping[ObjectKey, FleetRecord]:
        """Fleets and what is remembered of them."""
        return self.records


def _fleet_key(key: ObjectKey) -> str:
    resource, namespace, name = key
    return f"{namespace}/{FLEET_TYPES[resource].kind}/{name}"
