import asyncio
import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from embereye.hub.mqtt.publisher import MqttPublisher
from embereye.process import remembered
from embereye.process.addresses import LOOPBACK
from embereye.process.connecting import connect_any
from embereye.process.http.resolver import RememberingResolver

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


@pytest.mark.parametrize("lookup", ["fails", "lasts"])
async def test_addresses_from_before_are_used_while_a_name_is_not_resolved(
    alive: Place, monkeypatch: pytest.MonkeyPatch, lookup: str
) -> None:
    monkeypatch.setattr(remembered, "LOOKUP_SECONDS", 0.05)
    name(monkeypatch, alive)
    answer = asyncio.get_running_loop().getaddrinfo

    async def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if not host.endswith(".test"):  # the event loop asks again for the address that it connects to
            return list(await answer(host, port))
        if lookup == "lasts":
            await asyncio.sleep(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    resolver = RememberingResolver()  # of cameras by HTTP, and of webhooks
    answer_before = await resolver.resolve("several.test", 2)
    (await connect_any("several.test", 2)).close()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with await connect_any("several.test", 2) as connection:
        assert connection.getpeername() == alive
    assert await resolver.resolve("several.test", 2) == answer_before
    assert answer_before[0]["host"] == alive[0]
    if lookup == "fails":
        with pytest.raises(socket.gaierror):
            await connect_any("unknown.test", 2)


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
