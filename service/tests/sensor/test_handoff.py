"""Hand-overs to shards that do not answer or behave badly: senders never wait forever."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Collection

import grpc
import pytest
from harness.eventually import eventually
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

    handoffs = Handoffs(request, note, lambda target: channel(target.control))
    yield handoffs
    await handoffs.stop()


async def serve(*devices: str) -> tuple[GrpcServer, PeerAddress, SensorShard]:
    shard = SensorShard()
    shard.apply(
        Assignment(fleet="f", sensor=SETTINGS, epoch=1, devices=[Device(id=name, zone="hall") for name in devices])
    )
    server = GrpcServer([Ingest(shard).service()], control=True)
    target = PeerAddress("other", f"127.0.0.1:{server.listen('127.0.0.1:0')}")
    await server.start()
    return server, target, shard


async def test_devices_that_another_shard_takes_over_are_gone_and_the_rest_stays() -> None:
    server, target, shard = await serve("a")
    gone: list[str] = []
    async with handoffs(gone) as leaving:
        leaving.update({"a": target, "b": target}, owned={"a", "b"})
        async with asyncio.timeout(10):
            while not leaving.is_gone("a"):
                await asyncio.sleep(0.01)
            await leaving.wait_until_answered(["a", "b"])
        assert gone == ["a"]
        assert not leaving.is_gone("b")
        assert len(leaving) == 1
    device = shard.fleet.owned("a")
    assert device is not None
    assert (device.arrivals.epoch, device.arrivals.sequence) == (7, 5)
    await server.stop(0)


async def test_a_device_that_is_assigned_here_again_is_not_handed_over() -> None:
    server, target, _ = await serve("a")
    async with handoffs([]) as leaving:
        leaving.update({"a": target}, owned=())
        async with asyncio.timeout(10):
            await leaving.wait_until_gone(["a"], 10)
        assert leaving.is_gone("a")
        leaving.update({}, owned={"a"})
        assert not leaving.is_gone("a")
    await server.stop(0)


async def test_senders_do_not_wait_forever_for_a_silent_shard() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never answers
        async with handoffs([]) as leaving:
            leaving.update({"a": PeerAddress("other", f"127.0.0.1:{silent.getsockname()[1]}")}, owned=())
            async with asyncio.timeout(20):
                await leaving.wait_until_answered(["a"])
            assert not leaving.is_gone("a")


async def test_senders_continue_when_the_shard_stops_during_a_request() -> None:
    async with handoffs([]) as leaving:
        leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, owned=())
        waiting = asyncio.ensure_future(leaving.wait_until_answered(["a"]))
        await asyncio.sleep(0.05)
        await leaving.stop()
        async with asyncio.timeout(10):
            await waiting


async def test_readings_of_owned_devices_are_accepted_while_no_shard_answers() -> None:
    async with handoffs([]) as leaving:
        leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, owned={"a"})
        async with asyncio.timeout(10):
            await leaving.wait_until_answered(["a"])
        assert not leaving.is_gone("a")


async def test_senders_do_not_wait_for_the_retry_after_a_refused_hand_over() -> None:
    server, target, _ = await serve("b")
    async with handoffs([]) as leaving:
        leaving.retry_seconds = 1e6
        leaving.update({"a": target}, owned={"a"})
        async with asyncio.timeout(10):
            while not leaving._asking:
                await asyncio.sleep(0.001)
            await leaving.wait_until_answered(["a"])
            leaving.update({"a": target, "b": target}, owned={"a"})
            await leaving.wait_until_answered(["b"])
        assert leaving.is_gone("b")
    await server.stop(0)


async def test_an_unreachable_shard_is_dialled_with_a_new_channel() -> None:
    dialled: list[grpc.aio.Channel] = []

    def dial(target: PeerAddress) -> grpc.aio.Channel:
        dialled.append(channel(target.control))
        return dialled[-1]

    leaving = Handoffs(lambda _: TakeOverRequest(), lambda _: None, dial)
    leaving.connect_seconds, leaving.retry_seconds = 0.05, 0.01
    leaving.update({"a": PeerAddress("other", "127.0.0.1:1")}, owned={"a"})
    await eventually(lambda: len(dialled) >= 3, 10)
    await leaving.stop()
    assert all(link.get_state() is grpc.ChannelConnectivity.SHUTDOWN for link in dialled)


async def test_a_shard_of_another_fleet_cannot_hand_devices_over() -> None:
    server, target, shard = await serve("a")
    marks = [Watermark(device="a", epoch=7, sequence=5)]
    async with channel(target.control) as link:
        for fleet in ("", "other"):
            with pytest.raises(
                grpc.aio.AioRpcError, match=f'this shard belongs to fleet "f", the devices to "{fleet}"'
            ):
                await IngestStub(link).TakeOver(TakeOverRequest(watermarks=marks, fleet=fleet, epoch=1))
    device = shard.fleet.owned("a")
    assert device is not None
    assert device.arrivals.epoch == 0
    await server.stop(0)


async def test_a_shard_that_does_not_know_a_devices_owner_does_not_hand_it_over() -> None:
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


async def test_shards_that_have_taken_over_are_forgotten() -> None:
    server, target, _ = await serve("a")
    async with handoffs([]) as leaving:
        for number in range(20):
            leaving.update({"a": PeerAddress(f"other-{number}", target.control)}, owned=())
            await leaving.wait_until_gone(["a"], 10)
            assert leaving.is_gone("a")
        assert not leaving._offers
    await server.stop(0)
