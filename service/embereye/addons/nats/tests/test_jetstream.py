"""A hub in this process and a real nats-server: acknowledgements, duplicates and recovery."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.need import NATS
from harness.servers.certificates import SiteAuthority
from harness.servers.nats import PASSWORD, USER, Nats
from harness.stored import Stored
from nats.aio.client import Client

from embereye.addons.nats import jetstream
from embereye.addons.nats.connection import BusError, Connection, dial
from embereye.addons.nats.consumer import Consumer, Delivered
from embereye.addons.nats.intake import StreamIntake
from embereye.addons.nats.jetstream import JetStreamBus
from embereye.addons.nats.options import BusOptions, read_bus
from embereye.addons.nats.stream import Stream
from embereye.hub.evidence_bus import Outgoing
from embereye.hub.hub import Hub
from embereye.hub.report_key import report_key
from embereye.hub.tables.consumed import Position
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.addresses import free_ports
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.units import MINUTE
from embereye.v1.evidence_pb2 import EvidenceItem

pytestmark = pytest.mark.needs(NATS)


def smoke(name: str) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=name, episode=name, fleet="default/sensors/hall", device=name, zone=name, kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def running(stored: Stored, options: BusOptions) -> AsyncIterator[tuple[Hub, JetStreamBus]]:
    """Run a hub and its bus; both end abruptly, as when killed."""
    threads = stored.threads()
    hub = Hub(threads, retention_ns=10**18)
    await hub.open()
    bus = JetStreamBus(options, StreamIntake(hub, options.stream))
    async with beside(hub.run(), name="hub"), beside(bus.run(), name="bus") as serving:
        yield hub, bus
        assert not serving.done()
    await threads.close()


class Sender:
    """Publishes reports and records their outcome."""

    def __init__(self, bus: JetStreamBus) -> None:
        self._bus = bus
        self.published: list[str] = []
        self.failed: list[str] = []

    async def send(self, *items: EvidenceItem, at_ns: int = 0) -> bool:
        offered = [
            await self._bus.offer(
                Outgoing(item, self.published.append, lambda item: self.failed.append(item.id)), at_ns or now_ns()
            )
            for item in items
        ]
        return all(offered)


def evidence_of(stored: Stored) -> list[str]:
    return sorted(row[0] for row in stored.query("SELECT id FROM evidence"))


@contextlib.asynccontextmanager
async def connected(options: BusOptions) -> AsyncIterator[Connection]:
    connection = await dial(options)
    yield connection
    await connection.close()


@pytest.fixture
def options(own_nats: Nats) -> BusOptions:
    return read_bus(own_nats.address)


@pytest.mark.parametrize("call", ["connect", "subscribe", "request"])
async def test_the_bus_ends_even_if_the_library_swallows_its_cancellation(
    options: BusOptions, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The library uses `asyncio.wait_for`, which can swallow a cancellation."""
    make, called = getattr(Client, call), asyncio.Event()

    async def swallow(*arguments: object, **options: object) -> object:
        answer = await make(*arguments, **options)
        called.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(2)
        return answer

    monkeypatch.setattr(Client, call, swallow)
    running = asyncio.ensure_future(JetStreamBus(options).run())
    async with asyncio.timeout(10):
        await called.wait()
        running.cancel()
        await asyncio.wait({running})
    assert running.cancelled()


