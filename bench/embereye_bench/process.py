"""The processes of a benchmark: the shard that is measured, whoever sends to it, and what both cost."""

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.protobuf import json_format

from embereye.process.addresses import free_ports
from embereye.process.telemetry.usage import cpu_seconds, resident_mb
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.shard_pb2 import Assignment, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye_bench.sensors.load import HOST, end

READY_SECONDS = 20.0


def peak_mb() -> float:
    """Memory in MB that this process has had at most; what getrusage says begins with that of its parent."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class Counters:
    """A shard's own totals at one moment."""

    at: float  # perf_counter seconds
    cpu: float  # seconds
    values: dict[str, float]  # by metric name and labels, as /metrics writes them

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(value for key, value in self.values.items() if key.partition("{")[0] == name)


class CameraShardProcess:
    """`embereye shard camera` with an assignment file, as it always runs."""

    def __init__(self, assignment: Assignment, folder: Path, hub: str, *options: str) -> None:
        push, tcp, metrics, control = free_ports(4)
        path = folder / f"{assignment.shard}.json"
        path.write_text(json_format.MessageToJson(assignment))
        self.grpc, self._control = f"{HOST}:{push}", f"{HOST}:{control}"
        self._metrics = f"http://{HOST}:{metrics}/metrics"
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "embereye_cli", "shard", "camera", "--shard", assignment.shard,
                "--assignment", str(path), "--hub", hub, "--host", HOST,
                "--grpc-port", str(push), "--tcp-port", str(tcp), "--metrics-port", str(metrics),
                "--control-port", str(control), *options,
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait_ready(self, devices: int) -> None:
        """Wait until it owns `devices`; RuntimeError where it does not come to that."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.counters().values.get("embereye_shard_devices") == devices:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the shard was not ready after {READY_SECONDS:g} s")

    def counters(self) -> Counters:
        """What it says of itself now, and what it has cost."""
        at, cpu = self.used()
        with urllib.request.urlopen(self._metrics, timeout=5) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return Counters(at, cpu, {name: float(value) for name, _, value in pairs})

    def used(self) -> tuple[float, float]:
        """(perf_counter seconds, CPU seconds by then)."""
        return time.perf_counter(), cpu_seconds(self._process.pid)

    def analysed(self) -> dict[str, int]:
        """Frames analysed so far, by camera."""
        with grpc.insecure_channel(self._control) as link:
            status = ShardStub(link).Status(StatusRequest(devices=True), timeout=5)
        return {device.id: device.ledger.analysed for device in status.devices}

    def ledgers(self) -> list[Ledger]:
        """What became of the frames of each camera."""
        with grpc.insecure_channel(self._control) as link:
            status = ShardStub(link).Status(StatusRequest(devices=True), timeout=5)
        return [device.ledger for device in status.devices]

    def reasons(self) -> dict[str, str]:
        """Why each camera is not covered, or what is missing there; '' where nothing is."""
        with grpc.insecure_channel(self._control) as link:
            status = ShardStub(link).Status(StatusRequest(devices=True), timeout=5)
        return {device.id: device.reason or device.degraded for device in status.devices}

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def __enter__(self) -> "CameraShardProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Measured:
    """Any other process that is measured, from outside."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self._process.pid)

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        return resident_mb(self._process.pid)

    def stop(self) -> str:
        """Ask it to end; returns what it has said."""
        self._process.send_signal(signal.SIGINT)
        try:
            said, _ = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
        return said.decode()


class Sender:
    """A process of `embereye_bench.cameras.senders`: told what to do line by line, it answers with numbers."""

    def __init__(self, kind: str, *options: str) -> None:
        command = [sys.executable, "-m", "embereye_bench.cameras.senders", kind, *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.introduction: dict[str, Any] = self._line()  # with which it introduced itself

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the sending process ended early; its last words are above")
        found: dict[str, Any] = json.loads(line)
        return found

    def command(self, word: str) -> dict[str, Any]:
        """Say `word` ("start", "stop" or "ask"); returns what was sent so far and what it cost."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end(self._process)
