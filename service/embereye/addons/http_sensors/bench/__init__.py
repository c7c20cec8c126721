"""The benchmark of readings by HTTP, beside a bare aiohttp handler and the text path: `embereye bench sensors`."""

import contextlib
import json
import random
import socket
import sys
import time

from embereye_bench.report import Benchmark, Result, Scale, median
from embereye_bench.sensors.load import Server, close, connect, paced, reading_line

NAME = "http-push"
DEVICES = 1000
CONNECTIONS = 50
BATCH = 100  # entries of a batch
TARGET = 1.5  # times the bare handler


def http_push(scale: Scale) -> Result:
    """Measure 1,000 sensors that send one reading a second each, by HTTP over open connections, and batches of 100."""
    kinds = ("shard", "bare")
    costs: dict[str, list[float]] = {kind: [] for kind in (*kinds, "text", "shard batch", "bare batch")}
    rounds = max(1, round(scale.seconds))
    dice = random.Random(NAME)
    entries: list[dict[str, object]] = [
        {"device": f"device-{number}", "readings": {"smoke": False, "temperature": 20 + number % 10, "battery": 90}}
        for number in range(DEVICES)
    ]
    single = [_request([entry]) for entry in entries]
    batches = [_request(entries[start : start + BATCH]) for start in range(0, DEVICES, BATCH)]
    with contextlib.ExitStack() as stack:
        servers = {}
        for kind in kinds:
            command = [sys.executable, "-m", f"{__name__}.peer", kind, str(DEVICES)]
            servers[kind] = stack.enter_context(Server(command=command))
        servers["text"] = stack.enter_context(Server("shard", DEVICES))
        sockets = connect(servers["text"].ports["tcp"], DEVICES)
        stack.callback(close, sockets)
        lines = [[reading_line(f"device-{number}", dice)] for number in range(DEVICES)]
        for _ in range(scale.rounds):
            for kind in kinds:
                for name, requests in ((kind, single), (f"{kind} batch", batches)):
                    before = servers[kind].ask()
                    for _ in range(rounds):
                        _send(servers[kind].ports["http"], requests)
                    after = servers[kind].ask()
                    received = after["offered"] - before["offered"]
                    assert received == rounds * DEVICES, f"{kind}: {received} of {rounds * DEVICES} arrived"
                    costs[name].append((after["cpu"] - before["cpu"]) / received * 1e6)
            began = servers["text"].cpu()
            sent = paced(sockets, lines, 1, max(1.0, scale.seconds))
            servers["text"].idle_counters()
            costs["text"].append((servers["text"].cpu() - began) / sent * 1e6)
    costs_of = {kind: median(values) for kind, values in costs.items()}
    unit = (
        f"µs CPU/reading; in batches of {BATCH} {costs_of['shard batch']:.1f}, bare {costs_of['bare batch']:.1f}; "
        f"a line by TCP takes {costs_of['text']:.1f}"
    )
    value, baseline = costs_of["shard"], costs_of["bare"]
    ratio = value / baseline if baseline else 0.0
    return Result(NAME, value, unit, baseline, ratio, f"<= {TARGET} x bare aiohttp", ratio <= TARGET)


def _request(entries: list[dict[str, object]]) -> bytes:
    body = "\n".join(map(json.dumps, entries)).encode()
    head = "POST /v1/readings HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-ndjson\r\nContent-Length: "
    return f"{head}{len(body)}\r\n\r\n".encode() + body


def _send(port: int, requests: list[bytes]) -> None:
    """Send `requests` over open connections in turn, at most one a second and sensor, and read the answers."""
    began = time.monotonic()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(min(CONNECTIONS, len(requests)))]
    try:
        for start in range(0, len(requests), len(connections)):
            used = list(zip(connections, requests[start : start + len(connections)], strict=False))
            for connection, request in used:
                connection.sendall(request)
            for connection, _ in used:
                answer = connection.recv(4096)
                if not answer.startswith(b"HTTP/1.1 202 "):
                    raise RuntimeError(f"{NAME}: {answer[:200]!r}")
    finally:
        close(connections)
    time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


SENSOR_BENCHMARKS: dict[str, Benchmark] = {NAME: http_push}
