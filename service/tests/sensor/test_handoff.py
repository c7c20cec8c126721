"""Devices on their way to a shard that does not answer, or not as one would wish: senders never wait for ever."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Collection

import grpc
import pytest
from harness.settings import sensor_settings

from embereye.process.grpc_server import GrpcServer, channel
from embereye.sensor.grpc.ingest import Ingest
from embereye.sensor.handoff import Handoffs
from embereye.sensor.shard import SensorShard
from embereye.shard.links import PeerAddress
from embereye.v1.ingest_pb2 import TakeOverRequest, Watermark
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

SETTINGS = sensor_settings()


@contextlib.asynccontextmanager
async def handoffs(gone: list[str]) -> AsyncIterator[Handoffs]:
    def note(devices: Collection[str]) -> None:
        gone.extend(sorted(devices))

    def request(devices: Collection[str]) -> TakeOverRequest:
        marks = [Watermark(device=device, epoch=7, sequence=5) for device in devices]
        return TakeOverRequest(watermarks=marks, fleet="f", epoch=1)

    found = Handoffs(request, note, lambda target: channel(target.control))
    yield found
    await found.stop()


async def serve(*devices: str) -> tuple[GrpcServer, PeerAddress, SensorShard]:
    shard = SensorShard()
    shard.apply(
        Assignment(fleet="f", sensor=SETTINGS, epoch=1, devices=[Device(id=name, zone="hall") for name in devices])
    )
    server = GrpcServer([Ingest(shard).service()], control=True)
    target = PeerAddress("other", f"127.0.0.1:{server.listen('127.0.0.1:0')}")
    await server.start()
    return server, target, shard


async def test_what_the_other_shard_takes_is_gone_and_the_rest_stays_ours() -> None:
    server, target, shard = await serve("a")
    gone: list[str] = []
    async with handoffs(gone) as leaving:
        leaving.update({"a": target, "b": target}, ours={"a", "b"})
        async with asyncio.timeout(10):
            while not leaving.gone("a"):
                await asyncio.sleep(0.01)
            await leaving.wait_until_answered(["a", "b"])
        assert gone == ["a"]
        assert not leaving.gone("b")
        assert len(leaving) == 1
    device = shard.owned("a")
    assert device is not None
    assert (device.arrivals.epoch, device.arrivals.sequence) == (7, 5)
    await server.stop(0)


async def test_a_device_that_comes_back_is_on_its_way_no_more() -> None:
    server, target, _ = await serve("a")
    async with handoffs([]) as leaving:
        leaving.update({"a": target}, ours=())
        async with asyncio.timeout(10):
            await leaving.wait_until_gone(["a"], 10)
        assert leaving.gone("a")
        leaving.update({}, ours={"a"})
        assert not leaving.gone("a")
    await server.stop(0)


async def test_senders_do_not_wait_for_ever_for_a_shard_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never answers
        async with handoffs([]) as leaving:
            leaving.update({"a": PeerAddress("other", f"127.0.0.1:{silent.getsockname()[1]}")}, ours=())
            async with asyncio.timeout(20):
                await leaving.wait_until_answered(["a"])
            assert not leaving.gone("a")


async def test_senders_go_on_when_the_shard_stops_in_the_middle_of_a_question() -> None:
    async with handoffs([]) as leaving:
        leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, ours=())
        waiting = asyncio.ensure_future(leaving.wait_until_answered(["a"]))
        await asyncio.sleep(0.05)
        await leaving.stop()
        async with asyncio.timeout(10):
            await waiting


async def test_while_nobody_answers_what_is_still_ours_is_taken() -> None:
    async with handoffs([]) as leaving:
        leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, ours={"a"})
        async with asyncio.timeout(10):
            await leaving.wait_until_answered(["a"])
        assert not leaving.gone("a")


async def test_senders_do_not_wait_until_a_shard_is_asked_again_for_what_it_did_not_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("embereye.sensor.handoff.RETRY_SECONDS", 1e6)
    server, target, _ = await serve("b")
    async with handoffs([]) as leaving:
        leaving.update({"a": target}, ours={"a"})
        async with asyncio.timeout(10):
            while not leaving._asking:
                await asyncio.sleep(0.001)
            await leaving.wait_until_answered(["a"])
            leaving.update({"a": target, "b": target}, ours={"a"})
            await leaving.wait_until_answered(["b"])
        assert leaving.gone("b")
    await server.stop(0)


async def test_a_shard_that_cannot_be_reached_is_dialled_again_for_a_channel_asks_for_a_name_minutes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("embereye.sensor.handoff.CONNECT_SECONDS", 0.05)
    monkeypatch.setattr("embereye.sensor.handoff.RETRY_SECONDS", 0.01)
    dialled: list[grpc.aio.Channel] = []

    def dial(target: PeerAddress) -> grpc.aio.Channel:
        dialled.append(channel(target.control))
        return dialled[-1]

    leaving = Handoffs(lambda _: TakeOverRequest(), lambda _: None, dial)
    leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, ours={"a"})
    async with asyncio.timeout(10):
        while len(dialled) < 3:
            await asyncio.sleep(0.01)
    await leaving.stop()
    assert all(link.get_state() is grpc.ChannelConnectivity.SHUTDOWN for link in dialled)


async def test_a_shard_of_another_fleet_cannot_hand_devices_over() -> None:
    server, target, shard = await serve("a")
    marks = [Watermark(device="a", epoch=7, sequence=5)]
    async with channel(target.control) as link:
        for fleet in ("", "other"):
            with pytest.raises(grpc.aio.AioRpcError, match=f'a shard of "{fleet}" hands devices over to one of "f"'):
                await IngestStub(link).TakeOver(TakeOverRequest(watermarks=marks, fleet=fleet, epoch=1))
    device = shard.owned("a")
    assert device is not None
    assert device.arrivals.epoch == 0
    await server.stop(0)


async def test_a_shard_that_cannot_know_yet_who_owns_a_device_does_not_hand_it_over() -> None:
    server, target, shard = await serve("a")
    devices = [Device(id=name, zone="hall") for name in ("a", "b")]
    shard.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=2, devices=devices))
    marks = [Watermark(device=name, epoch=7, sequence=5) for name in ("a", "b")]
    async with channel(target.control) as link:
        stub = IngestStub(link)
        before = await stub.TakeOver(TakeOverRequest(watermarks=marks, fleet="f", epoch=1))
        after = await stub.TakeOver(TakeOverRequest(watermarks=marks, fleet="f", epoch=3))
    assert (before.devices, after.devices) == (["a"], ["a", "b"])
    await server.stop(0)


async def test_shards_that_took_over_are_not_remembered() -> None:
    server, target, _ = await serve("a")
    async with handoffs([]) as leaving:
        for number in range(20):
            leaving.update({"a": PeerAddress(f"other-{number}", target.control)}, ours=())
            await leaving.wait_until_gone(["a"], 10)
            assert leaving.gone("a")
        assert not leaving._offers
    await server.stop(0)
