"""A hub and shards as real processes: a stop of three seconds is no loss, and one that lasts is seen by both witnesses.

The operator's part runs in the test: its calls, and the watch that decides.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from google.protobuf import json_format
from harness.eventually import eventually

from embereye.process.addresses import free_ports
from embereye.process.condition import Condition
from embereye.process.repeat import repeat
from embereye.process.tasks import Tasks
from embereye.v1.shard_pb2 import Peer, ShardStatus
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.controller import SILENCE_PERIOD
from embereye_operator.decide.placement.assignments import build_assignments, build_device
from embereye_operator.runtime.kubernetes.silence import Silences, SilenceWatch
from embereye_operator.runtime.links import Address, Hub, Shards

from ..test_reconcile import fleet_of

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
SHARDS = ("hall-sensors-0", "hall-sensors-1")
STOP_SECONDS = 3.0


@dataclass
class Place:
    """A hub with two shards, and the operator's watch over their silence."""

    fleet: Fleet
    hub: Hub
    shards: Shards
    controls: dict[str, str]  # shard → its control port
    processes: dict[str, "subprocess.Popen[bytes]"]  # by shard, and "hub"

    def __post_init__(self) -> None:
        self.watch = SilenceWatch(self.ask_hubs, self.call)

    async def ask_hubs(self) -> list[Silences]:
        return [(await self.hub.heard()).silences]

    async def call(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        return await self.shards.status(Address(fleet.namespace, shard, self.controls[shard]))

    def unheard(self) -> set[str]:
        return {name for _, name in self.watch.unheard()}

    def vouched(self) -> set[str]:
        return set(self.watch.statements(self.fleet, SHARDS).vouched)

    async def observe(self, seconds: float) -> set[str]:
        """Return the shards that were unheard at any time in the next `seconds`."""
        seen, loop = set[str](), asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            seen |= self.unheard()
            await asyncio.sleep(0.05)
        return seen

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)


def start(folder: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "embereye_cli", *arguments, "--host", HOST, "--data", str(folder / name)]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stderr=log)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    fleet = parse_fleet(fleet_of(4, shards=2))
    devices = [build_device(device, fleet) for device in fleet.devices]
    owners = {device.id: SHARDS[number % 2] for number, device in enumerate(devices)}
    hub_grpc, hub_control, hub_http = map(str, free_ports(3))
    hub = start(tmp_path, "hub", "hub", "--grpc-port", hub_grpc, "--control-port", hub_control, "--http-port", hub_http)
    processes, controls, members = {"hub": hub}, dict[str, str](), dict[str, Peer]()
    ports = {name: list(map(str, free_ports(4))) for name in SHARDS}
    for name, (grpc, control, _, _) in ports.items():
        controls[name] = f"{HOST}:{control}"
        members[name] = Peer(shard=name, grpc=f"{HOST}:{grpc}", control=controls[name])
    assignments = build_assignments(fleet, devices, owners, members=members, others=(), epoch=3)
    for name, (grpc, control, tcp, metrics) in ports.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json_format.MessageToJson(assignments[name]))
        processes[name] = start(
            tmp_path, name, "shard", "sensor", "--shard", name, "--hub", f"{HOST}:{hub_control}", "--assignment",
            str(file), "--grpc-port", grpc, "--control-port", control, "--tcp-port", tcp, "--metrics-port", metrics,
        )  # fmt: skip
    place = Place(fleet, Hub(f"{HOST}:{hub_control}"), Shards(), controls, processes)
    try:
        async with Tasks() as tasks:
            work = partial(place.watch.check, {fleet.key: fleet})
            failing = Condition(logger)
            tasks.start(repeat(work, SILENCE_PERIOD, failing, "%s", wake=place.watch.changed), name="check")
            await eventually(lambda: place.vouched() == set(SHARDS))
            yield place
        await place.watch.close()
        await place.hub.close()
        await place.shards.close()
    finally:
        for process in processes.values():
            process.kill()
            process.wait(10)


@pytest.mark.parametrize("name", ["hall-sensors-0", "hub"])
async def test_a_process_that_stops_for_three_seconds_is_not_lost(place: Place, name: str) -> None:
    for _ in range(2):
        place.send(name, signal.SIGSTOP)
        unheard = await place.observe(STOP_SECONDS)
        place.send(name, signal.SIGCONT)
        unheard |= await place.observe(STOP_SECONDS)
        assert not unheard


async def test_a_shard_that_stops_for_good_is_lost_until_it_continues(place: Place) -> None:
    place.send("hall-sensors-0", signal.SIGSTOP)
    await eventually(lambda: place.unheard() == {"hall-sensors-0"})
    assert place.watch.is_unanswered(place.fleet, "hall-sensors-0"), "so that no pass waits for it"
    place.send("hall-sensors-0", signal.SIGCONT)
    await eventually(lambda: place.vouched() == set(SHARDS))
    assert not place.unheard()


async def test_a_hub_that_ends_gives_no_shard_up(place: Place) -> None:
    place.send("hub", signal.SIGKILL)
    assert not await place.observe(2 * STOP_SECONDS)
