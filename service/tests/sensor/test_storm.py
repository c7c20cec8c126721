"""Devices that reconnect all at once, vanish, or never read: they do not harm others."""

import asyncio
import random
import socket
import struct
import threading
from typing import cast

import pytest

from embereye.sensor.routing import Owner
from embereye.sensor.sessions import MAX_CONNECTIONS, Sessions, _keep_alive
from embereye_bench.sensors.load import HOST, Server, close, connect, reading_line

DEVICES = 1000
STEADY = DEVICES  # the number of a device that stays connected
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST


def storm(port: int, lines: list[bytes], *, reset: bool) -> None:
    """Every device connects, sends one line, and disconnects."""
    sockets = []
    for line in lines:
        connection = socket.create_connection((HOST, port))
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.sendall(line)
        sockets.append(connection)
    close(sockets)


def test_a_thousand_reconnecting_devices_starve_no_other_and_leak_nothing() -> None:
    dice = random.Random(3)
    lines = [reading_line(f"device-{number}", dice) for number in range(DEVICES)]
    with Server("shard", DEVICES + 1) as server:
        port = server.ports["tcp"]
        [steady] = connect(port, 1, STEADY)
        over, sent = threading.Event(), 0

        def go_on() -> None:
            nonlocal sent
            while not over.wait(0.005):
                steady.sendall(reading_line(f"device-{STEADY}", dice))
                sent += 1

        thread = threading.Thread(target=go_on)
        thread.start()
        memory = []
        for _ in range(3):
            storm(port, lines, reset=False)
            memory.append(server.ask()["memory_kb"])
        over.set()
        thread.join()
        numbers = server.idle_counters(0.2)
        assert sent
        assert numbers["analysed"] == numbers["offered"] == 3 * DEVICES + sent
        assert numbers["waiting"] == 0
        storm(port, lines, reset=True)  # lines under way may be lost with the reset
        memory.append(server.idle_counters(0.2)["memory_kb"])
        [late] = connect(port, 1, 0)
        late.sendall(lines[0])
        offered = server.idle_counters(0.2)["offered"]
        assert offered > numbers["offered"]
        close([steady, late])
    assert max(memory[1:]) < memory[0] * 1.1 + 4096


def test_the_kernel_notices_a_vanished_peer() -> None:
    with socket.socket() as connection:
        _keep_alive(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * count <= 30


def test_connections_beyond_the_limit_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CONNECTIONS > 10_000
    monkeypatch.setattr("embereye.sensor.sessions.MAX_CONNECTIONS", 0)
    aborted = []

    class Wire(asyncio.Transport):
        def abort(self) -> None:
            aborted.append(True)

    async def dial() -> None:
        sessions = Sessions(cast("Owner", None))  # never used
        sessions.protocol().connection_made(Wire())
        assert (len(sessions), sessions._open.refused) == (0, 1)

    asyncio.run(dial())
    assert aborted
