"""What a replica that stands by passes on, and how much of it; `test_replicas` has the real thing."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest
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
    """Where four connections are passed on to an owner that says everything again."""
    owner = await asyncio.start_server(echo, HOST, 0)
    forwarder, port = Forwarder(4), free_port()
    forwarder.follow(Owner(HOST, {"http": owner.sockets[0].getsockname()[1]}))
    async with forwarder.listening([Listen(HOST, port, "http")]):
        yield port
    owner.close()


async def says(port: int, address: str) -> tuple[bytes, asyncio.StreamWriter]:
    """What comes back of a word from `address`, nothing where it is not passed on; and the connection."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(address, 0))
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            writer.write(b"word")
            return await reader.read(100), writer
    return b"", writer


async def test_one_address_gets_half_of_the_connections_and_all_have_a_limit(
    port: int,
) -> None:
    found = [await says(port, f"127.0.0.{number}") for number in (1, 1, 1, 2, 2, 3)]
    assert [word for word, _ in found] == [b"word", b"word", b"", b"word", b"word", b""]
    for _, writer in found:
        writer.close()
    async with asyncio.timeout(10):
        while not (await says(port, "127.0.0.1"))[0]:
            await asyncio.sleep(0.01)


async def test_shards_return_to_an_owner_that_can_be_reached_again() -> None:
    told: list[str] = []

    async def serve(name: str, port: int) -> asyncio.Server:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.append(name)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        return await asyncio.start_server(greet, HOST, port)

    own, owners, absent = free_ports(3)
    forwarder = Forwarder(fallback={"control": absent})
    forwarder.follow(Owner(HOST, {"control": owners}))
    aside = await serve("absent", absent)
    async with (
        forwarder.listening([Listen(HOST, own, "control")]),
        beside(forwarder.return_to_owner(), name="return"),
    ):
        reader, writer = await asyncio.open_connection(HOST, own)
        async with asyncio.timeout(10):
            while told != ["absent"]:
                await asyncio.sleep(0.01)
        server = await serve("owner", owners)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert not await reader.read(1), "the shard's connection ends, so that it dials again"
        writer.close()
        _, writer = await asyncio.open_connection(HOST, own)
        async with asyncio.timeout(10):
            while told[-1] != "owner":
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        writer.close()
        server.close()
        aside.close()


READY = b"Z\0\0\0\5I"  # PostgreSQL awaits a query


@pytest.mark.parametrize("frozen_while", ["it is dialled", "it is asked"])
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

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        answers, requests = await asyncio.open_connection(HOST, postgres.port)
        async with beside(_passed(reader, requests), name="requests"):
            while data := await answers.read(10_000):
                if len(connections) == 1 and frozen.is_set():
                    continue  # the first server stays frozen; whoever dials anew reaches the next one
                writer.write(data)
                if frozen_while == "it is dialled" and READY in data:
                    frozen.set()
        for each in (writer, requests):
            each.close()

    async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            writer.write(data)
        writer.close()  # with its session the server lets go of what was locked for it

    proxy = await asyncio.start_server(pass_on, HOST, 0)
    address = stored_in_postgres.address.replace(f":{postgres.port}/", f":{proxy.sockets[0].getsockname()[1]}/")
    forwarder, stop = Forwarder(4), asyncio.Event()
    with caplog.at_level(logging.INFO):
        standing = asyncio.ensure_future(stand_by(lambda: f"{address}?sslmode=disable", [], forwarder, stop))
        async with asyncio.timeout(60):
            while forwarder.owner is None:
                await asyncio.sleep(0.01)
            frozen.set()
            await asyncio.to_thread(owner.close)
            assert await standing
    assert "owner cannot be read" in caplog.text
    proxy.close()
    for writer in connections:
        writer.close()
