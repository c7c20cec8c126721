"""From a device's lines to the alarm, and from its stored lines to the same decision, with a real hub."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from harness.eventually import eventually

from embereye.levels import Kind, Level, Sense
from embereye.sensor.shard import SensorShard
from embereye.units import SECOND
from embereye.v1.clips_pb2 import Clip, ClipChunk
from embereye.v1.clips_pb2_grpc import ClipsStub
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device, Mask
from embereye.wire.matroska import Muxer

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


def clip_of(frames: int, **about: Any) -> tuple[Clip, bytes]:
    """A clip of a grey picture, at a tenth of a second each."""
    began = time.time_ns() // SECOND * SECOND - 10 * SECOND
    jpeg = cv2.imencode(".jpg", np.full((240, 320, 3), 90, np.uint8))[1].tobytes()
    muxer = Muxer(320, 240, "c-1", began)
    content = muxer.begin() + b"".join(muxer.frame(jpeg, began + number * SECOND // 10) for number in range(frames))
    content += muxer.finish()[0]
    digest = hashlib.sha256(content).hexdigest()
    until = began + (frames - 1) * SECOND // 10
    return Clip(sha256=digest, bytes=len(content), from_ns=began, until_ns=until, frames=frames, **about), content


async def alarm_by_picture(hub: HubProcess, camera: Device, fleet: str) -> str:
    """Store a roster, a camera's sign and its clip; return the alarm's id."""
    hub.start()
    await hub.ready()
    about: dict[str, Any] = {"fleet": fleet, "device": camera.id, "zone": camera.zone, "episode": "e"}
    now = time.time_ns()
    item = EvidenceItem(
        id="one", kind=Kind.FLAME.wire, sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
        **about,
    )  # fmt: skip
    clip, content = clip_of(20, media=Clip.MEDIA_CLIP, kind=Kind.FLAME.wire, **about)

    async def chunks() -> AsyncIterator[ClipChunk]:
        yield ClipChunk(clip=clip)
        yield ClipChunk(data=content)

    async with hub.channel(hub.control) as link:
        await RosterStub(link).Set(FleetRoster(fleet=fleet, epoch=1, deadline_ns=60 * SECOND, devices=[camera]))
        call = EvidenceStub(link).Report(wait_for_ready=True, timeout=20)
        await call.write(ReportRequest(hello=ShardHello(fleet=fleet, shard="yard-0")))
        await call.write(ReportRequest(evidence=item))
        async for response in call:
            if item.id in response.acknowledged:
                break
        call.cancel()
        await ClipsStub(link).Deliver(chunks(), timeout=20)
    await eventually(lambda: any(zone["alarm"] for zone in zones(hub)), goal="the alarm")
    return str(next(zone["alarm"] for zone in zones(hub) if zone["alarm"]))


async def test_a_cameras_clip_is_replayed_with_the_masks_that_the_hub_knows(
    hub_process: HubProcess, tmp_path: Path
) -> None:
    corner, desk = (Mask(x=[left, left + 0.25, left], y=[0.0, 0.0, 0.5]) for left in (0.0, 0.5))
    camera = Device(id="c-1", zone="yard", masks=[corner], privacy_masks=[desk])
    alarm = await alarm_by_picture(hub_process, camera, "site/cameras/yard")
    _, explanation = await explained(hub_process, alarm)
    subject = "the detectors on 20 frames of c-1"
    assert explanation["replay"][1]["of"] == f"{subject} (2 masks, as declared now)"

    folder = tmp_path / "incidents"
    assert (await incident(hub_process, "save", alarm, str(folder)))[0] == 0
    hub_process.kill()
    document = folder / alarm / "incident.json"
    saved = json.loads(document.read_text())
    (recording,) = saved["recordings"]
    assert recording["masks"] == [{"x": list(mask.x), "y": list(mask.y)} for mask in (corner, desk)]
    saved["expected"][1]["same"] = True  # as if the version that saved it had found the flame
    document.write_text(json.dumps(saved))
    code, out = await incident(hub_process, "check", str(folder))
    assert (code, f"{subject} (2 masks, as declared when it was saved)" in out) == (1, True), out


async def test_a_folder_without_incidents_is_refused_with_a_sentence(hub_process: HubProcess, tmp_path: Path) -> None:
    code, out = await incident(hub_process, "check", str(tmp_path))
    assert (code, "contains no saved incident" in out) == (5, True)
