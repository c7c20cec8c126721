"""From a device's bytes to the explanation of a minute without an alarm, with real shards and a real hub."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from harness.eventually import eventually
from harness.settings import camera_settings, sensor_settings

from embereye.camera.scheduling.mailbox import Tally
from embereye.camera.shard import CameraShard
from embereye.process.tasks import beside
from embereye.sensor.shard import SensorShard
from embereye.sim.scenes.scene import render
from embereye.units import SECOND
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device, Mask

from .shards import shard_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from harness.hubs import HubProcess

    from embereye.shard.service import ShardCore, ShardOptions

pytestmark = pytest.mark.slow
LEAST_SECONDS = 11.0  # for the first margin: two turns of the shard, of 5 s each
MASK = Mask(x=[0.0, 0.5, 0.5, 0.0], y=[0.0, 0.0, 0.5, 0.5])


async def started(hub: HubProcess, assignment: Assignment) -> None:
    hub.start()
    await hub.ready()
    roster = FleetRoster(fleet=assignment.fleet, epoch=1, deadline_ns=5 * SECOND, devices=assignment.devices)
    async with grpc.aio.insecure_channel(hub.control) as link:
        await RosterStub(link).Set(roster, timeout=20)


async def explained(hub: HubProcess, device: str, at_s: float) -> dict[str, Any]:
    """The answers of the command for the minute of `at_s`, and for the next one if it has more."""
    answers = []
    for seconds in (at_s, at_s + 60):
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "embereye_cli", "explain", "quiet", device, "--at", when, "--json",
            "--console", f"http://127.0.0.1:{hub.http_port}",
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "EMBEREYE_TOKEN": hub.token},
        )  # fmt: skip
        out, _ = await process.communicate()
        answers.append(json.loads(out))
    return max(answers, key=lambda answer: len(answer["margins"]))


@contextlib.asynccontextmanager
async def watched(
    hub: HubProcess, core: ShardCore, folder: Path, assignment: Assignment
) -> AsyncIterator[ShardOptions]:
    """Run a shard; at the end of the block it has sent its margins."""
    await started(hub, assignment)
    async with shard_process(core, hub, folder, assignment) as options:
        yield options


def nearest(answer: dict[str, Any]) -> dict[str, Any]:
    return {each["peak"]["kind"]: each["peak"] for each in answer["nearest"]}


async def test_a_sensors_quiet_lines_explain_why_there_was_no_alarm(hub_process: HubProcess, tmp_path: Path) -> None:
    assignment = Assignment(
        fleet="site/sensors/hall", shard="hall-0", epoch=1, devices=[Device(id="s-1", zone="hall")],
        sensor=sensor_settings(),
    )  # fmt: skip
    began = time.time()
    async with watched(hub_process, SensorShard(), tmp_path, assignment) as shard:
        _, writer = await asyncio.open_connection("127.0.0.1", shard.tcp_port)
        writer.write(b"#serialno:s-1!\r\n")
        while time.time() - began < LEAST_SECONDS + 5:
            writer.write(b"#Sensor:ADC1=7,ADC2=8,ADC3=9,DIO=0!\r\n")
            await asyncio.sleep(0.2)
        writer.close()
    answer = await explained(hub_process, "s-1", began)
    assert (answer["zone"], answer["events"]) == ("hall", [])
    assert nearest(answer).keys() == {"smoke", "flame", "gas"}
    smoke = nearest(answer)["smoke"]["nearest"]
    assert 0 < smoke["value"] < smoke["threshold"] == sensor_settings().smoke.alarm
    assert sum(margin["analysed"] for margin in answer["margins"]) > 0


async def test_a_cameras_strongest_moment_and_its_mask_are_told(hub_process: HubProcess, tmp_path: Path) -> None:
    assignment = Assignment(
        fleet="site/cameras/yard", shard="yard-0", epoch=1, devices=[Device(id="c-1", zone="yard", masks=[MASK])],
        camera=camera_settings(),
    )  # fmt: skip
    core, began = CameraShard(decoders=1), time.time()
    loops = await asyncio.to_thread(render, 320, 240, 5, 15.0)

    async def push() -> None:
        number = 0
        while True:
            core.admit_pushed_frame("c-1", loops.quiet[number % len(loops.quiet)], time.time_ns(), Tally())
            number += 1
            await asyncio.sleep(0.1)

    async with watched(hub_process, core, tmp_path, assignment):
        began = time.time()
        async with beside(push(), name="camera"):
            await eventually(lambda: core.covered(time.time_ns()) == (1, 1))
            await asyncio.sleep(LEAST_SECONDS + 5)
    answer = await explained(hub_process, "c-1", began)
    assert nearest(answer).keys() == {"flame", "smoke"}
    assert nearest(answer)["flame"]["nearest"]["name"] in {"flame.score", "flame.lasted"}
    assert {"by": "mask", "why": "masks hide 25 % of the picture, which is not analysed"} in answer["suppressed"]
    assert sum(margin["analysed"] for margin in answer["margins"]) > 0
