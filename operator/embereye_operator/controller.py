"""The controller: reconciles changed fleets at once, all fleets every two seconds, and retries failures.

Watch events and a periodic tick mark fleets dirty in a `WorkQueue`; eight workers take them and run `reconcile`. Idle
fleets get passes less often. Failed passes are retried with a growing delay, and after GRACE the fleet's status says
why. Background tasks list all objects again, check nodes and disruption budgets, and renew certificates. Everything
but observing stops while another replica leads.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import httpx2 as httpx  # the HTTP client of lightkube

from embereye.process.condition import Condition
from embereye.process.identity.credentials import Credentials
from embereye.process.reason import reason_of
from embereye.process.repeat import repeat
from embereye.process.tasks import Tasks, first_of
from embereye.process.telemetry.latency import BOUNDS, LatencyHistogram
from embereye.process.timing.backoff import Backoff
from embereye.process.timing.clock import now_ns, stepped_ns
from embereye.units import counted
from embereye_operator.api.fleets import FLEET_TYPES, Fleet, FleetError, FleetReference, parse_fleet
from embereye_operator.api.schema import Manifest, to_manifest
from embereye_operator.api.status import FleetStatus, LoadSummary
from embereye_operator.decide.failure import GRACE, Failure, build_failed_status, is_reportable, judge
from embereye_operator.decide.fleet_memory import LOST, FleetMemory
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.status import read_status
from embereye_operator.errors import NotLeadingError, RefusedError, UnavailableError
from embereye_operator.reconcile.reconcile import Outcome, reconcile
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey, Stored
from embereye_operator.runtime.kubernetes.client.retry_after import retry_after
from embereye_operator.runtime.kubernetes.ownership import Ownership
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime
from embereye_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)
WORKERS = 8  # fleets reconciled at the same time
PERIOD = 2.0  # seconds between passes over all fleets, for changes that only shards know
REST_SECONDS = 0.03  # seconds that each fleet adds to the period of idle fleets
REST_PASSES = 3  # passes without any action after which a fleet is idle
MAX_PERIOD = 60.0  # longest period of an idle fleet, in seconds
STATUS_LIMIT = 5.0  # seconds for writing the status of a failed pass
# Errors of the API server, a fleet or a process: their sentences say everything, a traceback nothing more.
EXPECTED = (FleetError, RefusedError, UnavailableError, TimeoutError, httpx.HTTPError)
RESYNC_PERIOD = 30.0  # seconds; shortest interval between complete lists, which find what watches missed
NODES_PERIOD = 5.0  # seconds between checks for drained or lost nodes, without events
SILENCE_PERIOD = 1.0  # seconds between questions to the hubs about silent shards
IDENTITY_PERIOD = 2.0  # seconds between checks for deleted certificates and those to renew
IDENTITY_RETRY = 2.0  # seconds between attempts until the first certificate exists
IDENTITY_RETRY_MAX = 60.0  # longest interval between such attempts once the operator has its own certificate
IDENTITY_LIMIT = 10.0  # seconds that passes wait for the first certificates; without one no shard answers
GUARD_PERIOD = 15.0  # seconds between checks of the budgets of deleted fleets
RIGHTS_PERIOD = 10.0  # seconds between checks of the operator's own rights
OBJECT_SECONDS = 0.05  # added to RESYNC_PERIOD for each object
PASS_LIMIT = 30.0  # seconds until a pass is cancelled


def rest_period(fleets: int) -> float:
    """Return the period of passes over an idle fleet, in seconds, for this number of fleets."""
    return min(max(PERIOD, fleets * REST_SECONDS), MAX_PERIOD)


@dataclass
class FleetRecord:
    """The history of the passes over one fleet."""

    status: FleetStatus = field(default_factory=FleetStatus)
    load: LoadSummary | None = None  # as measured in the latest pass that succeeded
    memory: FleetMemory = field(default_factory=FleetMemory)
    fleet: Fleet | None = None
    version: int = 0  # of the object that `fleet` was read from
    at_rest: int = 0  # passes in a row without any change in progress
    passes: int = 0
    failures: int = 0
    seconds: float = 0.0  # sum over all passes
    latest: float = 0.0  # monotonic seconds of the latest pass that succeeded
    left_alone: str = ""  # why another operator reconciles it; "" if this one does
    failing: str = ""  # why the latest pass failed
    failing_since: float = 0.0  # monotonic seconds; 0: the latest pass succeeded
    not_before: float = 0.0  # monotonic seconds; set by the API server's Retry-After
    backoff: Backoff = field(default_factory=Backoff)

    def is_resting(self, now: float, fleets: int) -> bool:
        """True if the fleet needs no pass yet at `now`, in monotonic seconds.

        With many `fleets` an idle one gets passes less often: only shard reports come without an event.
        """
        return self.at_rest >= REST_PASSES and now - self.latest < rest_period(fleets)

    def note_success(self, outcome: Outcome, now: float) -> None:
        """Record a pass that succeeded at `now`, in monotonic seconds."""
        self.failing, self.failing_since = "", 0.0
        self.backoff.reset()
        self.latest = now
        self.status, self.load = outcome.status, outcome.load
        self.at_rest = self.at_rest + 1 if outcome.at_rest else 0

    def is_current(self, now: float, fleets: int) -> bool:
        """True if `status` is recent enough to rely on at `now`, in monotonic seconds, with this number of `fleets`."""
        passing = not self.failing or now - self.failing_since < GRACE
        return bool(self.latest) and passing and now - self.latest < PASS_LIMIT + 2 * rest_period(fleets)

    def read(self, stored: Stored) -> Fleet | None:
        """Parse the stored fleet, None if it is being deleted; unchanged parts are not validated again."""
        if self.fleet is not None and self.version == stored.version:
            return self.fleet
        manifest = stored.manifest()
        known, metadata = self.fleet, manifest["metadata"]
        if metadata.get("deletionTimestamp"):
            return None
        annotations = metadata.get("annotations") or {}
        current = metadata.get("uid"), metadata.get("generation"), annotations, metadata.get("labels") or {}
        if known is None or (known.uid, known.generation, known.annotations, known.labels) != current:
            known = parse_fleet(manifest, strict=False)
        # Of a parsed manifest only these parts are read again: see `_pass`.
        remainder = {"metadata": {"managedFields": metadata.get("managedFields")}, "status": manifest.get("status")}
        self.fleet, self.version = replace(known, manifest=remainder), stored.version
        return self.fleet


class Controller:
    """Owns the queue and the workers. Watches call `observe`; `run` works until cancelled."""

    def __init__(
        self,
        runtime: KubernetesRuntime,
        settings: Settings,
        is_leading: Callable[[], bool] = lambda: True,
        ownership: Ownership | None = None,
    ) -> None:
        """Observe everything, but reconcile only while `is_leading()`.

        A fleet that belongs to another operator, according to `ownership`, is left alone.
        """
        self._ownership = ownership
        self.records: dict[ObjectKey, FleetRecord] = {}
        self.pass_durations = LatencyHistogram((*BOUNDS, 10.0, PASS_LIMIT))
        self.runtime = runtime
        self._settings = settings
        self._jitter = Random()  # shared, because one takes 2.5 kB
        self._is_leading = is_leading
        self._leading_since = time.monotonic()
        self._ended = time.monotonic()  # end of the latest pass, successful or not
        self._queue: WorkQueue[ObjectKey] = WorkQueue()
        self._retries: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._synced = asyncio.Event()
        self._elected = asyncio.Event()  # set when leading begins
        self._identity_backoff = Backoff(floor=IDENTITY_RETRY, cap=IDENTITY_RETRY_MAX)
        self._identified = False  # whether certificates were issued or found
        self._ready_to_ask = asyncio.Event()  # set after the first attempt to issue certificates
        self._gone = asyncio.Event()  # set when a fleet was deleted: its budget must be deleted, too
        self._beat = time.monotonic()

    @property
    def credentials(self) -> Credentials | None:
        """Return the operator's certificate; None until it has one."""
        return self.runtime.links.identities.credentials if self.runtime.links.identities else None

    def observe(self, type_: str | None, manifest: Manifest) -> None:
        """Process a watch event."""
        for key in self.runtime.world.observe(type_, manifest):
            self._queue.add(key)

    def lead(self, leading: bool) -> None:
        """Start acting at once, or forget the state of a leader, including the numbers for autoscalers."""
        if leading:
            self._leading_since = time.monotonic()
            self._elected.set()
            self._queue_all()
        else:
            self._ready_to_ask.clear()  # only the leader renews certificates
            self.records.clear()
            if self._settings.turns:
                self._settings.turns.forget()
            if self._settings.claims:
                self._settings.claims.forget()

    def _queue_all(self) -> None:
        for key in self._fleets():
            self._queue.add(key, routine=True)

    async def run(self) -> None:
        """Work until cancelled; ends early only if a task failed because of a bug, and then raises."""
        async with Tasks() as tasks:
            # Before the first list, which may take long, for example while the server is away.
            tasks.start(self._update_beat(), name="beat")
            tasks.start(self._resync(), name="resync")
            await self._synced.wait()
            for number in range(WORKERS):
                tasks.start(self._work(), name=f"worker-{number}")
            tasks.start(self._tick(), name="tick")
            if self.runtime.cluster.can_see_nodes:
                tasks.start(self.runtime.cluster.nodes.watch(), name="watch-nodes")
            sentence, changed = "cannot check for drained and lost nodes: %s", self.runtime.cluster.nodes.changed
            tasks.start(self._repeat(self._check_nodes, NODES_PERIOD, sentence, changed), name="check-nodes")
            sentence, unanswered = "cannot find silent shards: %s", self.runtime.links.silence.changed
            tasks.start(self._repeat(self._check_silence, SILENCE_PERIOD, sentence, unanswered), name="check-silence")
            sentence, check = "cannot check the operator's rights: %s", self._check_rights
            tasks.start(self._repeat(check, RIGHTS_PERIOD, sentence, asyncio.Event()), name="check-rights")
            sentence, check = "cannot check disruption budgets: %s", self.runtime.cluster.guard_budgets
            tasks.start(self._repeat(check, GUARD_PERIOD, sentence, self._gone), name="guard-budgets")
            sentence, renew = "cannot renew certificates: %s", self._renew_identities
            tasks.start(self._repeat(renew, self._identity_pause, sentence, self._elected), name="renew-identities")
            tasks.start(self.runtime.writer.write_events(), name="events")
            await tasks.failed.wait()
        raise RuntimeError("a task of the controller failed; its name is in the log")

    async def synced(self) -> None:
        """Wait until all objects were listed once."""
        await self._synced.wait()

    def unhealthy(self) -> str:
        """Return the reason to restart the operator; '' if it is healthy."""
        now = time.monotonic()
        if now - self._beat > 5 * PERIOD:
            return f"the event loop has not ticked for {now - self._beat:.0f} s"
        if death := self.runtime.world.lag.death_reason(now):
            return death
        if self._is_leading() and self._fleets():
            idle = now - max(self._ended, self._leading_since)
            if self._synced.is_set() and idle > 2 * PASS_LIMIT:
                return f"no pass over any fleet has ended for {idle:.0f} s"
        stuck = [key for key, record in self.records.items() if record.latest and now - record.latest > 600]
        if stuck and len(stuck) == len(self.records):
            return "no pass over any fleet has succeeded for ten minutes"
        return ""

    # --- tasks ---

    async def _resync(self) -> None:
        backoff = Backoff(floor=0.5, cap=RESYNC_PERIOD)
        failing = Condition(logger)
        while True:
            try:
                missed = await self.runtime.resync()
            except Exception as error:
                # The first fill needs the CRDs, which may be installed after the operator.
                reason = reason_of(error)
                failing.fail(reason, "cannot list the cluster's objects: %s. Trying again", reason)
                await asyncio.sleep(max(backoff.next(), retry_after(error)))
                continue
            backoff.reset()
            failing.clear("the cluster's objects can be listed again")
            if missed and self._synced.is_set():
                logger.info("a list had %s before the watches", counted(len(missed), "change"))
            if self._is_leading():
                self._queue_all()
            self._synced.set()
            await self._retain()
            # Listing many objects costs more than finding missed changes early is worth.
            await asyncio.sleep(max(RESYNC_PERIOD, OBJECT_SECONDS * len(self.runtime.world.cache.objects)))

    async def _update_beat(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(PERIOD)

    async def _tick(self) -> None:
        while True:
            now = time.monotonic()
            fleets = self._fleets() if self._is_leading() else []
            for key in fleets:
                record = self.records.get(key)
                if key not in self._retries and not (record and record.is_resting(now, len(fleets))):
                    self._queue.add(key, routine=True)
            await asyncio.sleep(PERIOD)

    def _repeat(
        self,
        work: Callable[[], Awaitable[None]],
        pause: float | Callable[[], float],
        sentence: str,
        wake: asyncio.Event,
    ) -> Coroutine[Any, Any, None]:
        """Run `work` periodically while this replica leads."""

        async def lead() -> None:
            if self._is_leading():
                await work()

        return repeat(lead, pause, Condition(logger), sentence, wake=wake, expected=(NotLeadingError,))

    async def _check_nodes(self) -> None:
        unheard = {(fleet.partition("/")[0], shard) for fleet, shard in self.runtime.links.silence.unheard()}
        for key in await self.runtime.cluster.check_nodes(self._silent(), unheard):
            self._queue.add(key)

    async def _check_silence(self) -> None:
        """Find shards that hubs miss, and reconcile their fleets; if the operator misses one, too, check its node."""
        silence = self.runtime.links.silence
        known = {record.fleet.key: (key, record.fleet) for key, record in self.records.items() if record.fleet}
        news = await silence.check({name: fleet for name, (_, fleet) in known.items()})
        for fleet in news & known.keys():
            self._queue.add(known[fleet][0])
        if news and silence.unheard():
            self.runtime.cluster.nodes.changed.set()

    async def _check_rights(self) -> None:
        if await self.runtime.world.rights.check():
            self._queue_all()

    def _silent(self) -> set[tuple[str, str]]:
        """Return namespace and name of the shards that have been silent for LOST, or whose new pod does not run."""
        now = now_ns()
        silent = {
            (key[1], shard)
            for key, record in self.records.items()
            for shard, since in record.memory.silent.items()
            if now - since >= LOST
        }
        return silent | {
            (key[1], shard) for key, record in self.records.items() for shard in record.memory.rollout.unrolled
        }

    async def _renew_identities(self) -> None:
        try:
            await self.runtime.links.renew_identities()
            for key in self.runtime.links.take_unidentified():
                self._queue.add(key)
            if not self._identified:
                self._identified = True
                self._queue_all()  # passes could not query any shard until now
        finally:
            if self._is_leading():
                self._ready_to_ask.set()

    def _identity_pause(self) -> float:
        if self._identified:
            return IDENTITY_PERIOD
        # Once the operator has its certificate, the missing ones may be missing for long, as in a forbidden namespace.
        return self._identity_backoff.next() if self.credentials else IDENTITY_RETRY

    async def _work(self) -> None:
        while True:
            key = await self._queue.next_key()
            try:
                if self._is_leading():
                    await self._wait_for_certificate()
                    await self._pass(key)
            finally:
                self._queue.done(key)
                self._ended = time.monotonic()

    async def _wait_for_certificate(self) -> None:
        """Wait for the operator's certificate: without one every shard would be reported as unreachable."""
        if not self._ready_to_ask.is_set():
            await first_of(self._ready_to_ask.wait(), timeout=IDENTITY_LIMIT)
            self._ready_to_ask.set()

    # --- one pass ---

    async def _pass(self, key: ObjectKey) -> None:
        stored = self.runtime.world.cache.objects.get(key)
        if stored is None or stored.deleting:
            await self._forget(key)
            return
        if (record := self.records.get(key)) is None:
            record = self.records[key] = FleetRecord(backoff=Backoff(floor=0.2, cap=15.0, jitter=self._jitter))
        if time.monotonic() < record.not_before and key in self._retries:
            return  # the scheduled retry covers this event
        started = time.monotonic()
        record.passes += 1
        try:
            fleet = record.read(stored)
            if fleet is None:
                await self._forget(key)
                return
            async with asyncio.timeout(PASS_LIMIT):
                if self._ownership and (why := await self._ownership.why_not(fleet, stored)):
                    await self._leave_alone(key, record, why)
                    return
                record.left_alone = ""
                outcome = await reconcile(fleet, self.runtime, now_ns, self._settings, record.memory, stepped_ns)
        except NotLeadingError:
            return  # lost the lead during the pass; the new leader continues
        except Exception as error:
            await self._note_failure(key, record, error)
            return
        finally:
            seconds = time.monotonic() - started
            record.seconds += seconds
            self.pass_durations.observe(seconds)
        if record.failing:
            logger.info("%s: passes succeed again", fleet.key)
        record.note_success(outcome, time.monotonic())
        record.fleet = replace(fleet, manifest={})
        if outcome.actions:
            logger.info("%s: %s", fleet.key, ", ".join(outcome.actions))

    async def _leave_alone(self, key: ObjectKey, before: FleetRecord, why: str) -> None:
        """Forget all decisions about the fleet: the operator that owns it decides now."""
        if before.left_alone == why:
            return
        self.records[key] = FleetRecord(left_alone=why, backoff=before.backoff)
        self._release(key)
        logger.info("%s %s/%s is left alone: %s", *key, why)
        await self._retain()

    async def _forget(self, key: ObjectKey) -> None:
        # Owner references delete the children, but not the hub's records.
        if self.records.pop(key, None) is not None:
            logger.info("%s %s/%s is gone", *key)
            self._release(key)
            self._gone.set()
            await self._retain()

    def _release(self, key: ObjectKey) -> None:
        if self._settings.turns:
            self._settings.turns.release(_fleet_key(key))
        if self._settings.claims:
            self._settings.claims.release(_fleet_key(key))

    async def _note_failure(self, key: ObjectKey, record: FleetRecord, error: Exception) -> None:
        now, failure = time.monotonic(), judge(error)
        record.failures += 1
        record.at_rest = 0
        record.failing_since = record.failing_since or now
        if failure.message != record.failing:
            expected = isinstance(error, EXPECTED)
            logger.warning("%s %s/%s: %s. Trying again", *key, failure.message, exc_info=None if expected else error)
        record.failing = failure.message
        requested_delay = retry_after(error)
        record.not_before = now + requested_delay
        delay = max(record.backoff.next(), requested_delay)
        if (before := self._retries.pop(key, None)) is not None:
            before.cancel()
        self._retries[key] = asyncio.get_running_loop().call_later(delay, self._retry, key)
        if is_reportable(failure, now - record.failing_since):
            await self._report_failure(key, record, failure)

    async def _report_failure(self, key: ObjectKey, record: FleetRecord, failure: Failure) -> None:
        """Write into the fleet's status why its passes fail."""
        if (stored := self.runtime.world.cache.objects.get(key)) is None:
            return
        manifest = stored.manifest()
        metadata = manifest["metadata"]
        fleet = FleetReference(FLEET_TYPES[key[0]], key[1], key[2], str(metadata.get("uid") or ""))
        previous = read_status(manifest.get("status"))
        record.status = build_failed_status(failure, previous, int(metadata.get("generation") or 1), time.time_ns())
        await self.runtime.writer.event(fleet, "Warning", failure.reason, failure.message)
        if record.status == previous:
            return
        try:
            async with asyncio.timeout(STATUS_LIMIT):
                await self.runtime.writer.write_status(fleet, to_manifest(record.status))
        except NotLeadingError:
            return
        except Exception as error:
            # Most likely the cause that failed the pass: the next pass retries, and /metrics shows it meanwhile.
            logger.debug("%s: its status cannot be written: %s", fleet.key, reason_of(error))

    def _retry(self, key: ObjectKey) -> None:
        self._retries.pop(key, None)
        self._queue.add(key, routine=True)

    async def _retain(self) -> None:
        if not self._is_leading():
            return
        foreign = {key for key, record in self.records.items() if record.left_alone}
        fleets = sorted(_fleet_key(key) for key in self._fleets() if key not in foreign)
        try:
            await self.runtime.world.check_kinds()  # else its fleets are not deleted by intent: the hub remembers them
            await self.runtime.links.retain(fleets)
        except (UnavailableError, NotLeadingError, httpx.HTTPError) as error:
            logger.debug("%s", error)  # every fleet's status says so, or the next list

    def _fleets(self) -> list[ObjectKey]:
        """Return the fleets to reconcile, without those that are being deleted."""
        objects = self.runtime.world.cache.objects
        return [key for key, stored in objects.items() if key[0] in FLEET_TYPES and not stored.deleting]


def _fleet_key(key: ObjectKey) -> str:
    resource, namespace, name = key
    return f"{namespace}/{FLEET_TYPES[resource].kind}/{name}"
