"""Replicas with a stream in NATS, while no hub owns their database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from harness.servers.nats import Nats
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.levels import Kind, Level, Sense
from embereye.process.timing.clock import now_ns
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub

if TYPE_CHECKING:
    from harness.hubs import HubProcess

FLEET = "default/sensors/hall"
TOKEN = "a-token-of-the-admin-that-replicas-share"


def smoke(name: str) -> EvidenceItem:
    now = now_ns()
    return EvidenceItem(
        id=name, episode=name, fleet=FLEET, device=name, zone=name, kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire,
        level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


async def report(hub: HubProcess, names: list[str]) -> None:
    """Send reports until all are acknowledged, as a shard does."""
    acknowledged: set[str] = set()
    while owed := [name for name in names if name not in acknowledged]:
        async with hub.channel(hub.control) as link:
            call = EvidenceStub(link).Report()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="hall-0", epoch=1)))
                for name in owed:
                    await call.write(ReportRequest(evidence=smoke(name), sent_ns=now_ns()))
                async for response in call:
                    acknowledged.update(response.acknowledged)
                    if acknowledged >= set(owed):
                        break
            call.cancel()
        await asyncio.sleep(0.1)


async def test_a_replica_accepts_evidence_without_owner_and_without_database(
    stored_apart: Stored, own_postgres: Postgres, own_nats: Nats, make_hub: Callable[..., HubProcess], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    hubs = []
    for number in range(2):
        folder = tmp_path / f"hub-{number}"
        folder.mkdir()
        (folder / "admin-token").write_text(TOKEN)
        stored = Stored(folder, stored_apart.address, own_postgres)
        shared = ("--advertise", "127.0.0.1", "--admin-token-file", str(tmp_path / "token"))
        hubs.append(make_hub(stored, *shared, "--nats", own_nats.address))
        hubs[-1].start()
        await hubs[-1].ready()
    owner, other = hubs
    await asyncio.wait_for(report(other, ["before"]), 60)
    await asyncio.to_thread(own_postgres.stop)
    owner.kill()
    await asyncio.wait_for(report(other, [f"r-{n}" for n in range(30)]), 60)
    async with other.channel(other.control) as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RosterStub(link).Retain(RetainRequest(), timeout=5)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    await asyncio.to_thread(own_postgres.start)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Exception):  # the server may not answer yet
                if len(other.stored.query("SELECT id FROM evidence")) == 31:
                    break
            await asyncio.sleep(0.1)
    assert other.stored.query("SELECT COUNT(*), COUNT(DISTINCT zone), MAX(cursor) FROM events") == [(31, 31, 31)]
    assert "Traceback" not in other.log()
