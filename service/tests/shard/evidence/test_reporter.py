import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from harness.eventually import eventually

from embereye.levels import Level
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.tasks import beside
from embereye.process.timing.backoff import Backoff
from embereye.shard.evidence.reporter import PART_BYTES, Reporter, split
from embereye.shard.evidence.spool import Spool
from embereye.shard.links import Links
from embereye.v1.evidence_pb2 import (
    ClosedLedger,
    Coverage,
    DeviceStatus,
    EvidenceItem,
    ReportRequest,
    ReportResponse,
    ShardHello,
    ThermalPicture,
)
from embereye.v1.evidence_pb2_grpc import EvidenceServicer, add_EvidenceServicer_to_server


class RecordingHub(EvidenceServicer):
    """Records requests; acknowledges only while `acknowledging`."""

    def __init__(self) -> None:
        self.evidence: list[str] = []
        self.hellos: list[ShardHello] = []
        self.coverage = 0
        self.acknowledging = True

    async def Report(self, requests: AsyncIterator[ReportRequest], context: object) -> AsyncIterator[ReportResponse]:
        async for request in requests:
            match request.WhichOneof("body"):
                case "hello":
                    self.hellos.append(request.hello)
                case "coverage":
                    self.coverage += 1
                case "evidence":
                    self.evidence.append(request.evidence.id)
                    if self.acknowledging:
                        yield ReportResponse(acknowledged=[request.evidence.id])


async def serve(hub: RecordingHub, port: int = 0) -> tuple[GrpcServer, int]:
    server = GrpcServer([Service(add_EvidenceServicer_to_server, hub, "embereye.v1.Evidence")], control=True)
    port = server.listen(f"127.0.0.1:{port}")
    await server.start()
    return server, port


def reporter_to(port: int, spool: Spool) -> Reporter:
    hello, coverage = ShardHello(shard="s", epoch=7), Coverage(shard="s")
    return Reporter(Links(f"127.0.0.1:{port}"), spool, hello=lambda: hello, coverage=lambda: coverage)


def evidence(name: str) -> EvidenceItem:
    return EvidenceItem(id=name, episode=name, level=Level.ALARM.wire)


async def test_evidence_is_removed_only_once_it_is_acknowledged() -> None:
    hub, spool = RecordingHub(), Spool(None)
    hub.acknowledging = False
    server, port = await serve(hub)
    reporter = reporter_to(port, spool)
    task = asyncio.ensure_future(reporter.run())
    reporter.report(evidence("a"))
    await eventually(lambda: hub.evidence == ["a"])
    assert hub.hellos[0].epoch == 7
    assert len(spool) == 1
    hub.acknowledging = True
    reporter.report(evidence("b"))
    await eventually(lambda: len(spool) == 1)
    assert [item.id for _, item in spool.after(0)] == ["a"]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await server.stop(0)


