"""A socket that is closed before it is registered at the event loop."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from embereye.process.event_loop import EventLoop
from embereye.process.mqtt_client import MqttClient

LOOPS = EventLoop, asyncio.SelectorEventLoop


async def called(*, closed: bool) -> set[str]:
    """The methods of paho that are called for a socket, or for the next one of its number if it is `closed`."""
    client, calls = MqttClient("127.0.0.1"), set[str]()
    paho: Any = SimpleNamespace(_sock=None, loop_write=lambda: calls.add("write"), loop_read=lambda: calls.add("read"))
    first, other = socket.socketpair()
    client._on_socket_open(paho, None, first)
    client._on_socket_register_write(paho, None, first)
    if closed:
        number = first.fileno()
        client._on_socket_unregister_write(paho, None, first)
        client._on_socket_close(paho, None, first)
        first.close()
        other.close()
        first, other = socket.socketpair()
        assert number in (first.fileno(), other.fileno())
        first.send(b"a")
    other.send(b"a")
    await asyncio.sleep(0.05)
    client._on_socket_unregister_write(paho, None, first)
    client._on_socket_close(paho, None, first)
    first.close()
    other.close()
    return calls


@pytest.mark.parametrize("loop", LOOPS)
def test_the_number_of_a_closed_socket_is_not_registered(loop: type[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(called(closed=True)) == set()


@pytest.mark.parametrize("loop", LOOPS)
def test_an_open_socket_is_registered(loop: type[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(called(closed=False)) == {"read", "write"}
