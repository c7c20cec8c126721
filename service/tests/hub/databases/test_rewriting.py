"""A database that lost commits, as after a failover: the hub writes its state again."""

import time
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub.databases import schema
from embereye.hub.databases.store import StoreThreads
from embereye.hub.hub import Hub
from embereye.hub.plans.images import PlanImage
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.plans import Place
from embereye.levels import Kind, Level, Sense
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, Coverage, EvidenceItem
from embereye.zone.canary import PREFIX

from ..running import running

ADA = Principal("Ada", Role.ADMIN, "Ada")
FLEET, SHARD = "site/sensors/hall", "hall-0"
PLAN = CanaryPlan(process="p", interval_ns=60 * SECOND, within_ns=10 * SECOND)
DEVICE = ("default/sensors/hall", "s-01")
BEFORE, AFTER = PlanImage("image/png", b"pixels before", 400, 300), PlanImage("image/png", b"pixels after", 800, 600)


def canary(shard: str) -> EvidenceItem:
    now_ns = time.time_ns()
    return EvidenceItem(
        id=f"{PREFIX}{shard}", episode=PREFIX, fleet=FLEET, device=f"{PREFIX}1", zone="_canary", kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=Level.ALARM.wire, score=1, since_ns=now_ns, until_ns=now_ns,
        canary=CanaryFire(shard=shard, process="p", lit_ns=now_ns, within_ns=PLAN.within_ns),
    )  # fmt: skip


def test_every_table_that_is_in_memory_is_written_again(tmp_path: Path) -> None:
    hub = Hub(StoreThreads(tmp_path), retention_ns=3600 * SECOND)
    assert {table.name for table in hub._full_state().changes} == {
        table.name for table in schema.OWN if table.is_rewritten
    }


async def test_plans_and_canaries_survive_a_failover_that_lost_them(
    stored_in_postgres: Stored, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    database, durable = stored_in_postgres.database, list[str]()
    tables = [*schema.table_names(), "hub_owner"]
    async with running(stored_in_postgres) as hub:
        await hub.plans.store(ADA, "Attic", BEFORE)
        await hub.plans.store(ADA, "Cellar", BEFORE)
        await hub.plans.place(ADA, "Cellar", DEVICE, Place(0.1, 0.1))
        for table in tables:
            postgres.execute(f"CREATE TABLE replica_{table} AS TABLE {table}", database)
        # Changes that the replica which takes over does not have:
        await hub.plans.remove(ADA, "Attic")
        await hub.plans.store(ADA, "Cellar", AFTER)
        await hub.plans.place(ADA, "Cellar", DEVICE, Place(0.2, 0.2))
        await hub.plans.store(ADA, "Roof", AFTER)
        hub.canaries.expect(Coverage(fleet=FLEET, shard=SHARD, time_ns=time.time_ns(), canary=PLAN))
        hub.inbox.admit(canary(SHARD), durable.append)
        await eventually(lambda: durable, goal="the canary is durable")
        (beat,) = hub.canaries.heartbeats()
        assert beat.latest is not None
        for table in tables:
            statement = f"BEGIN; TRUNCATE {table}; INSERT INTO {table} SELECT * FROM replica_{table}; COMMIT"
            postgres.execute(statement, database)
        postgres.break_connections(database)
        await eventually(
            lambda: "which it had acknowledged" in caplog.text and not hub.committer.failing, goal="rewriting"
        )
        await hub.committer.commit(lambda _: None)
    async with running(stored_in_postgres) as hub:
        assert {plan.name: plan.devices for plan in hub.plans.all()} == {
            "Cellar": {DEVICE: Place(0.2, 0.2)},
            "Roof": {},
        }
        assert [await hub.plans.image(plan.name) for plan in hub.plans.all()] == [AFTER.data] * 2
        hub.canaries.expect(Coverage(fleet=FLEET, shard=SHARD, time_ns=time.time_ns(), canary=PLAN))
        (again,) = hub.canaries.heartbeats()
        assert again.latest == beat.latest
