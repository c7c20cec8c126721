"""The committer with many producers: every report once, in order, and no caller waits forever."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embereye.hub.access.keeper import add_entry
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.feeds.feed import Entry
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.hub.services.evidence import EvidenceService
from embereye.hub.services.reports import Stream
from embereye.levels import Kind, Level, Sense
from embereye.process.tasks import beside
from embereye.v1.evidence_pb2 import EvidenceItem, ShardHello

PRODUCERS = 16
ADA = Principal("Ada", Role.OPERATOR, "Ada")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    store = StoreThreads(tmp_path)
    made = Hub(store, retention_ns=10**18)
    await made.open()
    task = asyncio.ensure_future(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


def report(hub: Hub, producer: int, number: int) -> EvidenceItem:
    now = hub.timeline.now_ns()
    return EvidenceItem(
        id=f"{producer}/{number}", episode=f"e-{producer}", fleet="default/sensors/hall", device=f"s-{producer}",
        zone=f"zone-{producer}", kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire,
        since_ns=now, until_ns=now,
    )  # fmt: skip


async def test_many_reports_are_acknowledged_once_in_order_within_the_limit(hub: Hub, debugged: bool) -> None:
    hub.inbox.max_pending = limit = 500
    reports = (10_000 if debugged else 50_000) // PRODUCERS
    acknowledged, waited = list[str](), 0

    async def produce(producer: int) -> None:
        nonlocal waited
        for number in range(reports):
            while not hub.inbox.has_room():
                waited += 1
                await hub.inbox.wait_for_room()
            hub.inbox.admit(report(hub, producer, number), acknowledged.append)
            assert hub.inbox.counters.received - len(acknowledged) <= limit
            if number % 64 == producer:
                await asyncio.sleep(0)

    await asyncio.gather(*(produce(producer) for producer in range(PRODUCERS)))
    assert await hub.committer.flush(60)
    assert waited
    assert set(Counter(acknowledged).values()) == {1}
    for producer in range(PRODUCERS):
        mine = [name for name in acknowledged if name.startswith(f"{producer}/")]
        assert mine == [f"{producer}/{number}" for number in range(reports)]
    assert len(hub.zones.messages()) == PRODUCERS


async def test_all_waiting_calls_fail_when_the_database_cannot_be_written(hub: Hub, debugged: bool) -> None:
    # SQLite reports a database at its page limit like a full disk.
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1"))

    def step(draft: Draft) -> None:
        add_entry(draft, ADA, "test", "zone", "long " * 10_000)

    waiting = [asyncio.ensure_future(hub.committer.commit(step)) for _ in range(8)]
    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)
    assert [type(error) for error in ended] == [StoreFailingError] * 8
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1000000"))
    assert await hub.committer.flush(20)
    with contextlib.suppress(StoreFailingError):
        await asyncio.wait_for(hub.committer.commit(step), 20)
    assert not hub.committer.failing


async def test_reading_resumes_when_a_full_inbox_cannot_be_written(hub: Hub, debugged: bool) -> None:
    hub.inbox.max_pending = 1
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1"))
    service, stream = EvidenceService(hub), Stream(ShardHello(fleet="default/sensors/hall", shard="hall-0"))
    seen = report(hub, 1, 1)
    seen.snapshot = b"jpeg" * 10_000
    await service.admit_report(stream, seen, 0)
    async with asyncio.timeout(60):
        await service.admit_report(stream, report(hub, 2, 1), 0)  # the hub has not noticed the full disk yet
    assert stream.resend_due, "the shard has to send it again"
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1000000"))
    assert await hub.committer.flush(60)


async def test_an_alarm_is_published_while_other_pictures_fill_the_inbox(hub: Hub) -> None:
    hub.inbox.max_pending_bytes = 50_000
    hub.committer.retry_seconds = 0.01
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1"))
    service, stream = EvidenceService(hub), Stream(ShardHello(fleet="default/sensors/hall", shard="hall-0"))
    seen, other = report(hub, 1, 1), report(hub, 2, 1)
    seen.snapshot = other.snapshot = b"jpeg" * 15_000
    again = EvidenceItem.FromString(other.SerializeToString())
    with hub.feed.subscribe(0, unstored=True) as subscription:
        async with asyncio.timeout(20):
            await service.admit_report(stream, seen, 0)
            assert [entry.event.zone for entry in await subscription.next()] == ["zone-1"]
            await service.admit_report(stream, other, 0)
            assert [entry.event.zone for entry in await subscription.next()] == ["zone-2"]
            for number in range(2, 5):  # the fire continues
                await service.admit_report(stream, report(hub, 2, number), 0)
                await asyncio.sleep(0.02)
            assert hub.committer.open_reports == 2
    assert stream.resend_due, "the shard has to send it again"
    await hub._store.write(lambda opened: opened.db.execute("PRAGMA max_page_count = 1000000"))
    assert await hub.committer.flush(20)
    await service.admit_report(stream, again, 0)
    assert await hub.committer.flush(20)
    assert stream._durable == ["1/1", "2/1"]
    assert [event.zone for event in await hub.history.events_between(0, 2**62, 10)] == ["zone-1", "zone-2"]


async def test_unstored_events_are_published_at_once_and_later_stored_once(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are published even while the hub connects to a database that does not answer."""
    hub.committer.retry_seconds = 0.01
    zones, acknowledged, connecting, answered = list[str](), list[str](), threading.Event(), threading.Event()

    def fail(store: Store, transaction: object) -> None:
        raise StoreError("no answer")

    def connect_slowly(store: Store) -> None:
        connecting.set()
        answered.wait()

    async def note_unstored(entry: Entry) -> None:
        zones.extend([entry.event.zone] if entry.unstored else [])

    async def listen() -> None:
        with hub.feed.subscribe(0, unstored=True) as subscription:
            while True:
                await subscription.deliver(note_unstored)

    with monkeypatch.context() as fault:
        fault.setattr(Store, "commit", fail)
        fault.setattr(Store, "reconnect", connect_slowly)
        async with beside(listen(), name="listen"), asyncio.timeout(20):
            hub.inbox.admit(report(hub, 1, 1), acknowledged.append)
            while not connecting.is_set():
                await asyncio.sleep(0.01)
            for producer in (2, 3, 2):  # the last report is a duplicate
                hub.inbox.admit(report(hub, producer, 1), acknowledged.append)
                await asyncio.sleep(0.05)
            assert zones == ["zone-1", "zone-2", "zone-3"]
            assert not acknowledged
            fault.undo()
            answered.set()
            assert await hub.committer.flush(10)
    assert sorted(acknowledged) == ["1/1", "2/1", "2/1", "3/1"]
    assert [event.zone for event in await hub.history.events_between(0, 2**62, 10)] == ["zone-1", "zone-2", "zone-3"]
