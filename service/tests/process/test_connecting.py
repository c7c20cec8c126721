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
    """An address that never answers: its queue is full."""
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
        resolved = places if host == "several.test" else ((host, port),)
        return [
            (UNSPOKEN if ":" in place[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in resolved
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


async def test_the_next_address_is_tried_if_one_does_not_answer(
    silent: Place, closed: Place, alive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, closed, alive)
    with await connect_any("several.test", 1) as connection:
        assert connection.getpeername() == alive


async def test_an_address_of_an_unsupported_family_is_skipped(
    alive: Place, closed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, ("::1", 1), alive)
    with await connect_any("several.test", 1) as connection:
        assert connection.getpeername() == alive
    name(monkeypatch, ("::1", 1), closed)
    with pytest.raises(ConnectionRefusedError):
        await connect_any("several.test", 1)


async def test_a_refusal_is_reported_rather_than_a_timeout(
    silent: Place, closed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, closed)
    with pytest.raises(ConnectionRefusedError):
        await connect_any("several.test", 1)


async def test_a_broker_is_reached_although_another_of_its_addresses_is_dead(
    silent: Place, alive: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name(monkeypatch, silent, alive)
    publisher = SimpleNamespace(_options=SimpleNamespace(host="several.test", port=1))
    await MqttPublisher._reach(publisher)  # type: ignore[arg-type]
