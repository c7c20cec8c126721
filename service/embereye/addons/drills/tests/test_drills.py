"""The hub announces a drill, remembers it over a restart, and signs what its reporter says."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.clock import Clock
from harness.stored import Stored
from pypdf import PdfReader

from embereye.addons.drills.keeper import Drills
from embereye.addons.drills.page import pdf, text
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError
from embereye.hub.roles import Principal, Role
from embereye.process.sealed_pdf import signed_file
from embereye.process.signing import InvalidError, open_sealed, public_key
from embereye.units import HOUR

PRIVATE = bytes(range(32))
ADA = Principal("ada", Role.OPERATOR, "ada")
FLEET = "hall/sensors/仓库"
FAULTS = ["shard-deleted", "hub-deleted"]


def result(fault: str, **changed: Any) -> dict[str, Any]:
    return {
        "fault": fault, "target": "pod a", "started": "2026-11-29T12:00:00Z", "outcome": "passed",
        "uncoveredSeconds": 1.5, "allowedSeconds": 10.0, "recoveredAfterSeconds": 4.0, **changed,
    }  # fmt: skip


@contextlib.asynccontextmanager
async def running(stored: Stored, clock: Clock) -> AsyncIterator[tuple[Hub, Drills]]:
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18, clock=clock.wall, steady=clock.steady, leases=clock.steady)
    await hub.open()
    drills = Drills("mill", PRIVATE, hub)
    hub.add_part(drills)
    task = asyncio.ensure_future(hub.committer.run())
    try:
        yield hub, drills
    finally:
        hub.feed.close()
        await hub.committer.flush(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def test_a_drill_is_signed_and_survives_the_restart_of_the_hub(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as (_, drills):
        drill = await drills.start(ADA, "", FLEET, FAULTS)
        with pytest.raises(ConflictError, match="runs already, by ada"):
            await drills.start(ADA, "", FLEET, FAULTS)
    async with running(stored, clock) as (hub, drills):
        assert drills.running == drill
        data = await drills.end(ADA, drill.id, "", [result(fault) for fault in FAULTS])
        made = open_sealed(data, [public_key(PRIVATE)])
        assert (made["complete"], made["notRun"], made["site"], made["startedBy"]) == (True, [], "mill", "ada")
        assert drills.running is None
        assert await drills.find(drill.id) == data
        assert [each["drill"] for each in await drills.reports(10)] == [drill.id]
        assert [entry.action for entry in await hub.history.audit(0, 10)] == ["end drill", "start drill"]
        with pytest.raises(ConflictError, match="does not run"):
            await drills.end(ADA, drill.id, "", [])
        with pytest.raises(InvalidError):
            open_sealed(data.replace(b'"complete":true', b'"complete":null'), [public_key(PRIVATE)])
        assert "Complete: all faults passed." in text(data)
        pages = pdf(data)
        assert signed_file(pages) == data
        assert "shard-deleted" in PdfReader(io.BytesIO(pages)).pages[0].extract_text()


async def test_a_drill_without_all_faults_is_not_complete(stored: Stored) -> None:
    async with running(stored, Clock()) as (_, drills):
        drill = await drills.start(ADA, "Ada", FLEET, FAULTS)
        late = result("shard-deleted", outcome="not recovered", recoveredAfterSeconds=None)
        made = open_sealed(await drills.end(ADA, drill.id, "Ada", [late]), [public_key(PRIVATE)])
        assert (made["complete"], made["notRun"]) == (False, ["hub-deleted"])


async def test_the_hub_ends_a_forgotten_drill(stored: Stored) -> None:
    clock = Clock()
    async with running(stored, clock) as (_, drills):
        drill = await drills.start(ADA, "", FLEET, FAULTS)
        await drills.pass_time()
        assert drills.running
        clock.ns += 3 * HOUR
        await drills.pass_time()
        assert drills.running is None
        made = open_sealed(await drills.find(drill.id), [public_key(PRIVATE)])
        assert made["endedBy"] == "ended by the hub after 2 h without a report"
