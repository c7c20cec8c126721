"""The hub is killed again and again during an escalation of 20 alarms: no step is skipped, and doubles are bounded.

A real SMTP server has the books. Each start of the hub has its own sender address, so that every message shows
which of its lives sent it. `SEED=n` chooses other moments.
"""

import asyncio
import os
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.addons.notify.messages import EARLIER
from embereye.process.tasks import Tasks

from .servers import MailServer, text_of
from .test_process import ignite

ZONES = [f"zone-{number}" for number in range(20)]
CONFIG = """
fold: 2s
routes: [{routes}]
escalations:
  - name: fire
    for: alarm
    followUp: false
    steps: [{steps}]
"""
IN_START = 0.2  # share of kills that strike before the hub is ready
LIFE_SECONDS = 3.0  # of a hub between two kills, with its start, about
News = tuple[str, str]  # a step's person, and a zone


def write(folder: Path, mail: MailServer, people: list[str], pause: float, life: int) -> Path:
    """Write a notify.yaml whose steps, `pause` seconds apart, mail to one of `people` each."""
    routes = ", ".join(
        f"{{name: {name}, timeout: 60s, allow: 127.0.0.0/8, "
        f'url: "{mail.url.replace("guard@", f"{name}@").replace("hub@", f"life-{life}@")}"}}'
        for name in people
    )
    steps = ", ".join(f"{{after: {number * pause:.1f}s, routes: {name}}}" for number, name in enumerate(people))
    file = folder / "notify.yaml"
    file.write_text(CONFIG.format(routes=routes, steps=steps))
    return file


def books(mail: MailServer) -> Mapping[News, list[tuple[int, int]]]:
    """For each news its messages: the life of the hub, and the message's number among those to that person."""
    entries: dict[News, list[tuple[int, int]]] = {}
    numbers: dict[str, int] = {}
    for message in list(mail.received):
        person = str(message["to"]).partition("@")[0].lstrip("<")
        life = int(re.findall(r"life-(\d+)@", str(message["from"]))[0])
        numbers[person] = number = numbers.get(person, 0) + 1
        lines = [line for line in text_of(message).splitlines() if EARLIER not in line]
        for zone in set(re.findall(r"default/(zone-\d+)", "\n".join(lines))):
            entries.setdefault((person, zone), []).append((life, number))
    return entries


async def light(hub: HubProcess, moments: random.Random, seconds: float) -> None:
    """Let each zone burn at some moment within `seconds`; report it until a hub has stored it, as a shard does."""

    async def burn(zone: str, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            try:
                await ignite(hub, zone)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.2)
            else:
                return

    async with asyncio.TaskGroup() as fires:
        for zone in ZONES:
            fires.create_task(burn(zone, moments.uniform(0, seconds)))


@pytest.mark.parametrize(
    "kills", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])], ids="{} kills".format
)
async def test_no_step_is_skipped_when_the_hub_is_killed(
    tmp_path: Path, mail: MailServer, make_hub: Callable[..., HubProcess], kills: int
) -> None:
    seed = int(os.environ.get("SEED", kills))
    moments = random.Random(seed)
    people = [f"person-{number}" for number in range(min(12, kills + 1))]
    pause = kills * LIFE_SECONDS / len(people)
    wanted = {(person, zone) for person in people for zone in ZONES}
    hub = make_hub(Stored(tmp_path), "--notify", str(tmp_path / "notify.yaml"))

    def start(life: int) -> None:
        write(tmp_path, mail, people, pause, life)
        hub.start()

    start(0)
    await hub.ready()
    async with Tasks() as tasks:
        fires = tasks.start(light(hub, moments, kills * LIFE_SECONDS / 3), name="fires")
        for life in range(1, kills + 1):
            if moments.random() >= IN_START:
                await hub.ready()
            await asyncio.sleep(moments.uniform(0.0, 2.0))
            hub.kill()
            start(life)
        await hub.ready()
        await fires
    await eventually(lambda: books(mail).keys() >= wanted, 300, f"every step is sent (seed {seed})")
    await eventually(lambda: all(route["waiting"] == 0 for route in hub.get("/v1/notify")["routes"]), 60)
    entries = books(mail)
    assert entries.keys() == wanted, seed
    for news, sent in entries.items():
        lives = [life for life, _ in sent]
        assert len(set(lives)) == len(lives), f"seed {seed}: {news} came twice from one life of the hub: {sent}"
    last = {(person, life): number for (person, _), sent in entries.items() for life, number in sorted(sent)}
    for (person, zone), sent in entries.items():
        for life, number in sent[:-1]:
            assert number == last[person, life], f"seed {seed}: {zone} to {person} was not under way at a kill: {sent}"
