"""Devices that all come back at once, that vanish, that stay silent or never read: they cost the others nothing."""

import asyncio
import random
import socket
import struct
import threading
from typing import cast

import pytest

from embereye.sensor.sessions import MAX_CONNECTIONS, Owner, Sessions, _keep_alive
from embereye_bench.sensors.load import HOST, Server, close, connect, reading_line

DEVICES = 1000
STEADY = DEVICES  # the number of the device that has nothing to do with it
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what closes it sends RST


def storm(port: int, lines: list[bytes], *, reset: bool) -> None:
    """Every device connects, says one line, and is gone."""
    sockets = []
    for line in lines:
        connection = socket.create_connection((HOST, port))
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.sendall(line)
        sockets.append(connection)
    close(sockets)


def test_a_thousand_devices_that_reconnect_again_and_again_starve_nobody_and_leave_nothing_behind() -> None:
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
        storm(port, lines, reset=True)  # what was on its way when the connection was reset is anybody's guess
        memory.append(server.idle_counters(0.2)["memory_kb"])
        [late] = connect(port, 1, 0)
        late.sendall(lines[0])
        offered = server.idle_counters(0.2)["offered"]
        assert offered > numbers["offered"]
        close([steady, late])
    assert max(memory[1:]) < memory[0] * 1.1 + 4096


def test_a_peer_that_vanished_without_a_word_is_noticed_by_the_kernel() -> None:
    with socket.socket() as connection:
        _keep_alive(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * count <= 30


def test_connections_beyond_what_a_process_can_have_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CONNECTIONS > 10_000
    monkeypatch.setattr("embereye.sensor.sessions.MAX_CONNECTIONS", 0)
    aborted = []

    class Wire(asyncio.Transport):
        def abort(self) -> None:
            aborted.append(True)

    async def dial() -> None:
        sessions = Sessions(cast("Owner", None))  # asked for nothing
        sessions.protocol().connection_made(Wire())
        assert (len(sessions), sessions.refused) == (0, 1)

    asyncio.run(dial())
    assert aborted
