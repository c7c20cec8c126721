"""Load from outside: a load tester with exactly the desktop program's protocol, and our own."""

import asyncio
import json
import random
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from harness.eventually import eventually
from harness.settings import camera_settings

from embereye.process.addresses import free_port
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

from .site import HOST, Site

FRAME_WORDS = 768


@dataclass
class DesktopClient:
    """A client of the desktop program's load tester.

    It sends its location once, then readings and frames of random words in turn, each ended by a line feed. It reads
    nothing from the server, and closes the connection without notice.
    """

    number: int
    port: int
    packets: int
    rate: float
    sent: int = 0
    errors: list[str] = field(default_factory=list)

    def packet(self, dice: random.Random) -> str:
        if self.sent % 2 == 0:
            return f"#frame:{''.join(f'{dice.randrange(65_536):04X}' for _ in range(FRAME_WORDS))}!\n"
        return f"#Sensor:ADC1={dice.randint(400, 700)},ADC2={dice.randint(750, 900)},ADC3={dice.randint(850, 950)}!\n"

    def run(self) -> None:
        dice = random.Random(42 + self.number)
        try:
            with socket.create_connection((HOST, self.port)) as connection:
                connection.sendall(f"#locid:room_{self.number}!\n".encode())
                self.sent = 1  # as that tester counts
                due = time.monotonic()
                while self.sent < self.packets:
                    time.sleep(max(0.0, due - time.monotonic()))
                    due = time.monotonic() + 1 / self.rate
                    connection.sendall(self.packet(dice).encode())
                    self.sent += 1
        except OSError as error:
            self.errors.append(str(error))


async def ledgers(site: Site) -> dict[str, dict[str, Any]]:
    devices = (await site.get("/v1/devices"))["devices"]
    return {device["id"]: device.get("ledger", {}) for device in devices}


async def test_a_hundred_clients_of_the_desktop_programs_tester_see_no_error(site: Site) -> None:
    rooms, packets = [f"room_{number}" for number in range(100)], 40
    site.start("hub")
    site.assign("shard-0", *rooms)
    site.start("shard-0")
    await eventually(lambda: _is_listening(site.ports["shard-0"][1]), goal="the shard listens")
    clients = [DesktopClient(number, site.ports["shard-0"][1], packets, 10.0) for number in range(len(rooms))]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()

    async def over() -> bool:
        return not any(thread.is_alive() for thread in threads)

    await eventually(over, goal="all clients have sent everything", seconds=60)
    assert [error for client in clients for error in client.errors] == []
    assert sum(client.sent for client in clients) == len(rooms) * packets

    async def all_counted() -> bool:
        counted = await ledgers(site)
        return all(int(counted.get(room, {}).get("offered", 0)) == packets - 1 for room in rooms)

    await eventually(all_counted, goal="every reading and frame is in the ledgers")
    for ledger in (await ledgers(site)).values():
        # A starved machine sheds readings, and counts them.
        shed = sum(int(count) for count in ledger.get("shed", {}).values())
        assert int(ledger["analysed"]) + shed == packets - 1
        assert not ledger.get("rejected")


