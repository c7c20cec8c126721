"""The `embereye alarms` command against a real hub."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub

if TYPE_CHECKING:
    from conftest import HubProcess  # type: ignore[attr-defined]


async def command(hub: HubProcess, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "alarms", "--hub", hub.grpc, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def output(hub: HubProcess, *arguments: str) -> tuple[int | None, str, str]:
    process = await command(hub, *arguments)
    out, err = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode, out.decode(), err.decode()


async def report(hub: HubProcess, name: str, device: str) -> None:
    now = time.time_ns()
    item = EvidenceItem(
        id=name, episode=device, fleet="default/sensors/hall", device=device, zone="hall\x1b[2J",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True, timeout=20)
        await call.write(ReportRequest(hello=ShardHello(fleet=item.fleet, shard="hall-0")))
        await call.write(ReportRequest(evidence=item))
        async for response in call:
            if name in response.acknowledged:
                break
        call.cancel()


async def test_watching_goes_on_over_a_restart_of_the_hub_with_every_event_once(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    watching = await command(hub_process, "--json", "watch", "--cursor", "0")
    assert watching.stdout is not None
    assert watching.stderr is not None
    seen = [json.loads(await asyncio.wait_for(watching.stdout.readline(), 20))]
    hub_process.kill()
    assert b"may no longer be true" in await asyncio.wait_for(watching.stderr.readline(), 20)
    hub_process.start()
    await hub_process.ready()
    for number in (2, 3):
        await report(hub_process, f"e{number}", f"s-{number}")
        seen.append(json.loads(await asyncio.wait_for(watching.stdout.readline(), 20)))
    watching.terminate()
    assert await asyncio.wait_for(watching.wait(), 10) == 0
    assert [event["cursor"] for event in seen] == ["1", "2", "3"]


async def test_zones_are_listed_acknowledged_and_reset_at_the_command_line(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    zone = "hall\x1b[2J"
    code, out, _ = await output(hub_process, "list")
    assert code == 0
    assert "ALARM" in out
    assert "\x1b[2J" not in out, "a zone's name must not steer the terminal"
    code, _, err = await output(hub_process, "reset", zone)
    assert code == 2
    assert "acknowledge it before it is reset" in err
    code, out, _ = await output(hub_process, "--json", "ack", zone, "--who", "Ada")
    assert json.loads(out)["who"] == "Ada"
    code, _, err = await output(hub_process, "ack", "attic")
    assert (code, "there is no zone attic" in err) == (2, True)
    hub_process.kill()
    code, _, err = await output(hub_process, "list")
    assert (code, "cannot be reached" in err) == (2, True)
