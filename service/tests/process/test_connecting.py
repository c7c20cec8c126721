import asyncio
import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from embereye.hub.mqtt.publisher import MqttPublisher
from embereye.process.addresses import LOOPBACK
from embereye.process.connecting import connect_any

Place = tuple[str, int]
UNSPOKEN = 99  # a family of addresses that no kernel knows, as one without IPv6 does not know that


@pytest.fixture
def silent() -> Iterator[Place]:
    """Where nobody answers, as behind an address of IPv6 that leads nowhere: its queue is full."""
    with contextlib.ExitStack() as stack:
        place: Place = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=0)).getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(place)
        yield place


@pytest.fixture
def closed() -> Place:
    with socket.create_server((LOOPBACK, 0)) as server:
        place: Place = server.getsockname()
    return place


@pytest.fixture
def alive() -> Iterator[Place]:
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()


def name(monkeypatch: pytest.MonkeyPatch, *places: Place) -> None:
    """Have "several.test" lead to `places`."""

    async def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        found = places if host == "several.test" else ((host, port),)
        return [(UNSPOKEN if ":" in place[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


async def test_the_next_address_is_tried_where_one_is_dead(
    silent: Place, closed: Place, alive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, closed, alive)
    with await connect_any("several.test", 1) as connection:
        assert connection.getpeername() == alive


async def test_an_address_of_a_family_that_this_machine_does_not_speak_is_passed_over(
    alive: Place, closed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, ("::1", 1), alive)
    with await connect_any("several.test", 1) as connection:
        assert connection.getpeername() == alive
    name(monkeypatch, ("::1", 1), closed)
    with pytest.raises(ConnectionRefusedError):
        await connect_any("several.test", 1)


async def test_where_no_address_answers_the_one_that_refuses_is_told(
    silent: Place, closed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, closed)
    with pytest.raises(ConnectionRefusedError):
        await connect_any("several.test", 1)


async def test_a_broker_is_reached_although_another_address_of_its_name_is_dead(
    silent: Place, alive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, alive)
    publisher = SimpleNamespace(_options=SimpleNamespace(host="several.test", port=1))
    await MqttPublisher._reach(publisher)  # type: ignore[arg-type]