async def test_a_report_in_the_stream_counts_once_over_resends_and_redeliveries(
    stored: Stored, options: BusOptions
) -> None:
    async with running(stored, options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        assert await sender.send(*(smoke(f"r-{n}") for n in range(50)))
        assert await sender.send(smoke("r-7"), smoke("r-8"))  # resent, because the shard got no acknowledgement
        await eventually(lambda: hub.feed.latest == 50)
        await eventually(lambda: len(sender.published) == 52)
        assert sender.failed == []
    async with running(stored, options) as (hub, bus):  # continues after the committed position
        assert [(position.stream, position.sequence) for position in hub.inbox.consumed] == [("embereye", 50)]
        await eventually(lambda: not bus.failing)
        await Sender(bus).send(smoke("next"))
        await eventually(lambda: hub.feed.latest == 51)
        assert hub.inbox.counters.received == 1
    stored.query("SELECT 1")
    async with connected(options) as connection:
        state = await Stream(connection, options, now_ns).prepare()
        assert (state.messages, state.last) == (51, 51)
    assert len(evidence_of(stored)) == 51


async def test_reports_published_without_a_consumer_are_consumed_with_their_age(
    stored: Stored, options: BusOptions
) -> None:
    publishing = JetStreamBus(options)  # a replica that does not own the database
    async with beside(publishing.run(), name="publish"):
        await eventually(lambda: not publishing.failing)
        sender = Sender(publishing)
        began = time.monotonic_ns()
        await sender.send(smoke("waiting"), at_ns=now_ns())
        await eventually(lambda: sender.published == ["waiting"])
    taken_at = time.monotonic_ns()
    await asyncio.sleep(1.5)
    taken = list[EvidenceItem]()
    threads = stored.threads()
    hub = Hub(threads, retention_ns=10**18)
    await hub.open()
    # The hub's timeline is hours ahead; only ages count.
    hub.timeline.resume(now_ns() + 300 * MINUTE)
    admit = hub.inbox.admit
    hub.inbox.admit = lambda item, *more: (taken.append(item), admit(item, *more))[1]  # type: ignore[method-assign]
    bus = JetStreamBus(options, StreamIntake(hub, options.stream))
    consumed_at = time.monotonic_ns()
    async with beside(hub.run(), name="hub"), beside(bus.run(), name="bus"):
        await eventually(lambda: hub.feed.latest == 1)
        age = hub.timeline.now_ns() - taken[0].until_ns
        assert consumed_at - taken_at < age < time.monotonic_ns() - began
    await threads.close()


async def test_a_stream_that_was_lost_or_truncated_is_read_from_its_start(stored: Stored, options: BusOptions) -> None:
    async with running(stored, options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        await Sender(bus).send(smoke("a"), smoke("b"), smoke("c"))
        await eventually(lambda: hub.feed.latest == 3)
    async with connected(options) as connection:
        await connection.call("STREAM.DELETE.embereye")
    publishing = JetStreamBus(options)
    async with beside(publishing.run(), name="publish"):
        await eventually(lambda: not publishing.failing)
        sender = Sender(publishing)
        await sender.send(*map(smoke, "cdefg"))  # the third message gets a sequence that another one had
        await eventually(lambda: len(sender.published) == 5)
    async with running(stored, options) as (hub, bus):
        await eventually(lambda: hub.feed.latest == 7)
        assert hub.inbox.counters.duplicate == 1
    assert evidence_of(stored) == sorted(report_key(smoke(name)) for name in "abcdefg")


async def test_reports_enter_the_stream_while_the_database_is_away(
    stored_apart: Stored, own_postgres: object, options: BusOptions
) -> None:
    from harness.servers.postgres import Postgres

    assert isinstance(own_postgres, Postgres)
    async with running(stored_apart, options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        await sender.send(smoke("before"))
        await eventually(lambda: hub.feed.latest == 1)
        await asyncio.to_thread(own_postgres.stop)
        await sender.send(*(smoke(f"r-{n}") for n in range(20)))
        await eventually(lambda: len(sender.published) == 21)
        await eventually(lambda: hub.zones.states().get(("default", "r-19")) == ZoneState.ALARM)
        assert hub.feed.latest == 1
        await asyncio.to_thread(own_postgres.start)
        await eventually(lambda: hub.feed.latest == 21)
    assert len(evidence_of(stored_apart)) == 21


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_an_unacknowledged_report_fails_and_the_bus_reconnects(
    tmp_path: Path, own_nats: Nats, options: BusOptions, fault: str
) -> None:
    async with running(Stored(tmp_path), options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        if fault == "killed":
            own_nats.stop(signal.SIGKILL)
        else:
            own_nats.freeze()
        if await sender.send(smoke("a")):
            await eventually(lambda: sender.failed == ["a"])
        await eventually(lambda: bus.failing)
        assert not await sender.send(smoke("b")), "senders do not wait"
        if fault == "killed":
            own_nats.start()
        else:
            own_nats.freeze(frozen=False)
        await eventually(lambda: not bus.failing)
        assert await sender.send(smoke("c"))
        await eventually(lambda: ("default", "c") in hub.zones.states())
        assert sender.published[-1] == "c"
        assert bus.failures >= 1


async def test_a_server_that_reads_nothing_does_not_block_senders(
    tmp_path: Path, own_nats: Nats, options: BusOptions
) -> None:
    pictures = [smoke(f"r-{number}") for number in range(40)]
    for item in pictures:
        item.snapshot = bytes(700_000)
    async with running(Stored(tmp_path), options) as (_, bus):
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        own_nats.freeze()
        assert await sender.send(*pictures)
        await eventually(lambda: len(sender.failed) == len(pictures))
        own_nats.freeze(frozen=False)


async def test_a_hub_can_end_at_the_moment_in_which_nats_ends(
    options: BusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Connection] = []

    async def noted_dial(options: BusOptions) -> Connection:
        connections.append(await dial(options))
        return connections[-1]

    monkeypatch.setattr(jetstream, "dial", noted_dial)
    bus = JetStreamBus(options)
    running = asyncio.ensure_future(bus.run())
    await eventually(lambda: not bus.failing)
    connections[-1].lost.set()
    running.cancel()
    await eventually(running.done)
    assert running.cancelled()


async def test_a_stall_of_the_hub_does_not_break_the_connection(
    tmp_path: Path, own_nats: Nats, options: BusOptions
) -> None:
    async with running(Stored(tmp_path), options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        assert await sender.send(smoke("a"))
        time.sleep(5)  # noqa: ASYNC251 -- the hub stalls for longer than the server may be silent
        await eventually(lambda: ("default", "a") in hub.zones.states())
        await asyncio.sleep(1)
        assert (bus.failures, bus.failing, sender.published) == (0, "", ["a"])


async def test_a_full_or_unfit_stream_accepts_nothing_and_says_why(tmp_path: Path, options: BusOptions) -> None:
    small = replace(options, stream="small")
    async with connected(options) as connection:
        config = {"name": "small", "subjects": ["small.evidence"], "storage": "file", "max_msgs": 1, "discard": "new"}
        await connection.call("STREAM.CREATE.small", config)
        await connection.call(
            "STREAM.CREATE.orders", {"name": "orders", "subjects": ["orders.evidence"], "storage": "memory"}
        )
    publishing = JetStreamBus(small)
    async with beside(publishing.run(), name="publish"):
        await eventually(lambda: not publishing.failing)
        sender = Sender(publishing)
        await sender.send(smoke("a"), smoke("b"))
        await eventually(lambda: sender.failed == ["b"])
        assert "maximum messages exceeded" in publishing.failing
    async with running(Stored(tmp_path), small) as (hub, _):  # a consumer can still empty it
        await eventually(lambda: hub.feed.latest == 1)
    unfit = JetStreamBus(replace(options, stream="orders"))
    async with beside(unfit.run(), name="unfit"):
        await eventually(lambda: "is stored in memory" in unfit.failing)


async def test_consumed_messages_are_removed_some_time_later(
    tmp_path: Path, options: BusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "TIDY_SECONDS", 0.2)
    async with running(Stored(tmp_path), options) as (hub, bus), connected(options) as connection:
        stream = Stream(connection, options, now_ns)
        await eventually(lambda: not bus.failing)
        await Sender(bus).send(*(smoke(f"r-{n}") for n in range(5)))
        await eventually(lambda: hub.feed.latest == 5)
        async with asyncio.timeout(10):
            while (await stream.prepare()).first != 5:  # the last message stays and identifies the stream
                await asyncio.sleep(0.05)
    async with running(Stored(tmp_path), options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        await Sender(bus).send(smoke("next"))
        await eventually(lambda: hub.feed.latest == 6)
        assert hub.inbox.counters.received == 1


class Stuck:
    """A reader with the position of an earlier stream, which accepts no messages."""

    admitted = committed = Position("embereye", 3, "of the earlier stream")

    async def wait_for_room(self) -> None:
        await asyncio.Event().wait()

    def accept(self, delivered: Delivered, age_ns: int | None) -> None:
        raise AssertionError("no message was requested")


async def test_unconsumed_messages_stay_in_a_stream_that_was_created_again(
    options: BusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "TIDY_SECONDS", 0.1)
    bus = JetStreamBus(options, Stuck())
    async with beside(bus.run(), name="bus"), connected(options) as connection:
        await eventually(lambda: not bus.failing)
        sender = Sender(bus)
        await sender.send(*(smoke(f"r-{n}") for n in range(5)))
        await eventually(lambda: len(sender.published) == 5)
        await asyncio.sleep(0.5)
        assert (await Stream(connection, options, now_ns).prepare()).messages == 5


async def test_waiting_messages_are_counted_before_they_are_read(options: BusOptions) -> None:
    publishing = JetStreamBus(options)
    async with beside(publishing.run(), name="publish"):
        await eventually(lambda: not publishing.failing)
        sender = Sender(publishing)
        await sender.send(*(smoke(f"r-{n}") for n in range(5)))
        await eventually(lambda: len(sender.published) == 5)
    reading = JetStreamBus(options, Stuck())
    async with beside(reading.run(), name="read"):
        await eventually(lambda: not reading.failing)
        assert reading.pending == 5


async def test_an_unreadable_stream_acknowledges_nothing(
    tmp_path: Path, options: BusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Consumer, after: int) -> None:
        raise BusError(f"reading after {after} is not allowed")

    monkeypatch.setattr(Consumer, "begin", refuse)
    async with running(Stored(tmp_path), options) as (_, bus):
        await eventually(lambda: bus.failures >= 3)
        assert not await Sender(bus).send(smoke("a"))
        assert "is not allowed" in bus.failing


async def test_a_secret_that_is_not_text_does_not_end_the_hub(tmp_path: Path, options: BusOptions) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"\xff\xfe\x00")
    async with running(Stored(tmp_path), replace(options, credentials=tmp_path)) as (hub, bus):
        await eventually(lambda: bus.failures >= 2)
        assert bus.failing
        token.write_text("a-token")
        await eventually(lambda: not bus.failing)
        assert await Sender(bus).send(smoke("a"))
        await eventually(lambda: hub.feed.latest == 1)


async def test_a_picture_that_is_too_large_for_nats_is_removed_from_its_report(
    tmp_path: Path, options: BusOptions
) -> None:
    async with running(Stored(tmp_path), options) as (hub, bus):
        await eventually(lambda: not bus.failing)
        large = smoke("large")
        large.snapshot = bytes(3 << 20)
        sender = Sender(bus)
        await sender.send(large)
        await eventually(lambda: sender.published == ["large"])
        await eventually(lambda: hub.feed.latest == 1)
    assert large.snapshot, "the caller's report is unchanged"


async def test_secrets_are_read_for_each_attempt_and_need_tls_if_requested(
    tmp_path: Path,
) -> None:
    authority = SiteAuthority(tmp_path / "authority")
    certificate = authority.issue("nats", alternatives=["127.0.0.1"])
    login = tmp_path / "login"
    login.mkdir()
    (login / "username").write_text(USER)
    (login / "password").write_text("wrong")
    server, plain = (
        Nats(tmp_path / "nats", login=True, certificates=certificate.folder),
        Nats(tmp_path / "plain", login=True),
    )
    server.start()
    plain.start()
    try:
        options = read_bus(server.address, credentials=login, certificates=certificate.folder)
        bus = JetStreamBus(options)
        async with beside(bus.run(), name="bus"):
            await eventually(lambda: "Authorization Violation" in bus.failing)
            (login / "password").write_text(PASSWORD)
            await eventually(lambda: not bus.failing)
        misled = JetStreamBus(replace(options, servers=[f"tls://127.0.0.1:{plain.port}"]))
        async with beside(misled.run(), name="misled"):
            await eventually(lambda: "does not speak TLS" in misled.failing)
    finally:
        server.stop()
        plain.stop()


async def test_a_message_that_is_not_a_report_is_skipped(tmp_path: Path, options: BusOptions) -> None:
    async with running(Stored(tmp_path), options) as (hub, bus), connected(options) as connection:
        await eventually(lambda: not bus.failing)
        await connection.publish(options.subject, json.dumps({"hello": 1}).encode())
        await connection.publish(options.subject)
        await Sender(bus).send(smoke("a"))
        await eventually(lambda: hub.feed.latest == 1)
        assert hub.inbox.counters.unusable == 2


@pytest.mark.slow
async def test_a_stream_on_three_servers_survives_the_loss_of_each(tmp_path: Path) -> None:
    ports = free_ports(3)
    servers = [
        Nats(tmp_path / f"nats-{number}", cluster=[*ports[number:], *ports[:number]]) for number in range(len(ports))
    ]
    for server in servers:
        server.start()
    options = read_bus(",".join(server.address for server in servers), copies=3)
    names = [f"r-{n}" for n in range(1_000)]
    try:
        async with running(Stored(tmp_path), options) as (hub, bus):
            await eventually(lambda: not bus.failing, 30)
            sender = Sender(bus)

            async def report() -> None:
                while owed := [name for name in names if name not in sender.published][:10]:  # as shards do
                    await sender.send(*map(smoke, owed))
                    await asyncio.sleep(0.1)

            async with beside(report(), name="report") as reporting:
                for server in servers:
                    before = hub.feed.latest
                    server.stop(signal.SIGKILL)
                    began = time.monotonic()
                    while hub.feed.latest <= before < len(names):
                        assert time.monotonic() < began + 60
                        assert not reporting.done() or hub.feed.latest == len(names)
                        await asyncio.sleep(0.02)
                    server.start()
                    await eventually(lambda: not bus.failing, 30)
                await asyncio.wait_for(reporting, 60)
            await eventually(lambda: set(evidence_of(Stored(tmp_path))) == set(names))
            assert hub.feed.latest == len(names)
    finally:
        for server in servers:
            server.stop(signal.SIGKILL)