class FailingHub(RecordingHub):
    """Accepts reports, but cannot store them until `mended`."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledging = False
        self.mended = asyncio.Event()

    async def Report(self, requests: AsyncIterator[ReportRequest], context: object) -> AsyncIterator[ReportResponse]:
        yield ReportResponse(failing="the disk is full")
        yield ReportResponse(failing="the disk is full, still")
        await self.mended.wait()
        self.acknowledging = True
        yield ReportResponse(failing="")
        async for response in super().Report(requests, context):
            yield response


async def test_a_hub_that_cannot_store_reports_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    hub, spool = FailingHub(), Spool(None)
    server, port = await serve(hub)
    reporter = reporter_to(port, spool)
    reporter.report(evidence("a"))
    task = asyncio.ensure_future(reporter.run())
    await eventually(lambda: "still" in reporter.refusal)
    assert reporter.refusal == f"hub 127.0.0.1:{port} acknowledges no reports: the disk is full, still"
    assert reporter.connected
    assert len(spool) == 1
    hub.mended.set()
    await eventually(lambda: not len(spool))
    assert not reporter.refusal
    logged = [record.message for record in caplog.records if record.name.endswith("reporter")]
    assert logged == [
        f"hub 127.0.0.1:{port}: connected, 1 report spooled",
        f"hub 127.0.0.1:{port} acknowledges no reports: the disk is full; 1 report spooled",
        f"hub 127.0.0.1:{port} acknowledges reports again, 1 report spooled",
    ]
    hub.mended.clear()
    await server.stop(0)
    await eventually(lambda: not reporter.connected)
    assert not reporter.refusal, "whether it can store cannot be known"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_hub_that_refuses_this_shard_is_not_reported_as_unreachable() -> None:
    class Refusing(RecordingHub):
        async def Report(self, requests: AsyncIterator[ReportRequest], context: Any) -> AsyncIterator[ReportResponse]:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "a shard reports for itself")
            yield ReportResponse()

    server, port = await serve(Refusing())
    reporter = reporter_to(port, Spool(None))
    task = asyncio.ensure_future(reporter.run())
    await eventually(lambda: reporter.refusal)
    assert reporter.refusal == f"hub 127.0.0.1:{port} acknowledges no reports: a shard reports for itself"
    await server.stop(0)
    await eventually(lambda: not reporter.refusal)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_hub_that_refuses_a_shards_reports_is_dialled_rarely_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing(RecordingHub):
        dialled = 0

        async def Report(self, requests: AsyncIterator[ReportRequest], context: Any) -> AsyncIterator[ReportResponse]:
            self.dialled += 1
            yield ReportResponse(canaries=True)
            if not self.acknowledging:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "a shard reports for itself")
            async for response in super().Report(requests, context):
                yield response

    caplog.set_level("INFO")
    hub, spool = Refusing(), Spool(None)
    hub.acknowledging = False
    server, port = await serve(hub)
    reporter = reporter_to(port, spool)
    reporter.report(evidence("a"))
    task = asyncio.ensure_future(reporter.run())
    await eventually(lambda: hub.dialled >= 4)
    await asyncio.sleep(1.5)
    assert hub.dialled < 10
    assert reporter.refusal.endswith("acknowledges no reports: a shard reports for itself")
    hub.acknowledging = True
    await eventually(lambda: not len(spool))
    assert not reporter.refusal
    logged = [record.message for record in caplog.records if record.name.endswith("reporter")]
    # gRPC may report a write after the end.
    logged = [line for line in logged if "the connection was closed" not in line]
    assert logged == [
        f"hub 127.0.0.1:{port}: connected, 1 report spooled",
        f"hub 127.0.0.1:{port}: PERMISSION_DENIED: a shard reports for itself; trying again, 1 report spooled",
        f"hub 127.0.0.1:{port} acknowledges reports again, 0 reports spooled",
    ]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await server.stop(0)


async def test_a_lost_hub_is_dialled_often_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = []

    def next_pause(backoff: Backoff) -> float:
        longest.append(backoff.cap)
        return 0.01

    monkeypatch.setattr(Backoff, "next", next_pause)
    monkeypatch.setattr("embereye.shard.evidence.reporter.SOON_SECONDS", 1.0)
    server, port = await serve(RecordingHub())
    reporter = reporter_to(port, Spool(None))
    task = asyncio.ensure_future(reporter.run())
    reporter.report(evidence("a"))
    await eventually(lambda: reporter.connected)
    await server.stop(0)
    await eventually(lambda: len(longest) > 2 and longest[-1] == 3.0)
    gone = longest[1:]  # the first pause follows the end of the stream
    assert gone == sorted(gone)
    assert gone[0] == 0.5
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_hub_that_returns_gets_everything_that_was_not_acknowledged() -> None:
    hub, spool = RecordingHub(), Spool(None)
    hub.acknowledging = False
    server, port = await serve(hub)
    reporter = reporter_to(port, spool)
    task = asyncio.ensure_future(reporter.run())
    reporter.report(evidence("a"))
    await eventually(lambda: hub.evidence == ["a"])
    await server.stop(0)
    reporter.report(evidence("b"))
    successor = RecordingHub()
    server, _ = await serve(successor, port)
    await eventually(lambda: not len(spool))
    assert successor.evidence == ["a", "b"]
    await eventually(lambda: successor.coverage >= 1)
    assert await reporter.flush(1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await server.stop(0)


async def test_evidence_is_sent_before_the_rest_of_a_long_coverage_report() -> None:
    hub, spool = RecordingHub(), Spool(None)
    server, port = await serve(hub)
    logged: list[int] = []

    def statuses(_: int) -> Iterator[DeviceStatus]:
        for number in range(2_000):
            if number == 200:
                reporter.report(evidence("a"))
            logged.append(hub.coverage if "a" not in hub.evidence else -1)
            yield DeviceStatus(id=f"d-{number}", zone="a zone with a long name" * 5)

    reporter = Reporter(
        Links(f"127.0.0.1:{port}"), spool, hello=ShardHello, coverage=lambda: Coverage(time_ns=7), statuses=statuses
    )
    task = asyncio.ensure_future(reporter.run())
    await eventually(lambda: len(logged) >= 2_000)
    assert logged[1_999] == -1, "the hub had it before the report was made"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await server.stop(0)


async def test_a_hub_that_does_not_know_canaries_gets_none() -> None:
    hub, spool = RecordingHub(), Spool(None)
    server, port = await serve(hub)
    spool.put(EvidenceItem(id="_canary_1", episode="_canary_", device="_canary_1", level=Level.ALARM.wire))
    reporter = reporter_to(port, spool)
    task = asyncio.ensure_future(reporter.run())
    reporter.report(evidence("a"))
    await eventually(lambda: hub.evidence and not len(spool))
    assert hub.evidence == ["a"]
    assert not reporter.accepts_canaries
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await server.stop(0)


@pytest.mark.parametrize(("devices", "parts"), [(0, 1), (5, 1), (600, 100)])
def test_a_long_coverage_report_is_sent_in_parts_without_loss(devices: int, parts: int) -> None:
    picture = ThermalPicture(celsius=[20.5] * 768)
    coverage = Coverage(
        fleet="f", shard="s", epoch=3, time_ns=7, clock_ns=9, final=True, closed=[ClosedLedger(device="gone")],
    )  # fmt: skip
    split_parts = list(split(coverage, (DeviceStatus(id=f"d-{number}", thermal=picture) for number in range(devices))))
    assert len(split_parts) in range(parts - 2, parts + 2)
    assert [part.more for part in split_parts] == [True] * (len(split_parts) - 1) + [False]
    assert max(part.ByteSize() for part in split_parts) < 2 * PART_BYTES
    assert [status.id for part in split_parts for status in part.devices] == [f"d-{n}" for n in range(devices)]
    assert [part.clock_ns for part in split_parts] == [9] + [0] * (len(split_parts) - 1)
    assert [len(part.closed) for part in split_parts] == [0] * (len(split_parts) - 1) + [1]
    assert {(part.fleet, part.shard, part.epoch, part.time_ns, part.final) for part in split_parts} == {
        ("f", "s", 3, 7, True)
    }


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "127.0.0.1:9"])
async def test_the_hub_is_reached_although_its_name_or_its_address_does_not_work(address: str) -> None:
    hub, spool = RecordingHub(), Spool(None)
    server, port = await serve(hub)
    known = "hub.invalid:50053" if "{port}" in address else f"127.0.0.1:{port}"
    links = Links(known)
    links.hub_found = address.format(port=port)
    hello, coverage = ShardHello(shard="s", epoch=7), Coverage(shard="s")
    reporter = Reporter(links, spool, hello=lambda: hello, coverage=lambda: coverage)
    async with beside(reporter.run(), name="report"):
        reporter.report(evidence("a"))
        await eventually(lambda: hub.evidence == ["a"])
    await server.stop(0)


async def test_reports_that_cannot_be_sent_for_a_moment_are_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, spool = RecordingHub(), Spool(None)
    server, port = await serve(hub)
    read, failing = spool.after, True

    def after(number: int, limit: int = 256) -> Any:
        if failing:
            raise RuntimeError("it cannot be read")
        return read(number, limit)

    monkeypatch.setattr(spool, "after", after)
    async with beside(reporter_to(port, spool).run(), name="report") as task:
        spool.put(evidence("a"))
        await eventually(lambda: len(hub.hellos) > 1)
        failing = False
        await eventually(lambda: hub.evidence == ["a"])
        assert not task.done()
    await server.stop(0)
