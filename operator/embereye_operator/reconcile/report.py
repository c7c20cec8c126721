"""The reports of a pass: the roster to the hub, the status to the API server, changes to people.

They run after the changes of a pass, and change nothing that shards do. An unreachable hub is a problem in the status;
a failed report of the load is ignored. The status is written only if `build_status` returned a new one, and not yet if
`lasting_seconds` makes it wait: metrics have it at once. Events are recorded for conditions whose answer changed, and
written later by another task.
"""

import contextlib
import logging
from dataclasses import replace

from embereye.units import SECOND, utc
from embereye.v1.roster_pb2 import FleetLedger
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import to_manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.placement.assignments import build_roster
from embereye_operator.decide.scaling.report import build_scaling
from embereye_operator.decide.snapshot import Snapshot
from embereye_operator.decide.status import (
    NOT_WRITTEN,
    Facts,
    describe_changes,
    lasting_seconds,
    with_problem,
)
from embereye_operator.errors import RefusedError, UnavailableError
from embereye_operator.reconcile.context import Context, Problems
from embereye_operator.runtime.interface import Writer

logger = logging.getLogger(__name__)
ANNOUNCED = ("Covered", "Ready")  # conditions whose changes become Events, in addition to Degraded


async def report_roster(snapshot: Snapshot, epoch: int, context: Context) -> tuple[FleetLedger | None, Problems]:
    """Report all declared devices to the hub; return the hub's ledger of their messages, None if unavailable."""
    if not epoch or snapshot.fleet.spec.paused or snapshot.hub is None:
        return None, {}
    memory = context.memory
    inputs = (*snapshot.declared_by, epoch)
    if not snapshot.declared_by or inputs != memory.roster[0]:
        memory.roster = inputs, build_roster(snapshot.fleet, [*snapshot.devices, *snapshot.incomplete], epoch)
    try:
        return await context.runtime.links.set_roster(memory.roster[1], snapshot.hub.name), {}
    except UnavailableError as error:
        return None, {"HubUnreachable": str(error)}


async def report_scaling(facts: Facts, status: FleetStatus, context: Context) -> None:
    """Report load and required shards to the hub. Only people see them, so failures are ignored."""
    if facts.intent.epoch and not facts.fleet.spec.paused:
        with contextlib.suppress(UnavailableError):
            await context.runtime.links.report_scaling(build_scaling(facts, status))


async def write_status(snapshot: Snapshot, status: FleetStatus, context: Context) -> tuple[FleetStatus, str]:
    """Write `status` if it is new, and has been for long enough; return the present one, and its news for the log.

    If the API server refuses it, the stored status is outdated. Metrics say so, by the returned status, and an Event.
    """
    memory, writer = context.memory, context.runtime.writer
    before = memory.unwritten or snapshot.previous
    if memory.unwritten is not None:
        # Its time ends the doubt about the stored status, even if nothing else is new.
        status = replace(status, last_observed=utc(snapshot.wall_time_ns))
    if status == snapshot.previous:
        status = snapshot.previous  # share one copy
    if status is memory.status:
        memory.has_reported, memory.differing_since = True, 0
        return status, ""
    if memory.has_reported and memory.unwritten is None and not _has_lasted(status, snapshot, memory):
        return status, ""
    memory.has_reported = True  # before, nobody knows how long the stored status has been outdated
    key, generation = ("Status", snapshot.fleet.name), snapshot.fleet.generation
    if why := memory.refusal(key, generation, snapshot.now):
        return _unwritten(status, why, before, context), ""
    try:
        await writer.write_status(snapshot.fleet, to_manifest(status))
    except RefusedError as error:
        memory.note_refusal(key, str(error), generation, snapshot.now)
        await writer.event(snapshot.fleet, "Warning", NOT_WRITTEN, str(error))
        status = _unwritten(status, str(error), before, context)
    else:
        if memory.unwritten is not None:
            logger.info("%s: its status is written again", snapshot.fleet.key)
        memory.refused.pop(key, None)
        memory.status, memory.unwritten, memory.differing_since = status, None, 0
    await _announce(snapshot.fleet, before, status, writer)
    return status, describe_changes(before, status)


def _has_lasted(status: FleetStatus, snapshot: Snapshot, memory: FleetMemory) -> bool:
    """True if the stored status has been outdated for so long that `status` has to be written."""
    memory.differing_since = memory.differing_since or snapshot.now
    return (snapshot.now - memory.differing_since) / SECOND >= lasting_seconds(status, snapshot.previous)


def _unwritten(status: FleetStatus, why: str, before: FleetStatus, context: Context) -> FleetStatus:
    context.memory.unwritten = with_problem(status, NOT_WRITTEN, why, before)
    return context.memory.unwritten


async def _announce(fleet: Fleet, previous: FleetStatus, status: FleetStatus, writer: Writer) -> None:
    """Record Kubernetes Events for conditions that changed."""
    for type_ in ANNOUNCED:
        before, now = previous.condition(type_), status.condition(type_)
        if now is not None and (before is None or before.status != now.status):
            good = now.status == "True"
            reason = type_ if good else f"Not{type_}"
            await writer.event(fleet, "Normal" if good else "Warning", reason, now.message)
    before, now = previous.condition("Degraded"), status.condition("Degraded")
    known = (before.status, before.reason) if before else None
    if now and now.status == "True" and known != (now.status, now.reason):
        logger.warning("%s: %s: %s", fleet.key, now.reason, now.message)
        if now.reason not in {"ApplyRefused", NOT_WRITTEN}:  # recorded at every refusal
            await writer.event(fleet, "Warning", now.reason, now.message)
