"""Several hubs on one database: one owns it, the others forward connections and take over when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from harness.eventually import eventually
from harness.need import POSTGRES, ROOT
from harness.servers.nats import Nats
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub.databases.owner import FROZEN_SECONDS, LOADING_SECONDS
from embereye.hub.report_key import report_key
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.tasks import Tasks
from embereye.v1.alarms_pb2 import ActionRequest, AlarmEvent, HistoryRequest, SubscribeRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub

if TYPE_CHECKING:
    from harness.hubs import Bus, HubProcess

FLEET = "default/sensors/hall"
TOKEN = "a-token-of-the-admin-that-replicas-share"


def evidence(name: str) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=name, episode=name, fleet=FLEET, device=name, zone=name, kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire,
        level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


def keys(names: Iterable[str]) -> set[str]:
    """The keys under which the hub stores reports of these names from the shard hall-0."""
    return {report_key(EvidenceItem(fleet=FLEET, id=name), "hall-0") for name in names}


async def report(hub: HubProcess, items: list[EvidenceItem], acknowledged: set[str]) -> None:
    """Send `items` to `hub` and collect acknowledgements, until all are there or the stream breaks."""
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True)
        try:
            await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="hall-0", epoch=1)))
            for item in items:
                await call.write(ReportRequest(evidence=item))
            wanted = {item.id for item in items}
            async for response in call:
                acknowledged.update(response.acknowledged)
                if wanted <= acknowledged:
                    break
        finally:
            call.cancel()


@pytest.fixture
async def replicas(
    stored_in_postgres: Stored, bus: Bus, make_hub: Callable[..., HubProcess], tmp_path: Path
) -> AsyncIterator[list[HubProcess]]:
    """Three replicas; the first one owns the database."""
    (tmp_path / "token").write_text(TOKEN)
    hubs = []
    for number in range(3):
        folder = tmp_path / f"hub-{number}"
        folder.mkdir()
        stored = Stored(folder, stored_in_postgres.address, stored_in_postgres.server)
        shared = ("--advertise", "127.0.0.1", "--admin-token-file", str(tmp_path / "token"))
        hubs.append(make_hub(stored, *shared, *bus.arguments))
        (folder / "admin-token").write_text(TOKEN)
        hubs[-1].start()
        await hubs[-1].ready()
    yield hubs
    for hub in hubs:
        _, failed, why = hub.log().partition("Traceback")
        assert not failed, why


def is_owner(hub: HubProcess) -> bool:
    """True if `hub` has become the owner since its process started."""
    lines = [line for line in hub.log()[hub.began :].splitlines() if "hub ready:" in line or "standing by for" in line]
    return bool(lines) and "hub ready:" in lines[-1]


async def test_every_replica_accepts_reports_and_serves_feeds_history_and_actions(replicas: list[HubProcess]) -> None:
    assert [is_owner(hub) for hub in replicas] == [True, False, False]
    seen: dict[int, list[int]] = {}

    async def subscribe(number: int) -> None:
        async with replicas[number].channel() as link:
            call = AlarmsStub(link).Subscribe(SubscribeRequest(), wait_for_ready=True)
            async for event in call:
                assert isinstance(event, AlarmEvent)
                seen.setdefault(number, []).append(event.cursor)

    async with Tasks() as tasks:
        for number in range(3):
            tasks.start(subscribe(number), name=f"subscriber-{number}")
        acknowledged: set[str] = set()
        for number, hub in enumerate(replicas):
            await asyncio.wait_for(report(hub, [evidence(f"r-{number}-{n}") for n in range(10)], acknowledged), 20)
        assert len(acknowledged) == 30
        async with replicas[2].channel() as link:
            await AlarmsStub(link).Acknowledge(ActionRequest(zone="r-0-0", who="Ada"), timeout=10)
        await eventually(lambda: len(seen) >= 3 and all(len(cursors) >= 31 for cursors in seen.values()))
    assert list(seen.values()) == [list(range(1, 32))] * 3
    answers = []
    for hub in replicas:
        async with hub.channel() as link:
            history = await AlarmsStub(link).History(HistoryRequest(limit=100), timeout=10)
            zones = await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)
        states = {zone.name: zone.state for zone in zones.zones}
        answers.append((history.SerializeToString(), states, hub.get("/v1/zones")["cursor"]))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][1]["r-0-0"] == ZoneState.ACKNOWLEDGED


async def strike(replicas: list[HubProcess], postgres: Postgres, nats: Nats | None, fault: str) -> None:
    owner = next((hub for hub in replicas if is_owner(hub)), replicas[0])
    match fault:
        case "owner killed":
            owner.kill()
        case "standby killed":
            next(hub for hub in replicas if hub is not owner).kill()
        case "owner terminated":
            await asyncio.to_thread(owner.terminate)
        case "connections ended":
            await asyncio.to_thread(postgres.break_connections, owner.stored.database)
        case "NATS killed" if nats is not None:
            await asyncio.to_thread(nats.stop, signal.SIGKILL)
            await asyncio.to_thread(nats.start)
        case "NATS and owner killed" if nats is not None:
            await asyncio.to_thread(nats.stop, signal.SIGKILL)
            owner.kill()
            await asyncio.to_thread(nats.start)


async def revive(replicas: list[HubProcess]) -> None:
    """Restart hubs that have ended, as Kubernetes does."""
    while True:
        for hub in replicas:
            if hub.process is not None and hub.process.poll() is not None:
                hub.start()
        await asyncio.sleep(0.1)


async def report_all(replicas: list[HubProcess], items: list[EvidenceItem], acknowledged: set[str]) -> None:
    """Send reports to any replica until all are acknowledged, as a shard does through a Service."""
    randomly = random.Random(3)
    while owed := [item for item in items if item.id not in acknowledged][:20]:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            await asyncio.wait_for(report(randomly.choice(replicas), owed, acknowledged), 3)


@pytest.mark.needs(POSTGRES)
def test_another_hub_takes_over_soon_after_losing_a_node() -> None:
    if os.geteuid() or not all(map(shutil.which, ("unshare", "ip", "iptables", "setpriv"))):
        pytest.skip("a separate network needs root, unshare, ip and iptables")
    script = Path(__file__).with_name("lost_node.py")
    command = [
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        f"ip link set lo up && exec {sys.executable} {script}",
    ]
    path = os.pathsep.join(str(ROOT / folder) for folder in ("e2e", "service", "operator"))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert not done.returncode, done.stderr
    result = json.loads(done.stdout)
    assert result["owner's connections"] == 1
    assert result["seconds"] < 60, "TCP alone would notice it after minutes"
    assert "reloading: another hub owned" in result["log"]


async def test_an_owner_that_was_replaced_acknowledges_nothing_and_enters_standby(
    replicas: list[HubProcess], postgres: Postgres, bus: Bus
) -> None:
    first = replicas[0]
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)  # its node hangs, so it does not notice what happens
    await asyncio.to_thread(postgres.break_connections, first.stored.database)
    await eventually(lambda: any(is_owner(hub) for hub in replicas[1:]))
    first.process.send_signal(signal.SIGCONT)
    acknowledged: set[str] = set()
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
        await asyncio.wait_for(report(first, [evidence("stale")], acknowledged), 5)
    # The new owner stores the reports in the stream.
    assert bus.server or not acknowledged
    await eventually(lambda: not is_owner(first))
    assert "reloading: " in first.log()
    await first.ready()
    await asyncio.wait_for(report(first, [evidence("again")], acknowledged), 60)
    await eventually(lambda: {row[0] for row in first.stored.query("SELECT id FROM evidence")} == keys(acknowledged))


async def test_an_owner_that_is_frozen_is_replaced_without_help(replicas: list[HubProcess]) -> None:
    first = replicas[0]
    assert first.process is not None
    await asyncio.sleep(LOADING_SECONDS)  # from then on, a silent owner is not one that loads
    first.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(3)
    first.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(FROZEN_SECONDS)
    assert [is_owner(hub) for hub in replicas] == [True, False, False], "three seconds are no reason"
    first.process.send_signal(signal.SIGSTOP)
    await eventually(lambda: any(is_owner(hub) for hub in replicas[1:]))
    acknowledged: set[str] = set()
    (second,) = (hub for hub in replicas if is_owner(hub) and hub is not first)
    await asyncio.wait_for(report(second, [evidence("meanwhile")], acknowledged), 20)
    first.process.send_signal(signal.SIGCONT)
    await eventually(lambda: not is_owner(first))
    await first.ready()
    await asyncio.wait_for(report(first, [evidence("again")], acknowledged), 60)
    assert {row[0] for row in first.stored.query("SELECT id FROM evidence")} == keys({"meanwhile", "again"})


FAULTS = ["owner killed", "standby killed", "owner terminated", "connections ended", "NATS killed"]


@pytest.mark.parametrize("fault", [*FAULTS, "NATS and owner killed"])
async def test_acknowledged_reports_count_once_and_alarms_resume_in_ten_seconds(
    replicas: list[HubProcess], postgres: Postgres, bus: Bus, fault: str
) -> None:
    if "NATS" in fault and bus.server is None:
        pytest.skip("there is no NATS")
    randomly, stored = random.Random(3), replicas[0].stored
    limit = max(60.0, 6 * replicas[0].start_seconds)  # a hub that starts slowly also restarts slowly
    acknowledged: set[str] = set()
    items = [evidence(f"r-{number}") for number in range(600)]

    def alarms() -> int:
        return int(stored.query("SELECT COUNT(*) FROM events")[0][0])

    async with Tasks() as tasks:
        tasks.start(revive(replicas), name="revive")
        sending = tasks.start(report_all(replicas, items, acknowledged), name="report")
        for _ in range(4):
            await asyncio.sleep(0.3 + randomly.random())
            before, struck = await asyncio.to_thread(alarms), time.monotonic()
            await strike(replicas, postgres, bus.server, fault)
            while await asyncio.to_thread(alarms) <= before < len(items):
                assert time.monotonic() < struck + limit, f"{fault}: alarms continue"
                await asyncio.sleep(0.02)
        await asyncio.wait_for(asyncio.shield(sending), 60)
        await eventually(lambda: {row[0] for row in stored.query("SELECT id FROM evidence")} == keys(acknowledged))
    assert acknowledged == {item.id for item in items}
    assert [row[0] for row in stored.query("SELECT cursor FROM events ORDER BY cursor")] == list(range(1, 601))
    assert stored.query("SELECT COUNT(DISTINCT zone) FROM events") == [(600,)], "one alarm each"
