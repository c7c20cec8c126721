"""A hub and a real Alertmanager: it accepts the hub's alerts, and both write the same to receivers."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.need import ALERTMANAGER
from harness.stored import Stored

from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.webhooks.options import WebhookOptions
from embereye.levels import ZoneState
from embereye.process.addresses import free_ports
from embereye.v1.alarms_pb2 import AlarmEvent

from .receiver import LOOPBACK, Receiver, run

CONFIG = """
route: {receiver: hook, group_by: [namespace, zone], group_wait: 0s, group_interval: 1s}
receivers: [{name: hook, webhook_configs: [{url: "http://127.0.0.1:PORT/from-alertmanager"}]}]
"""
pytestmark = pytest.mark.needs(ALERTMANAGER)


@pytest.fixture
async def alertmanager(receiver: Receiver, tmp_path: Path) -> AsyncIterator[str]:
    """Run an Alertmanager that sends its alerts to `receiver`; yield its address."""
    (port,) = free_ports(1)
    (tmp_path / "config.yml").write_text(CONFIG.replace("PORT", str(receiver.port)))
    process = await asyncio.create_subprocess_exec(
        "prometheus-alertmanager", f"--config.file={tmp_path}/config.yml", f"--storage.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(30):
        while True:
            try:
                await get_json(f"{address}/api/v2/status")
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    yield address
    process.terminate()
    await process.wait()


async def get_json(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json()


async def alarm(hub: Hub, state: ZoneState, previous: ZoneState) -> None:
    now = hub.timeline.now_ns()
    event = AlarmEvent(
        namespace="plant", zone="hall", alarm="abc", type=AlarmEvent.TYPE_STATE, state=state.wire,
        previous=previous.wire, time_ns=now, why="smoke 12 %",
    )  # fmt: skip
    await hub.committer.commit(lambda draft: hub.zones.add_events(draft, [event]))


async def test_an_alarm_is_an_alert_at_the_alertmanager_until_its_reset(
    stored: Stored, alertmanager: str, receiver: Receiver
) -> None:
    theirs = WebhookOptions("theirs", f"{alertmanager}/api/v2/alerts", format="alertmanager-api", allow=LOOPBACK)
    ours = receiver.options("ours", format="alertmanager")

    async def active() -> list[dict[str, str]]:
        return [alert["labels"] for alert in await get_json(f"{alertmanager}/api/v2/alerts?active=true")]

    async with run(stored, theirs, ours) as hub, asyncio.timeout(40):
        await alarm(hub, ZoneState.ALARM, ZoneState.NORMAL)
        while not await active():
            await asyncio.sleep(0.1)
        (labels,) = await active()
        assert labels == {
            "alertname": "EmberEyeAlarm", "severity": "critical", "namespace": "plant", "zone": "hall", "alarm": "abc",
        }  # fmt: skip
        while len(receiver.bodies) < 2:
            await asyncio.sleep(0.1)
        await alarm(hub, ZoneState.NORMAL, ZoneState.RESTORED)
        while await active():
            await asyncio.sleep(0.1)
    written = {body["receiver"]: body for body in map(json.loads, receiver.bodies) if body["status"] == "firing"}
    assert written["ours"].keys() == written["hook"].keys()
    assert written["ours"]["alerts"][0].keys() == written["hook"]["alerts"][0].keys()
    assert written["ours"]["alerts"][0]["labels"] == written["hook"]["alerts"][0]["labels"]
    assert written["ours"]["groupLabels"] == written["hook"]["groupLabels"]
    assert written["ours"]["version"] == written["hook"]["version"]


async def test_a_test_of_an_alertmanagers_webhook_succeeds(stored: Stored, alertmanager: str) -> None:
    theirs = WebhookOptions("theirs", f"{alertmanager}/api/v2/alerts", format="alertmanager-api", allow=LOOPBACK)
    async with run(stored, theirs) as hub:
        assert await hub.webhooks.test(Principal("ada", Role.OPERATOR, "ada"), "theirs") == ""
    assert await get_json(f"{alertmanager}/api/v2/alerts") == []
