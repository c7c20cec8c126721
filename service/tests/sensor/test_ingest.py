"""Streams of gRPC senders that flood, or that do not read their acknowledgements."""

import asyncio
from typing import Any

import grpc
import pytest
from harness.settings import sensor_settings

from embereye.sensor.grpc.ingest import MAX_NAME, MOST_RESPONSES, WINDOW_BYTES, _parse_sized, _Stream
from embereye.sensor.shard import SensorShard
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading, ReadingColumns
from embereye.v1.shard_pb2 import Assignment, Peer
from embereye.v1.types_pb2 import Device

SETTINGS = sensor_settings()


class Sender:
    """The other end of a stream: sends `requests`, each counted as `size` bytes, and reads on demand."""

    def __init__(self, requests: list[IngestRequest], size: int) -> None:
        self.listens = asyncio.Event()
        self.sent = 0
        self.heard: list[IngestResponse] = []
        self._requests = requests
        self._size = size

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    async def send_initial_metadata(self, metadata: object) -> None:
        """Send nothing: the stream needs no metadata."""

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if self.sent == len(self._requests):
            return grpc.aio.EOF
        self.sent += 1
        return _parse_sized(self._requests[self.sent - 1].SerializeToString())[0], self._size

    async def write(self, response: IngestResponse) -> None:
        await self.listens.wait()
        self.heard.append(response)

    async def abort(self, code: grpc.StatusCode, why: str) -> None:
        raise grpc.aio.AbortError(f"{code.name}: {why}")


class OpenSender:
    """The other end of a stream that stays open: sends on demand, and reads everything at once."""

    def __init__(self, device: str) -> None:
        self.heard: list[IngestResponse] = []
        self._device = device
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self.send(1)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40001"

    async def send_initial_metadata(self, metadata: object) -> None:
        """Send nothing: the stream needs no metadata."""

    def send(self, sequence: int) -> None:
        batch = DeviceBatch(device=self._device, epoch=1, readings=[Reading(sequence=sequence, smoke_adc=280)])
        self._requests.put_nowait(_parse_sized(IngestRequest(devices=[batch]).SerializeToString()))

    async def read(self) -> Any:
        return await self._requests.get()

    async def write(self, response: IngestResponse) -> None:
        self.heard.append(response)


def requests(count: int) -> list[IngestRequest]:
    return [
        IngestRequest(devices=[DeviceBatch(device="a", epoch=1, readings=[Reading(sequence=number, smoke_adc=280)])])
        for number in range(1, count + 1)
    ]


def shard() -> SensorShard:
    shard = SensorShard()
    shard.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=1, devices=[Device(id="a", zone="hall")]))
    return shard


async def test_the_stream_of_a_sender_that_reads_no_acknowledgements_is_not_read() -> None:
    taken, sender = shard(), Sender(requests(200), WINDOW_BYTES)
    stream = asyncio.create_task(taken._ingest.Stream(None, sender))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert sender.sent < 2 * MOST_RESPONSES
    sender.listens.set()
    await stream
    assert sender.heard[-1].ack.watermarks[0].sequence == 200
    device = taken.fleet.owned("a")
    assert device is not None
    assert device.arrivals.ledger.analysed == 200


async def test_a_flood_is_acknowledged_together_and_in_full_at_its_end() -> None:
    taken, sender = shard(), Sender(requests(200), 100)
    sender.listens.set()
    await taken._ingest.Stream(None, sender)
    assert sender.heard[-1].ack.watermarks[0].sequence == 200
    assert len(sender.heard) < 200


async def test_a_sender_with_overlong_names_is_refused_and_no_name_is_stored() -> None:
    taken = shard()
    names = ["a" * MAX_NAME, "b" * (MAX_NAME + 1), "c"]
    sender = Sender([IngestRequest(devices=[DeviceBatch(device=name, epoch=1)]) for name in names], WINDOW_BYTES)
    sender.listens.set()
    stream = _Stream(sender)
    with pytest.raises(grpc.aio.AbortError, match=f"RESOURCE_EXHAUSTED: .* more than {MAX_NAME} characters"):
        await taken._ingest._serve(stream, sender)
    assert stream.unknown == stream.refused == {names[0]}
    assert [list(response.rejected.devices) for response in sender.heard] == [names[:1]]


