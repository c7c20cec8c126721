"""Kubernetes Events on fleets, written outside the passes: an unreachable server fails no pass and loses no Event.

A pass calls `note`, which only queues. `run` asks the `EventCorrelator` at every call and every second for due entries
and writes them, with a growing delay while the server fails. The name of an Event is a hash of its content, so a
repeated attempt finds the first one instead of writing a second. Events that the server refuses for good are dropped
and counted.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Literal

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.tasks import first_of
from embereye.process.timing.backoff import Backoff
from embereye.units import counted, utc
from embereye_operator.api.fleets import FleetReference
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION
from embereye_operator.decide.event_correlator import Entry, EventCorrelator
from embereye_operator.runtime.kubernetes.client.answers import tolerating
from embereye_operator.runtime.kubernetes.client.resources import EVENTS
from embereye_operator.runtime.kubernetes.client.retry_after import retry_after

logger = logging.getLogger(__name__)
POLL = 1.0  # seconds between checks for Events to write
MAX_MESSAGE = 1000  # characters; the API server accepts 1,024
NEVER = frozenset({400, 401, 403, 404, 405, 422})  # answers that a retry would not change


class EventWriter:
    """`note` queues an Event at once and never fails; `run` writes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._correlator = EventCorrelator()
        self._noted = asyncio.Event()
        self._backoff = Backoff(floor=0.5, cap=30.0)
        self._failing = Condition(logger)

    def note(self, fleet: FleetReference, type_: Literal["Normal", "Warning"], reason: str, text: str) -> None:
        """Queue an Event about `fleet`."""
        subject = FleetReference(fleet.type, fleet.namespace, fleet.name, fleet.uid)
        self._correlator.record(subject, type_, reason, text[:MAX_MESSAGE], time.time_ns())
        self._noted.set()

    async def run(self) -> None:
        """Write waiting Events until cancelled."""
        while True:
            try:
                await self._write_due()
            except (ApiError, httpx.HTTPError, OSError, TimeoutError) as error:
                reason = reason_of(error)
                self._failing.fail(reason, "cannot write an event: %s", reason)
                await asyncio.sleep(max(self._backoff.next(), retry_after(error)))
                continue
            if lost := self._correlator.lost:
                logger.warning(
                    "%s lost: the queue was full, or the API server refused them",
                    counted(lost, "event is", "events are"),
                )
                self._correlator.lost = 0
            self._backoff.reset()
            self._failing.clear()
            self._noted.clear()
            await first_of(self._noted.wait(), timeout=POLL)

    async def flush(self, seconds: float) -> None:
        """Write waiting Events for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._write_due()
        except (ApiError, httpx.HTTPError, OSError, TimeoutError) as error:
            logger.info("events are not written: %s", reason_of(error))

    async def _write_due(self) -> None:
        failed: dict[str, ApiError] = {}  # by namespace: a webhook may fail in only one
        for entry in self._correlator.due(time.monotonic()):
            count, namespace = entry.count, _about(entry).namespace
            if namespace in failed:
                continue
            try:
                await self._write(entry)
            except ApiError as error:
                if error.status.code == 429:
                    raise
                if error.status.code not in NEVER:
                    failed[namespace] = error
                    continue
                reason = f"{entry.reason}: {error.status.message}"
                self._failing.fail(reason, "cannot write an event: %s", reason)
                self._correlator.discard(entry)
            else:
                self._correlator.note_written(entry, count, time.monotonic())
        if failed:
            raise next(iter(failed.values()))

    async def _write(self, entry: Entry) -> None:
        if not entry.name:
            fleet = _about(entry)
            entry.name = event_name(
                f"{fleet.name}-{fleet.kind}", fleet.uid, entry.type_, entry.reason, entry.message, entry.first
            )
        elif await self._count(entry):
            return
        try:
            await self._client.create(EVENTS.from_dict(build_event(entry, _involved(_about(entry)))))
        except ApiError as error:
            if error.status.code != 409 or not await self._count(entry):  # 409: the previous attempt succeeded
                raise

    async def _count(self, entry: Entry) -> bool:
        """Raise the count of an existing Event; False if it has expired, usually after an hour."""
        change: Any = {"count": entry.count, "lastTimestamp": utc(entry.last)}
        namespace = _about(entry).namespace
        with tolerating(404):
            await self._client.patch(EVENTS, entry.name, change, namespace=namespace, patch_type=PatchType.MERGE)
            return True
        return False


def _about(entry: Entry) -> FleetReference:
    assert isinstance(entry.subject, FleetReference)
    return entry.subject


def _involved(fleet: FleetReference) -> dict[str, str]:
    return {
        "apiVersion": API_VERSION,
        "kind": fleet.type.resource,
        "name": fleet.name,
        "namespace": fleet.namespace,
        "uid": fleet.uid,
    }


def event_name(prefix: str, *content: object) -> str:
    """Return a name that is the same at every attempt, so that a successful one is recognised."""
    return f"{prefix}.{hashlib.sha256('/'.join(map(str, content)).encode()).hexdigest()[:16]}"


def build_event(entry: Entry, about: Mapping[str, str]) -> Manifest:
    """Build the Event of `entry`; `about` refers to the object that it concerns."""
    return {
        "metadata": {"name": entry.name, "namespace": about["namespace"]},
        "involvedObject": dict(about),
        "type": entry.type_,
        "reason": entry.reason,
        "message": entry.message,
        "firstTimestamp": utc(entry.first),
        "lastTimestamp": utc(entry.last),
        "count": entry.count,
        "source": {"component": MANAGED_BY},
        "reportingComponent": MANAGED_BY,
    }
