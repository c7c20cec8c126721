"""A shard asked to end, as when its pod is deleted, watches its devices until its successor does."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Callable

import pytest
from harness.eventually import eventually

from embereye.client import Client
from embereye.process.addresses import free_port
from embereye.v1.shard_pb2 import Peer

from .site import HOST, Site


class Door:
    """A TCP port that leads to another one, which may change, like the address of a Service."""

    def __init__(self) -> None:
        self.port = free_port()
        self.to = 0
        self.address = f"{HOST}:{self.port}"

    async def open(self) -> asyncio.Server:
        return await asyncio.start_server(self._lead, HOST, self.port)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            ahead, behind = await asyncio.open_connection(HOST, self.to)
            copies = [asyncio.create_task(copy) for copy in (self._copy(reader, behind), self._copy(ahead, writer))]
            await asyncio.wait(copies)
        writer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while text := await reader.read(1 << 16):
                writer.write(text)
                await writer.drain()
        writer.transport.abort()


async def reached(condition: Callable[[], bool], goal: str) -> None:
    async def is_reached() -> bool:
        return condition()

    await eventually(is_reached, goal=goal)


async def speak(client: Client) -> None:
    while True:
        client.send("one", smoke_adc=280)
        await asyncio.sleep(0.05)


@pytest.fixture
async def doors(site: Site) -> AsyncIterator[tuple[Door, Door]]:
    """The gRPC and control addresses of shard-0, which has the device "one"."""
    grpc, control = Door(), Door()
    site.start("hub")
    site.assign("shard-0", "one", own=Peer(shard="shard-0", grpc=grpc.address, control=control.address))
    async with await grpc.open(), await control.open():
        yield grpc, control


async def test_a_terminating_shard_continues_until_its_successor_answers(site: Site, doors: tuple[Door, Door]) -> None:
    site.start("shard-0", "--successor", "60")
    enter(site, doors, "shard-0")
    async with Client(doors[0].address) as client:
        speaking = asyncio.create_task(speak(client))
        await reached(lambda: client.acknowledged > 0, "readings are acknowledged")
        process = site.processes["shard-0"]
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(2)
        assert site.running("shard-0")
        before = client.acknowledged
        await reached(lambda: client.acknowledged > before + 10, "readings are acknowledged all the same")
        shutil.copy(site.folder / "shard-0.json", site.folder / "heir.json")
        site.start("heir")
        await reached(lambda: " ready: " in site.log("heir"), "the successor is ready")
        enter(site, doors, "heir")
        assert await asyncio.to_thread(process.wait, 60) == 0
        speaking.cancel()
        assert await client.flush(20)
        assert await site.metric("heir", "embereye_sensor_streams") > 0
    assert "another process answers as shard-0: this one ends" in site.log("shard-0")
    assert await site.metric("heir", "embereye_shard_draining") == 0


async def test_a_shard_without_a_successor_ends_in_time_and_names_unwatched_devices(
    site: Site, doors: tuple[Door, Door]
) -> None:
    site.start("shard-0", "--successor", "1")
    enter(site, doors, "shard-0")
    await reached(lambda: " ready: " in site.log("shard-0"), "the shard is ready")
    assert await asyncio.to_thread(site.end, "shard-0") == 0
    assert "no other process answers as shard-0 after 1 s: 1 device is not watched until one does" in site.log(
        "shard-0"
    )


async def test_a_shard_whose_devices_have_moved_ends_at_once(site: Site, doors: tuple[Door, Door]) -> None:
    site.assign("shard-0", own=Peer(shard="shard-0", grpc=doors[0].address, control=doors[1].address))
    site.start("shard-0", "--successor", "60")
    enter(site, doors, "shard-0")
    await reached(lambda: " ready: " in site.log("shard-0"), "the shard is ready")
    async with asyncio.timeout(20):
        assert await asyncio.to_thread(site.end, "shard-0") == 0


def enter(site: Site, doors: tuple[Door, Door], name: str) -> None:
    """Let the doors lead to a process."""
    grpc, _, _, control = site.ports[name]
    doors[0].to, doors[1].to = grpc, control
