"""Transports made from sockets close their descriptors once."""

import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from embereye.process.event_loop import EventLoop

Connect = Callable[[socket.socket], Awaitable[object]]


class Hasty(asyncio.Protocol):
    """Aborts its connection as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


async def unix(connection: socket.socket) -> None:
    await asyncio.get_running_loop().create_unix_connection(Hasty, sock=connection)


async def tcp(connection: socket.socket) -> None:
    await asyncio.get_running_loop().create_connection(Hasty, sock=connection)


def pair(family: int) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


async def collected() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()


async def connect_and_free(connect: Connect, family: int) -> list[int]:
    """Connect a socket whose transport is closed at once; return other descriptors that its descriptor became."""
    ours, theirs = pair(family)
    number = ours.fileno()
    await connect(ours)
    await asyncio.sleep(0)
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    theirs.close()
    assert number in others, "libuv has closed it"
    return others


@pytest.mark.parametrize(("connect", "family"), [(unix, socket.AF_UNIX), (tcp, socket.AF_INET)])
def test_a_transport_that_is_closed_at_once_closes_no_descriptor_of_others(connect: Connect, family: int) -> None:
    async def main() -> None:
        others = await connect_and_free(connect, family)
        await collected()
        for descriptor in others:
            os.fstat(descriptor)  # OSError if the freed socket has closed it
            os.close(descriptor)

    uvloop.run(main(), loop_factory=EventLoop)


@pytest.mark.parametrize(("connect", "family"), [(unix, socket.AF_UNIX), (tcp, socket.AF_INET)])
def test_a_connection_from_a_socket_serves_and_closes(connect: Connect, family: int) -> None:
    async def main() -> None:
        loop, (ours, theirs) = asyncio.get_running_loop(), pair(family)
        make = loop.create_unix_connection if connect is unix else loop.create_connection
        transport, _ = await make(asyncio.Protocol, sock=ours)
        theirs.setblocking(False)
        transport.write(b"hello")
        assert await loop.sock_recv(theirs, 10) == b"hello"
        transport.close()
        assert await loop.sock_recv(theirs, 10) == b""
        theirs.close()

    uvloop.run(main(), loop_factory=EventLoop)