async def test_invalid_columns_affect_neither_other_columns_nor_the_stream() -> None:
    good = [ReadingColumns(first_sequence=first, time_ns=[0, 0], smoke_adc=[280, 281]) for first in (1, 5)]
    cut_off = b"\x12\x01\x00\x1a\x03\x00\x00\x00"  # one time, and three quarters of a float
    batches = [
        _parse_sized(b"\x0a" + bytes([len(columns) + 7]) + b"\x0a\x01a\x10\x01\x22" + bytes([len(columns)]) + columns)[
            0
        ]
        for columns in (good[0].SerializeToString(), cut_off, good[1].SerializeToString())
    ]
    taken = shard()
    device = taken.fleet.owned("a")
    assert device is not None
    device.arrivals.epoch = 1
    taken.analyse_batches(device, [batch.devices[0] for batch in batches], 1)
    assert (device.arrivals.sequence, device.arrivals.ledger.analysed) == (6, 4)
    assert dict(device.arrivals.ledger.rejected) == {"bad batch": 1}


async def test_an_unreachable_new_owner_delays_no_other_sender_during_a_drain() -> None:
    taken = SensorShard()
    devices = [Device(id=name, zone="hall") for name in ("a", "b")]
    taken.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=1, devices=devices))
    streams = {name: OpenSender(name) for name in ("a", "b")}
    serving = [asyncio.create_task(taken._ingest.Stream(None, stream)) for stream in streams.values()]
    while not all(stream.heard for stream in streams.values()):
        await asyncio.sleep(0)
    peers = [Peer(shard="gone", grpc="127.0.0.1:1", control="127.0.0.1:1")]
    taken.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=2, devices=devices, elsewhere={"a": "gone"}, peers=peers))
    draining = asyncio.create_task(taken._ingest.drain(60))
    async with asyncio.timeout(10):
        while not streams["b"].heard[-1].HasField("drain"):
            await asyncio.sleep(0)
        streams["a"].send(2)  # is still accepted here
        while streams["a"].heard[-1].ack.watermarks[0].sequence != 2:
            await asyncio.sleep(0)
    for task in (draining, *serving):
        task.cancel()
    await asyncio.gather(draining, *serving, return_exceptions=True)
    await taken._ingest.close()


async def test_senders_get_the_address_of_a_new_owner_that_stays_unreachable() -> None:
    taken = shard()
    stream = OpenSender("a")
    serving = asyncio.create_task(taken._ingest.Stream(None, stream))
    while not stream.heard:
        await asyncio.sleep(0)
    peers = [Peer(shard="gone", grpc="127.0.0.1:1", control="127.0.0.1:1")]
    taken.apply(
        Assignment(
            fleet="f",
            sensor=SETTINGS,
            epoch=2,
            devices=[Device(id="a", zone="hall")],
            elsewhere={"a": "gone"},
            peers=peers,
        )
    )
    await taken._ingest.drain(0.05)
    assert [response.drain.target for response in stream.heard[-2:]] == ["127.0.0.1:1", ""]
    assert list(stream.heard[-2].drain.devices) == ["a"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_no_watermark_is_stored_for_devices_that_left_the_fleet() -> None:
    taken = SensorShard()
    for number in range(100):
        elsewhere = {f"d-{number - 1}": "unheard-of"} if number else {}
        devices = [Device(id=f"d-{number}", zone="hall")]
        taken.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=number + 1, devices=devices, elsewhere=elsewhere))
        device = taken.fleet.owned(f"d-{number}")
        assert device is not None
        device.arrivals.resume(1, 5)
    assert [mark.device for mark in taken._ingest._left.values()] == ["d-98"]
