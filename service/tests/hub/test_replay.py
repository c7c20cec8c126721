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

HALL = {"namespace": "site", "name": "hall"}  # the fleet of WATCHED


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


async def alarm_by_lines(hub_process: HubProcess, tmp_path: Path) -> str:
    """Have a sensor raise an alarm; return its id once its lines are stored."""
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
    return str(alarm)


async def test_an_alarms_stored_lines_lead_to_the_same_decision_when_replayed(
    hub_process: HubProcess, tmp_path: Path
) -> None:
    alarm = await alarm_by_lines(hub_process, tmp_path)
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


async def incident(hub: HubProcess, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "incident", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "EMBEREYE_TOKEN": hub.token, "EMBEREYE_CONSOLE": f"http://127.0.0.1:{hub.http_port}"},
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_a_saved_incident_is_decided_again_without_a_hub(hub_process: HubProcess, tmp_path: Path) -> None:
    alarm = await alarm_by_lines(hub_process, tmp_path)
    folder = tmp_path / "incidents"
    code, out = await incident(hub_process, "save", alarm, str(folder))
    assert (code, out.partition(":")[0]) == (0, f"saved {folder / alarm}")
    code, out = await incident(hub_process, "save", alarm, str(folder))
    assert (code, "exists already" in out) == (2, True)
    hub_process.kill()
    code, out = await incident(hub_process, "check", str(folder))
    assert (code, out) == (0, f"{alarm}: same decision\n1 incident, 0 decided otherwise\n")

    manifest = tmp_path / "fleet.yaml"
    for spec, changed in (({}, 0), ({"converter": {"bits": 16}}, 1)):  # then 4,095 is little
        fleet = {"apiVersion": "embereye.dev/v1beta1", "kind": "SensorFleet", "metadata": HALL, "spec": spec}
        manifest.write_text(json.dumps(fleet))
        code, out = await incident(hub_process, "check", str(folder), "--fleet", str(manifest))
        assert code == changed, out
    assert "now:  smoke clear now" in out

    document = folder / alarm / "incident.json"
    saved = json.loads(document.read_text())
    saved["expected"][1]["same"] = False  # as if the version that saved it had decided otherwise
    document.write_text(json.dumps(saved))
    code, out = await incident(hub_process, "check", str(folder))
    assert (code, "OTHER decision" in out, "now:  smoke" in out) == (1, True, True)

    (lines,) = (folder / alarm).glob("1-s-1*")
    lines.write_text(lines.read_text() + "\n")
    code, out = await incident(hub_process, "check", str(folder))
    assert (code, "has changed since it was saved" in out) == (2, True)


async def test_a_folder_without_incidents_is_refused_with_a_sentence(hub_process: HubProcess, tmp_path: Path) -> None:
    code, out = await incident(hub_process, "check", str(tmp_path))
    assert (code, "contains no saved incident" in out) == (5, True)
