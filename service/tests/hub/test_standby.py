"""A replica in standby: forwarded connections and their limits. `test_replicas` uses real replicas."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest
from harness.eventually import eventually
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub import standby
from embereye.hub.databases.owner import Owner
from embereye.hub.databases.postgres import PostgresDatabase
from embereye.hub.standby import Forwarder, Listen, stand_by
from embereye.process.addresses import free_port, free_ports
from embereye.process.tasks import beside

HOST = "127.0.0.1"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(100):
            writer.write(data)
    writer.close()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a forwarder for four connections to an owner that echoes everything."""
    owner = await asyncio.start_server(echo, HOST, 0)
    forwarder, port = Forwarder(4), free_port()
    forwarder.follow(Owner(HOST, {"http": owner.sockets[0].getsockname()[1]}))
    async with forwarder.listening([Listen(HOST, port, "http")]):
        yield port
    owner.close()


async def send_word(port: int, address: str) -> tuple[bytes, asyncio.StreamWriter]:
    """Send a word from `address`; returns its echo, empty if it was not forwarded, and the connection."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(address, 0))
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            writer.write(b"word")
            return await reader.read(100), writer
    return b"", writer


async def test_one_address_gets_half_of_the_connections_and_all_have_a_limit(
    port: int,
) -> None:
    answers_and_writers = [await send_word(port, f"127.0.0.{number}") for number in (1, 1, 1, 2, 2, 3)]
    assert [word for word, _ in answers_and_writers] == [b"word", b"word", b"", b"word", b"word", b""]
    for _, writer in answers_and_writers:
        writer.close()
    async with asyncio.timeout(10):
        while not (await send_word(port, "127.0.0.1"))[0]:
            await asyncio.sleep(0.01)


async def test_shards_return_to_an_owner_that_can_be_reached_again() -> None:
    served: list[str] = []

    async def serve(name: str, port: int) -> asyncio.Server:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(name)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        return await asyncio.start_server(greet, HOST, port)

    replica, owners, fallback = free_ports(3)
    forwarder = Forwarder(fallback={"control": fallback})
    forwarder.follow(Owner(HOST, {"control": owners}))
    fallback_server = await serve("fallback", fallback)
    async with (
        forwarder.listening([Listen(HOST, replica, "control")]),
        beside(forwarder.return_to_owner(), name="return"),
    ):
        reader, writer = await asyncio.open_connection(HOST, replica)
        await eventually(lambda: served == ["fallback"], 10)
        server = await serve("owner", owners)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert not await reader.read(1), "the shard's connection ends, so that it redials"
        writer.close()
        _, writer = await asyncio.open_connection(HOST, replica)
        await eventually(lambda: served[-1] == "owner", 10)
        await asyncio.sleep(0.01)
        writer.close()
        server.close()
        fallback_server.close()


READY = b"Z\0\0\0\5I"  # PostgreSQL awaits a query


@pytest.mark.parametrize("frozen_while", ["connecting", "querying"])
async def test_a_standby_reconnects_to_a_frozen_database_and_takes_over_without_owner(
    stored_in_postgres: Stored,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    frozen_while: str,
) -> None:
    monkeypatch.setattr(standby, "PATIENCE_SECONDS", 0.2)
    owner = PostgresDatabase(
        lambda: stored_in_postgres.address, advertisement=json.dumps({"host": HOST, "ports": {"http": 1}})
    )
    frozen, connections = asyncio.Event(), list[asyncio.StreamWriter]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        answers, requests = await asyncio.open_connection(HOST, postgres.port)
        async with beside(_copy(reader, requests), name="requests"):
            while data := await answers.read(10_000):
                if len(connections) == 1 and frozen.is_set():
                    continue  # the first connection stays frozen; a new one works
                writer.write(data)
                if frozen_while == "connecting" and READY in data:
                    frozen.set()
        for end in (writer, requests):
            end.close()

    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            writer.write(data)
        writer.close()  # the server ends the session and releases its lock

    proxy = await asyncio.start_server(forward, HOST, 0)
    address = stored_in_postgres.address.replace(f":{postgres.port}/", f":{proxy.sockets[0].getsockname()[1]}/")
    forwarder, stop = Forwarder(4), asyncio.Event()
    with caplog.at_level(logging.INFO):
        standing_by = asyncio.ensure_future(stand_by(lambda: f"{address}?sslmode=disable", [], forwarder, stop))
        async with asyncio.timeout(60):
            while forwarder.owner is None:
                await asyncio.sleep(0.01)
            frozen.set()
            await asyncio.to_thread(owner.close)
            assert await standing_by
    assert "owner cannot be read" in caplog.text
    proxy.close()
    for writer in connections:
        writer.close()
