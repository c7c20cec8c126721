"""Run the processes of a benchmark, the measured shard and its senders, and measure their costs.

The measured program runs in a separate process, so that senders do not count. Costs are differences between two
moments: of CPU seconds from /proc, and of the shard's counters from its page of metrics. A `Sender` is commanded by
lines on its standard input, and answers each with its counts.
"""

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
from embereye_bench.ending import terminate
from embereye_bench.sensors.load import HOST, end

READY_SECONDS = 20.0


def peak_mb() -> float:
    """Peak memory of this process in MB; getrusage would start with its parent's."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class Counters:
    """The totals of a shard at one moment."""

    at: float  # perf_counter seconds
    cpu: float  # seconds
    values: dict[str, float]  # by metric name and labels, as in /metrics

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(value for key, value in self.values.items() if key.partition("{")[0] == name)


class CameraShardProcess:
    """`embereye shard camera` in a separate process, with an assignment file."""

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
        """Wait until it owns `devices`; RuntimeError after READY_SECONDS."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.counters().values.get("embereye_shard_devices") == devices:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the shard was not ready after {READY_SECONDS:g} s")

    def counters(self) -> Counters:
        """Its metrics now, and its CPU seconds."""
        at, cpu = self.used()
        with urllib.request.urlopen(self._metrics, timeout=5) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return Counters(at, cpu, {name: float(value) for name, _, value in pairs})

    def used(self) -> tuple[float, float]:
        """(perf_counter seconds, CPU seconds at that time)."""
        return time.perf_counter(), cpu_seconds(self._process.pid)

    def analysed(self) -> dict[str, int]:
        """Frames analysed so far, by camera."""
        with grpc.insecure_channel(self._control) as link:
            status = ShardStub(link).Status(StatusRequest(devices=True), timeout=5)
        return {device.id: device.ledger.analysed for device in status.devices}

    def ledgers(self) -> list[Ledger]:
        """The ledgers of all cameras."""
        with grpc.insecure_channel(self._control) as link:
            status = ShardStub(link).Status(StatusRequest(devices=True), timeout=5)
        return [device.ledger for device in status.devices]

    def reasons(self) -> dict[str, str]:
        """The reason why each camera is not covered or is degraded; '' if it is neither."""
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
        terminate(self._process)


class Measured:
    """Another measured process."""

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
        """Interrupt it; return its output."""
        self._process.send_signal(signal.SIGINT)
        try:
            output, _ = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        return output.decode()


class Sender:
    """A process of `embereye_bench.cameras.senders`: reads commands line by line, and answers with numbers."""

    def __init__(self, kind: str, *options: str) -> None:
        command = [sys.executable, "-m", "embereye_bench.cameras.senders", kind, *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.introduction: dict[str, Any] = self._line()  # its first line

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the sending process ended early. Its output is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def command(self, word: str) -> dict[str, Any]:
        """Send the command `word` ("start", "stop" or "ask"); return the frames sent so far and their cost."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end(self._process)
