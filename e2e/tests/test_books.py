"""The harness's own books: an assertion that cannot fail would prove nothing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import eventually
from harness.records.diary import Diary, percentile
from harness.records.page import write_page
from harness.records.probers import EvidenceProber, IngestProber
from harness.records.witness import ENDLESS, Heard, Lit, Witness
from harness.servers.identity import Issuer

from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.identity.credentials import Credentials
from embereye.v1.alarms_pb2 import AlarmEvent, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsServicer, add_AlarmsServicer_to_server
from embereye.v1.ingest_pb2 import Ack, Drain, IngestRequest, IngestResponse, Watermark
from embereye.v1.ingest_pb2_grpc import IngestServicer, add_IngestServicer_to_server


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path, lambda _: None)


def alarm(cursor: int, zone: str) -> Heard:
    state = ZoneState.ZONE_STATE_ALARM
    return Heard(cursor, AlarmEvent(cursor=cursor, zone=zone, type=AlarmEvent.TYPE_STATE, state=state))


def prober(diary: Diary, acks: list[float]) -> IngestProber:
    return IngestProber("g-1", "", diary, acks)


def test_a_lost_and_a_doubled_alarm_are_told_apart(diary: Diary) -> None:
    witness = Witness("", diary)
    witness.heard = [alarm(1, "one"), alarm(2, "two"), alarm(3, "two"), alarm(4, "other")]
    assert witness.miscounted(["one", "two", "none"]) == (["none"], ["two"])


@pytest.mark.parametrize(
    ("raised", "lost", "doubled"),
    [
        ([15, 25], [], []),
        ([15], ["one"], []),
        ([25], ["one"], []),
        ([15, 16, 25], [], ["one"]),
        ([15, 16], ["one"], ["one"]),  # two of the first time make up for none of the second
        ([15, 25, 35], [], ["one"]),
    ],
)
def test_where_it_burns_again_each_time_has_an_alarm_of_its_own(
    diary: Diary, raised: list[int], lost: list[str], doubled: list[str]
) -> None:
    witness = Witness("", diary)
    witness.heard = [alarm(time_ns, "one") for time_ns in raised]
    assert witness.miscounted_lit([Lit("one", 10, 20), Lit("one", 20)]) == (lost, doubled)
    assert [heard.time_ns for heard in witness.alarms("one", 20)] == [at for at in raised if at >= 20]


def test_a_sign_has_its_zone_until_the_next_one_is_sent_there(diary: Diary, tmp_path: Path) -> None:
    prober = EvidenceProber(
        "", "default", diary, Credentials(Issuer(tmp_path).folder(EvidenceProber.identity("default"))), zones=2
    )
    items = [prober._next() for _ in range(3)]
    first, second, again = (item.id for item in items)
    assert prober.sent[first] == prober.sent[again] != prober.sent[second]
    assert len({item.id for item in items}) == 3
    assert prober.lit([first, second]) == [
        Lit(items[0].zone, items[0].since_ns, items[2].since_ns),
        Lit(items[1].zone, items[1].since_ns, ENDLESS),
    ]


@pytest.mark.parametrize(
    ("cursors", "broken"),
    [([1, 2, 3], []), ([1, 3], ["2 to 2 never came"]), ([1, 2, 2], ["2 came after 2"]), ([2], ["1 to 1 never came"])],
)
def test_cursors_without_a_gap_and_a_repeat_are_sound(diary: Diary, cursors: list[int], broken: list[str]) -> None:
    witness = Witness("", diary)
    witness.heard = [alarm(cursor, "zone") for cursor in cursors]
    assert witness.broken_cursors() == broken


class Shard(IngestServicer):
    """Acknowledges what it is sent, but for the second batch of a stream where `drains` are its answer to that."""

    def __init__(self) -> None:
        self.drains: list[Drain] = []
        self.streams = 0

    async def TakeOver(self, request: object, context: object) -> Any:
        raise AssertionError("no prober asks for it")

    async def Stream(self, requests: AsyncIterator[IngestRequest], context: object) -> AsyncIterator[IngestResponse]:
        self.streams += 1
        first = True
        async for request in requests:
            if self.drains and not first:
                for drain in self.drains:
                    yield IngestResponse(drain=drain)
                continue
            first = False
            for batch in request.devices:
                mark = Watermark(device=batch.device, epoch=batch.epoch, sequence=batch.readings[-1].sequence)
                yield IngestResponse(ack=Ack(watermarks=[mark]))


@pytest.mark.parametrize("named", [True, False])
async def test_a_prober_follows_a_redirect_with_its_unacknowledged_readings(diary: Diary, named: bool) -> None:
    home, owner = Shard(), Shard()
    servers = [
        GrpcServer([Service(add_IngestServicer_to_server, shard, "embereye.v1.Ingest")]) for shard in (home, owner)
    ]
    here, there = (f"127.0.0.1:{server.listen('127.0.0.1:0')}" for server in servers)
    home.drains = [Drain(target=there, devices=["g-1"])] if named else []
    home.drains.append(Drain(reason="this shard is going away"))
    for server in servers:
        await server.start()
    prober = IngestProber("g-1", here, diary)
    running = asyncio.create_task(prober.run())
    try:
        await prober.well(20)
        await eventually(lambda: owner.streams if named else home.streams > 1, 20)
        home.drains.clear()
        await prober.well(20)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await asyncio.gather(*(server.stop() for server in servers))
    assert (home.streams, owner.streams) == ((1, 1) if named else (home.streams, 0))
    assert prober.moved(0.0, prober.acks[-1]) == max(late for _, late in prober.moves) > 0
    assert prober.taken_back == []


async def test_a_prober_that_is_cancelled_as_there_is_news_ends(diary: Diary) -> None:
    server = GrpcServer([Service(add_IngestServicer_to_server, Shard(), "embereye.v1.Ingest")])
    prober = IngestProber("g-1", f"127.0.0.1:{server.listen('127.0.0.1:0')}", diary)
    await server.start()
    running = asyncio.create_task(prober.run())
    try:
        await prober.well(20)
        while prober._news.is_set():
            await asyncio.sleep(0)
        prober._news.set()
        running.cancel()
        await asyncio.wait({running}, timeout=5)
        assert running.cancelled()
    finally:
        running.cancel()
        await asyncio.wait({running})
        await server.stop()


@pytest.mark.parametrize(
    ("acks", "gap"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0], 1.0),
        ([0.0, 1.0, 3.5, 4.0], 2.5),  # within
        ([0.0, 3.9], 3.9),  # begun before the event
        ([0.0, 1.1, 1.5], 2.5),  # not over yet
        ([], 3.0),
    ],
)
def test_a_gap_counts_from_the_last_acknowledgement_before_to_now(diary: Diary, acks: list[float], gap: float) -> None:
    assert prober(diary, acks).gap(1.0, 4.0) == pytest.approx(gap)


@pytest.mark.parametrize(
    ("cuts", "since", "gap"),
    [
        ([], None, 0.0),
        ([(0.5, 1.5), (2.0, 2.2)], None, 1.0),
        ([(0.5, 0.9), (4.5, 9.0)], None, 0.0),  # before and after
        ([(2.0, 2.2)], 2.5, 1.5),  # not over yet
    ],
)
def test_a_feeds_gap_is_from_a_cut_to_the_next_subscription(
    diary: Diary, cuts: list[tuple[float, float]], since: float | None, gap: float
) -> None:
    witness = Witness("", diary)
    witness._cuts, witness._cut = cuts, since
    assert witness.gap(1.0, 4.0) == pytest.approx(gap)


class Feed(AlarmsServicer):
    """A feed of one alarm and then signs of life, until its server stops."""

    async def Subscribe(self, request: object, context: Any) -> AsyncIterator[AlarmEvent]:
        await context.send_initial_metadata(())
        yield alarm(1, "one").event
        while True:
            yield AlarmEvent(type=AlarmEvent.TYPE_ALIVE)
            await asyncio.sleep(0.05)


async def test_a_witness_has_no_feed_while_there_is_no_hub(diary: Diary) -> None:
    def serve(address: str) -> tuple[GrpcServer, int]:
        feed = Feed()  # type: ignore[abstract]  # a witness needs no more of a hub
        server = GrpcServer([Service(add_AlarmsServicer_to_server, feed, "embereye.v1.Alarms")])
        return server, server.listen(address)

    first, port = serve("127.0.0.1:0")
    await first.start()
    witness = Witness(f"127.0.0.1:{port}", diary)
    running = asyncio.create_task(witness.run())

    async def connected(times: int) -> float:
        await eventually(lambda: witness.connections >= times, 20)
        return time.monotonic()

    try:
        began = await connected(1)
        assert witness.gap(began, time.monotonic()) == 0.0
        stopped = time.monotonic()
        await first.stop()
        second, _ = serve(f"127.0.0.1:{port}")
        await second.start()
        again = await connected(2)
        assert 0.0 < witness.gap(began, again) <= again - stopped
        assert witness.gap(again, time.monotonic()) == 0.0
        await second.stop()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def test_a_watermark_that_falls_is_held_against_the_shard(diary: Diary) -> None:
    sender = prober(diary, [])
    sender._acknowledge(sender._epoch, 5)
    sender._acknowledge(sender._epoch, 5)
    assert sender.taken_back == []
    sender._acknowledge(sender._epoch, 4)
    assert sender.taken_back == ["g-1: 5 was acknowledged, then only 4"]
    assert sender.watermark == 5


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.95), percentile(values, 0.5), percentile([7.0], 0.95)) == (95.0, 50.0, 7.0)


def test_a_failed_step_and_an_exceeded_limit_are_on_the_page(diary: Diary) -> None:
    diary.measure("gap", 12, "s", 10)
    with pytest.raises(ZeroDivisionError), diary.step("a <step>"):
        raise ZeroDivisionError("by zero")
    diary.close()
    page = write_page(diary).read_text()
    assert "a &lt;step&gt;" in page
    assert "ZeroDivisionError: by zero" in page
    assert "EXCEEDED" in diary.table()[0]
    assert "http" not in page
