"""A device's ledger over all its owners: it adds up across hand-overs, kills, drains, and a hub that is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.process.addresses import free_ports
from embereye.v1.shard_pb2 import Assignment, Peer
from embereye.v1.types_pb2 import Device
from embereye_cli.explain.device import is_balanced, sentences

FLEET = "default/sensors/hall"
LINE = b"#Sensora:ADC1=%d,ADC2=1305,ADC3=2,DIO=0!\r\n"


@dataclass
class Site:
    """A hub and shards as processes."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, list[int]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        ports = self.ports.setdefault(name, free_ports(4))
        grpc, other, metrics, control = map(str, ports)
        arguments = ["--host", "127.0.0.1", "--grpc-port", grpc, "--control-port", control]
        arguments += ["--data", str(self.folder / name)]
        if name == "hub":
            arguments = ["hub", *arguments, "--http-port", other]
        else:
            hub = f"127.0.0.1:{self.ports['hub'][3]}"
            arguments = ["shard", "sensor", *arguments, "--tcp-port", other, "--metrics-port", metrics, "--hub", hub]
            arguments += ["--shard", name, "--assignment", str(self.folder / f"{name}.json")]
        command = [sys.executable, "-m", "embereye_cli", *arguments]
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(command, stderr=log, env={**os.environ, "GRPC_VERBOSITY": "NONE"})
        log.close()

    def end(self, name: str, number: signal.Signals) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(20)

    def assign(self, shard: str, epoch: int, *devices: str, elsewhere: dict[str, str] | None = None) -> None:
        peers = [
            Peer(shard=name, grpc=f"127.0.0.1:{ports[0]}", control=f"127.0.0.1:{ports[3]}")
            for name, ports in self.ports.items()
            if name not in {"hub", shard}
        ]
        assignment = Assignment(
            fleet=FLEET,
            shard=shard,
            epoch=epoch,
            devices=[Device(id=name, zone="hall") for name in devices],
            elsewhere=elsewhere or {},
            peers=peers,
            sensor=sensor_settings(),
        )
        partial = self.folder / f"{shard}.partial"
        partial.write_text(json_format.MessageToJson(assignment))
        partial.replace(self.folder / f"{shard}.json")

    async def connect(self, shard: str) -> asyncio.StreamWriter:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.ports[shard][1])
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    return writer

    def device(self) -> dict[str, Any]:
        token = (self.folder / "hub" / "admin-token").read_text().strip()
        url = f"http://127.0.0.1:{self.ports['hub'][1]}/v1/devices"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            entries = json.load(answer)["devices"]
        return next((entry for entry in entries if entry["id"] == "a"), {})

    async def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        entry: dict[str, Any] = {}

        async def is_true() -> object:
            nonlocal entry
            try:
                entry = await asyncio.to_thread(self.device)
            except OSError:
                entry = {}
            return entry and condition(entry)

        await eventually(is_true, goal=lambda: entry, pause=0.1)
        return entry


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for name in list(site.processes):
        site.end(name, signal.SIGKILL)


def total(entry: dict[str, Any]) -> int:
    """The ledger of the device at the hub."""
    ledger = entry.get("ledger", {})
    return int(ledger.get("offered", 0)) - int(ledger.get("shared", 0))


def states(entry: dict[str, Any]) -> list[tuple[str, str]]:
    return [(owner["shard"], owner["state"]) for owner in entry["owners"]]


async def test_the_ledger_adds_up_over_a_hand_over_a_kill_a_drain_and_a_killed_hub(site: Site) -> None:
    for name in ("hub", "one", "two"):
        site.ports[name] = free_ports(4)
    site.assign("one", 1, "a")
    site.assign("two", 1, elsewhere={"a": "one"})
    for name in ("hub", "one", "two"):
        site.start(name)
    writer = await site.connect("one")
    writer.write(b"#serialno:a!" + b"".join(LINE % (280 + number % 3) for number in range(100)) + b"#frame:no!" * 3)
    entry = await site.until(lambda entry: total(entry) == 103)
    assert entry["ledger"]["rejected"] == {"bad frame": "3"}

    site.assign("two", 2, "a")
    site.assign("one", 2, "a", elsewhere={"a": "two"})
    await site.until(lambda entry: "two" in entry["shards"])
    await asyncio.sleep(0.7)  # the other shard polls its file as often
    writer.write(b"".join(LINE % 281 for _ in range(10)))
    entry = await site.until(lambda entry: total(entry) == 113 and int(entry["ledger"].get("shared", 0)) == 10)
    assert states(entry) == [("one", "open"), ("two", "open")]

    site.assign("two", 3, "a")
    site.assign("one", 3, elsewhere={"a": "two"})
    await site.until(lambda entry: ("one", "closed") in states(entry))
    writer.write(b"".join(LINE % 282 for _ in range(20)))
    await site.until(lambda entry: total(entry) == 133)
    writer.close()

    site.end("two", signal.SIGKILL)
    site.start("two")
    writer = await site.connect("two")
    writer.write(b"".join(LINE % 282 for _ in range(30)))
    entry = await site.until(lambda entry: total(entry) == 163)
    assert states(entry) == [("one", "closed"), ("two", "lost"), ("two", "open")]
    site.end("two", signal.SIGTERM)
    await site.until(lambda entry: ("two", "closed") in states(entry))

    site.end("hub", signal.SIGKILL)
    site.start("hub")
    entry = await site.until(lambda entry: total(entry) == 163)
    assert states(entry) == [("one", "closed"), ("two", "lost"), ("two", "closed")]
    assert all(is_balanced(owner["ledger"]) for owner in entry["owners"])
    assert is_balanced(entry["ledger"])
    text = "\n".join(sentences(entry, time.time_ns()))
    assert "to 3 owners" in text
    assert "10 of them were received by two owners" in text
    assert "later messages are not counted" in text
    writer.close()


def test_measurements_are_shown_with_their_unit_if_they_have_one() -> None:
    latest = [
        {"name": "flame.digital", "value": 1, "unit": "1"},
        {"name": "gas", "value": 49287.6, "unit": "ppm"},
        {"name": "fps", "value": 15, "unit": "1/s"},
        {"name": "smoke", "unit": "%"},
        {"name": "temperature.over_normal", "value": 11.2, "unit": "K"},
    ]
    entry = {"id": "s-01", "zone": "hall", "fleet": FLEET, "covered": True, "latest": latest}
    lines = [line.strip() for line in sentences(entry, 0)]
    assert {
        "flame.digital: 1",
        "gas: 49287.6 ppm",
        "fps: 15/s",
        "smoke: 0 %",
        "temperature.over_normal: 11.2 K",
    } <= set(lines)