async def _is_listening(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def simulate(report: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "embereye_cli", "simulate", *arguments, "--report", str(report)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def finished(process: "subprocess.Popen[str]", seconds: float = 60) -> tuple[int, str, str]:
    async def over() -> bool:
        return process.poll() is not None

    try:
        await eventually(over, goal="the load test ends", seconds=seconds)
    finally:
        process.kill()
    out, error = process.communicate()
    return process.returncode, out, error


@pytest.mark.parametrize("way", ["text", "grpc"])
async def test_our_load_test_counts_every_packet_and_the_shards_usage(site: Site, tmp_path: Path, way: str) -> None:
    ids = [f"sensor-{number:04}" for number in range(1, 21)]
    site.start("hub")
    site.assign("shard-0", *ids)
    site.start("shard-0")
    await eventually(lambda: _is_listening(site.ports["shard-0"][1]), goal="the shard listens")
    grpc, text, *_ = site.ports["shard-0"]
    target = ["--target", f"{HOST}:{grpc}", "--grpc"] if way == "grpc" else ["--target", f"{HOST}:{text}"]
    run = simulate(tmp_path / "report.json", "sensors", *target, "--clients", "20", "--rate", "10", "--packets", "30",
                   "--include-frames", "--min-rate", "10")  # fmt: skip
    code, out, error = await finished(run)
    report = json.loads((tmp_path / "report.json").read_text())
    assert code == 0, out + error
    assert report["passed"]
    assert report["total"]["packets"] == 600
    assert report["total"]["errors"] == 0
    assert [client["packets"] for client in report["perClient"]] == [30] * 20
    assert sum(entry["count"] for entry in report["total"]["histogram"]) == 600
    latency = report["total"]["latencyMs"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert report["total"]["acknowledged"] == (600 if way == "grpc" else 0)
    assert [process["pid"] for process in report["system"]["processes"]] == [site.processes["shard-0"].pid]
    assert report["system"]["memoryMb"] > 10
    assert report["system"]["threads"] >= 1
    assert "packets" in error, "progress is reported while it runs"
    assert "ok    errors 0" in out.replace("ok   errors", "ok    errors")

    async def all_counted() -> bool:
        counted = await ledgers(site)
        # The calibration that a shard requests is a message, too.
        return all(int(counted.get(name, {}).get("offered", 0)) >= 30 for name in ids)

    await eventually(all_counted, goal="every packet is in the ledgers")


async def test_a_load_test_of_cameras_reports_the_fate_of_their_frames(site: Site, tmp_path: Path) -> None:
    site.start("hub")
    grpc, control, metrics = free_port(), free_port(), free_port()
    assignment = Assignment(
        fleet="default/cameras/yard", shard="yard-0", epoch=1, camera=camera_settings(deadline="5s"),
        devices=[Device(id=f"camera-{number}", zone="yard", source="push", fps_target=5, fps_min=2)
                 for number in (1, 2)],
    )  # fmt: skip
    (tmp_path / "yard-0.json").write_text(json_format.MessageToJson(assignment))
    site.launch("yard-0", "-m", "embereye_cli", "shard", "camera", "--shard", "yard-0", "--host", HOST, "--hub",
                site.control, "--grpc-port", str(grpc), "--control-port", str(control), "--metrics-port", str(metrics),
                "--data", str(tmp_path / "yard-0"), "--assignment", str(tmp_path / "yard-0.json"))  # fmt: skip
    await eventually(lambda: _is_listening(grpc), goal="the shard listens")
    run = simulate(tmp_path / "report.json", "cameras", "--push", f"{HOST}:{grpc}", "--clients", "2", "--rate", "5",
                   "--for", "4s", "--size", "160x120", "--max-errors", "1000", "--min-rate", "10")  # fmt: skip
    code, out, error = await finished(run)
    report = json.loads((tmp_path / "report.json").read_text())
    assert code == 0, out + error
    whole = report["total"]
    assert 20 <= whole["packets"] + whole["skipped"] <= 40
    assert 0 < whole["acknowledged"] <= whole["packets"]


async def test_a_load_test_that_misses_its_thresholds_exits_with_1(site: Site, tmp_path: Path) -> None:
    nobody = ["--target", f"{HOST}:{free_port()}", "--clients", "2", "--rate", "5", "--packets", "3"]
    process = simulate(tmp_path / "report.json", "sensors", *nobody)
    assert process.stderr
    while (line := await asyncio.to_thread(process.stderr.readline)) and "0 packets" not in line:
        pass  # until it reports progress, some seconds after the start
    process.terminate()  # like Ctrl-C: the report is written all the same
    code, out, error = await finished(process)
    report = json.loads((tmp_path / "report.json").read_text())
    assert code == 1, out + error
    assert not report["passed"]
    assert report["total"]["errors"] > 0
    assert "SHORT errors" in out
