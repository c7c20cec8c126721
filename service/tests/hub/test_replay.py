"""From a device's lines to the alarm, and from its stored lines to the same decision, with a real hub."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.eventually import eventually

from embereye.sensor.shard import SensorShard

from .shards import shard_process
from .test_tracing import WATCHED

if TYPE_CHECKING:
    from harness.hubs import HubProcess


async def explained(hub: HubProcess, alarm: str) -> tuple[int | None, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "explain", "alarm", alarm, "--replay", "--json",
        "--console", f"http://127.0.0.1:{hub.http_port}",
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "EMBEREYE_TOKEN": hub.token},
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, json.loads(out)


def fetched(hub: HubProcess, path: str) -> str:
    headers = {"Authorization": f"Bearer {hub.token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{hub.http_port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


async def test_an_alarms_stored_lines_lead_to_the_same_decision_when_replayed(
    hub_process: HubProcess, tmp_path: Path
) -> None:
    hub_process.start()
    await hub_process.ready()
    folder = tmp_path / "shard"
    folder.mkdir()
    async with shard_process(SensorShard(), hub_process, folder, WATCHED) as shard:
        _, writer = await asyncio.open_connection("127.0.0.1", shard.tcp_port)
        writer.write(b"#serialno:s-1!\r\n")
        for _ in range(30):
            writer.write(b"#Sensor:ADC1=7,ADC2=8,ADC3=9,DIO=0!\r\n")  # quiet lines, which are not analysed
            await asyncio.sleep(0.02)
        writer.write(b"#Sensor:ADC1=4095,ADC2=8,ADC3=9,DIO=0!\r\n")
        await eventually(lambda: any(zone["alarm"] for zone in zones(hub_process)), goal="the alarm")
        writer.close()
    # The shard has ended and delivered its recording, although the sign continued.
    (alarm,) = [zone["alarm"] for zone in zones(hub_process) if zone["alarm"]]
    code, explanation = await explained(hub_process, alarm)
    (lines,) = explanation["lines"]
    assert (lines["media"], lines["device"], explanation["clips"]) == ("MEDIA_LINES", "s-1", [])
    stored = fetched(hub_process, lines["url"])
    assert stored.count("ADC1=7,") >= 25
    assert stored.count("ADC1=4095,") == 1
    (_, verdict) = explanation["replay"]
    assert verdict["same"], verdict
    assert verdict["why"].startswith("smoke ")
    assert code == 0


def zones(hub: HubProcess) -> list[dict[str, Any]]:
    answer: Any = hub.get("/v1/zones")
    return [{"alarm": "", **zone} for zone in answer["zones"]]
