import asyncio

import pytest

from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.v1.ingest_pb2 import Ack, Drain, IngestResponse, Watermark
from embereye.v1.ingest_pb2_grpc import IngestServicer, IngestStub, add_IngestServicer_to_server
from embereye_bench.sensors import drain


class Shard(IngestServicer):
    """Acknowledges everything, or answers DRAIN to everything; closes a stream after `ends` requests."""

    def __init__(self, *, drain=False, ends=0):
        self.drain, self.ends, self.sequences = drain, ends, []

    async def TakeOver(self, request, context):
        raise AssertionError("no sender takes over a device")

    async def Stream(self, requests, context):
        async for request in requests:
            (batch,) = request.devices
            self.sequences += [reading.sequence for reading in batch.readings]
            if self.drain:
                yield IngestResponse(drain=Drain(reason="this shard is going away"))
            else:
                mark = Watermark(device=batch.device, epoch=1, sequence=self.sequences[-1])
                yield IngestResponse(ack=Ack(watermarks=[mark]))
            self.ends -= 1
            if not self.ends:
                return


async def send(first, second):
    """Run a sender of the benchmark; return it once the second shard has acknowledged all that it sent."""
    servers = [
        GrpcServer([Service(add_IngestServicer_to_server, shard, "embereye.v1.Ingest")]) for shard in (first, second)
    ]
    links = [channel(f"127.0.0.1:{server.listen('127.0.0.1:0')}") for server in servers]
    for server in servers:
        await server.start()
    sender = drain.Sender("device-0")
    task = asyncio.ensure_future(sender.run([IngestStub(link) for link in links]))
    try:
        async with asyncio.timeout(60):
            while not (sender.taken_over_at and sender.is_acknowledged()) and not task.done():
                if not sender.taken_over_at:  # then everything sent can become acknowledged
                    await sender.send()
                await asyncio.sleep(0.005)
            if task.done():
                await task
        return sender
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for link in links:
            await link.close()
        for server in servers:
            await server.stop(0)


async def test_readings_that_a_drained_shard_did_not_acknowledge_go_to_the_second():
    first, second = Shard(drain=True, ends=1), Shard()
    sender = await send(first, second)
    assert first.sequences == [1]
    assert second.sequences == list(range(1, sender.sequence + 1))


async def test_a_second_shard_that_ends_its_stream_without_acknowledging_is_an_error():
    with pytest.raises(RuntimeError, match=r"shard 1 acknowledged up to 0 of \d+, and its stream ended"):
        await send(Shard(drain=True, ends=1), Shard(drain=True, ends=2))


async def test_a_shard_that_neither_acknowledges_nor_ends_its_stream_is_an_error(monkeypatch):
    monkeypatch.setattr(drain, "ACKNOWLEDGE_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match=r"shard 0 acknowledged up to 0 of \d+, and no answer in 0\.1 s"):
        await send(Shard(drain=True), Shard())


async def until_taken_over(task, seconds):
    await drain.until(lambda sender: bool(sender.taken_over_at), [drain.Sender("device-7")], [task], seconds)


async def test_senders_that_are_never_taken_over_are_named():
    forever = asyncio.ensure_future(asyncio.sleep(60))
    with pytest.raises(RuntimeError, match=r"1 senders, for example device-7"):
        await until_taken_over(forever, 0.05)
    forever.cancel()


async def test_the_error_of_a_failed_sender_is_raised_at_once():
    async def fail():
        raise RuntimeError("device-7: its stream ended")

    with pytest.raises(RuntimeError, match="device-7: its stream ended"):
        await until_taken_over(asyncio.ensure_future(fail()), 20)
