"""Send as devices do in a benchmark: lines of readings and frames, paced or as fast as possible.

`Server` starts the measured process and asks it for CPU seconds and counters, by lines over its pipes. All functions
that send use plain sockets and lines that were made beforehand, so that the sender costs little. They end when all is
sent; `Server.idle_counters` waits until the server has also received it.
"""

import contextlib
import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from embereye.sim.sensors import Chip
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords
from embereye_bench.ending import wait_or_kill

HOST = "127.0.0.1"
CHUNK = 128 * 1024  # bytes per send of a flood


def end(process: "subprocess.Popen[str]") -> None:
    """Close the standard input of `process`, which ends it; kill it if it does not end."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    wait_or_kill(process)


class Server:
    """A process of `embereye_bench.sensors.server`; reports CPU seconds and counters on request."""

    def __init__(
        self, kind: str = "shard", devices: int = 100, hub: str = "", grpc_port: int = 0, tls: Path | None = None,
        *, command: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`tls` is the folder of the certificate of a shard or "count"; None: no TLS.

        `command` starts another process that answers in the same way.
        """
        default = [sys.executable, "-m", "embereye_bench.sensors.server", kind, "--devices", str(devices), "--hub", hub]
        default += ["--grpc-port", str(grpc_port), *(("--tls", str(tls)) if tls else ())]
        self._process = subprocess.Popen(command or default, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports: dict[str, int] = self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the measured process ended early. Its output is above.")
        numbers: dict[str, Any] = json.loads(line)
        return numbers

    def ask(self, scope: str = "all") -> dict[str, Any]:
        """CPU seconds ("cpu"); with "all" also the counters and the memory."""
        assert self._process.stdin is not None
        self._process.stdin.write(scope + "\n")
        self._process.stdin.flush()
        return self._line()

    def idle_counters(self, pause: float = 0.1) -> dict[str, Any]:
        """The counters, once they have not changed for `pause` seconds."""
        known = self.ask()
        while True:
            time.sleep(pause)
            now = self.ask()
            if now["offered"] == known["offered"]:
                return now
            known = now

    def pin(self, cpu: int) -> None:
        """Run it on one processor only."""
        os.sched_setaffinity(self._process.pid, {cpu})

    def kill(self) -> None:
        """End it like a failing machine."""
        self._process.kill()
        self._process.wait()

    def cpu(self) -> float:
        """CPU seconds so far."""
        return float(self.ask("cpu")["cpu"])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        end(self._process)


def reading_line(device: str, dice: random.Random) -> bytes:
    """A reading of an idle device."""
    smoke, flame, gas = dice.randint(270, 300), dice.randint(1295, 1315), dice.randint(380, 420)
    return b"#Sensor%s:ADC1=%d,ADC2=%d,ADC3=%d,DIO=0!\r\n" % (device.encode(), smoke, flame, gas)


def alarming_line(device: str) -> bytes:
    """A reading with much smoke."""
    return b"#Sensor%s:ADC1=4000,ADC2=1305,ADC3=400,DIO=0!\r\n" % device.encode()


def connect(port: int, devices: int, start: int = 0) -> list[socket.socket]:
    """Open one connection for each device, and send its serial number."""
    connections = []
    for number in range(start, start + devices):
        connection = socket.create_connection((HOST, port))
        connection.sendall(b"#serialno:device-%d!\r\n" % number)
        connections.append(connection)
    return connections


def paced(sockets: Sequence[socket.socket], lines: Sequence[Sequence[bytes]], rate: float, seconds: float) -> int:
    """Send lines on each socket in turn, `rate` a second and socket, evenly spread; return their number."""
    total = int(len(sockets) * rate * seconds)
    interval = 1 / (len(sockets) * rate)
    started = time.perf_counter()
    sent = 0
    while sent < total:
        due = min(total, int((time.perf_counter() - started) / interval) + 1)
        while sent < due:
            turn, number = divmod(sent, len(sockets))
            sockets[number].send(lines[number][turn % len(lines[number])])
            sent += 1
        time.sleep(max(0.0, min(0.001, started + sent * interval - time.perf_counter())))
    return sent


@dataclass
class _Flooding:
    connection: socket.socket
    payload: memoryview
    offset: int = 0


def close(sockets: Sequence[socket.socket]) -> None:
    """Close all sockets."""
    for connection in sockets:
        connection.close()


def flood(sockets: Sequence[socket.socket], payloads: Sequence[bytes], seconds: float) -> list[int]:
    """Send each socket's payload repeatedly as fast as it is accepted; return the number of times for each.

    Payloads are always sent completely, so no line is left unfinished.
    """
    poll = select.poll()
    by_number = {}
    for connection, payload in zip(sockets, payloads, strict=True):
        connection.setblocking(False)
        by_number[connection.fileno()] = _Flooding(connection, memoryview(payload))
        poll.register(connection, select.POLLOUT)
    sent_bytes = dict.fromkeys(by_number, 0)
    deadline = time.perf_counter() + seconds
    while by_number:
        over = time.perf_counter() >= deadline
        for number, _ in poll.poll(100):
            entry = by_number[number]
            try:
                sent = entry.connection.send(entry.payload[entry.offset : entry.offset + CHUNK])
            except BlockingIOError:
                continue
            sent_bytes[number] += sent
            entry.offset = (entry.offset + sent) % len(entry.payload)
        if over:
            for number in [number for number, entry in by_number.items() if entry.offset == 0]:
                poll.unregister(number)
                del by_number[number]
    for connection in sockets:
        connection.setblocking(True)
    return [count // len(payload) for count, payload in zip(sent_bytes.values(), payloads, strict=True)]


def frame_lines(device: int, count: int = 40) -> tuple[bytes, bytes]:
    """The calibration line of a device, and `count` lines of thermal frames of its quiet room."""
    chip = Chip(device)
    name = f"device-{device}"
    frames = b"".join(encode(FrameWords(name, chip.frame(0.0, number))) for number in range(count))
    return encode(Eeprom(name, chip.eeprom)), frames
