"""The gRPC services in this process, for tests that need both ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.hub.coverage.skew import Skew
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.feeds.feed import LAG
from embereye.hub.hub import Hub
from embereye.hub.roles import CALLER, Principal, Role
from embereye.hub.services.access import AccessCheck
from embereye.hub.services.alarms import AlarmsService, RosterService
from embereye.hub.services.evidence import EvidenceService
from embereye.hub.services.feed import add_alarms
from embereye.hub.services.reports import Stream
from embereye.hub.timeline import put_on_timeline
from embereye.levels import Kind, Level, ZoneState
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.tasks import beside
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import (
    ActionRequest,
    AlarmEvent,
    FollowRequest,
    FollowResponse,
    HistoryRequest,
    ListSubscriptionsRequest,
    RemoveSubscriptionRequest,
    Selection,
    StoreSubscriptionRequest,
    SubscribeRequest,
    ZonesRequest,
)
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import (
    CanaryFire,
    CanaryPlan,
    ClosedLedger,
    Coverage,
    DeviceStatus,
    EvidenceItem,
    Ledger,
    ReportRequest,
    ReportResponse,
    ShardHello,
)
from embereye.v1.evidence_pb2_grpc import EvidenceStub, add_EvidenceServicer_to_server
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, HeardRequest, HeardResponse
from embereye.v1.roster_pb2_grpc import RosterStub, add_RosterServicer_to_server
from embereye.v1.types_pb2 import Device
from embereye.zone.canary import PREFIX

from .running import running

TOKEN = "an-admins-token-of-forty-characters-or-so"


async def serve(hub: Hub, *, control: bool = False) -> tuple[GrpcServer, int]:
    server = GrpcServer(
        [
            Service(add_alarms, AlarmsService(hub), "embereye.v1.Alarms"),
            Service(add_EvidenceServicer_to_server, EvidenceService(hub), "embereye.v1.Evidence"),
            Service(add_RosterServicer_to_server, RosterService(hub), "embereye.v1.Roster"),
        ],
        interceptors=[] if control else [AccessCheck(hub.access)],
        control=control,
    )
    hub.access.set_admin_token(TOKEN)
    port = server.listen("127.0.0.1:0")
    await server.start()
    return server, port


def smoke(name: str) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=name, fleet="default/sensors/s", device="s-1", zone="hall", until_ns=now, since_ns=now,
        kind=Kind.SMOKE.wire, level=Level.ALARM.wire,
    )  # fmt: skip


@dataclass
class Hubs:
    """A hub in this process, and channels to both of its ports."""

    hub: Hub
    people: grpc.aio.Channel
    control: grpc.aio.Channel


async def report(link: grpc.aio.Channel, item: EvidenceItem) -> None:
    call = EvidenceStub(link).Report(timeout=20)
    await call.write(ReportRequest(hello=ShardHello(fleet=item.fleet, shard="s-0")))
    await call.write(ReportRequest(evidence=item))
    async for response in call:
        if item.id in response.acknowledged:
            break
    call.cancel()


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Hubs]:
    store = StoreThreads(tmp_path)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    task = asyncio.ensure_future(hub.run())
    (people_server, port), (control_server, control) = await serve(hub), await serve(hub, control=True)
    async with channel(f"127.0.0.1:{port}", token=TOKEN) as people, channel(f"127.0.0.1:{control}") as opened:
        yield Hubs(hub, people, opened)
    await people_server.stop(0)
    await control_server.stop(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


async def test_a_cursor_from_the_future_is_refused(link: Hubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await AlarmsStub(link.people).Subscribe(SubscribeRequest(cursor=99), timeout=10).read()
    assert caught.value.code() == grpc.StatusCode.OUT_OF_RANGE
    assert caught.value.details() == "cursor 99 is newer than the newest event, 0. Start again with cursor 0."


async def test_after_a_future_cursor_there_is_no_history(link: Hubs) -> None:
    await report(link.control, smoke("e1"))
    for newest in (False, True):
        request = HistoryRequest(after=2**64 - 1, newest=newest)
        page = await AlarmsStub(link.people).History(request, timeout=10)
        assert (len(page.events), page.next) == (0, 0)


async def test_one_address_cannot_take_every_feed(link: Hubs) -> None:
    link.hub.feed.max_per_address = 1
    first = AlarmsStub(link.people).Subscribe(SubscribeRequest(live_only=True), timeout=10)
    await first.initial_metadata()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await AlarmsStub(link.people).Subscribe(SubscribeRequest(live_only=True), timeout=10).read()
    first.cancel()
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "1 subscribers are connected from 127.0.0.1, which is the maximum per address"


async def test_people_acknowledge_and_reset_or_are_refused_with_a_reason(link: Hubs) -> None:
    await report(link.control, smoke("e1"))
    alarms = AlarmsStub(link.people)

    async def refusal(call: grpc.aio.UnaryUnaryCall[ActionRequest, AlarmEvent]) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code(), caught.value.details() or ""

    ask = ActionRequest(namespace="default", zone="hall", who="Ada")
    nobody = ActionRequest(namespace="default", zone="hall", who="x" * 201)
    nowhere = ActionRequest(namespace="default", zone="attic", who="Ada")
    code, sentence = await refusal(alarms.Acknowledge(nobody, timeout=10))
    assert (code, "at most 200" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    code, sentence = await refusal(alarms.Acknowledge(nowhere, timeout=10))
    assert (code, "no zone default/attic" in sentence) == (grpc.StatusCode.NOT_FOUND, True)
    code, sentence = await refusal(alarms.Reset(ask, timeout=10))
    assert (code, "acknowledge it before" in sentence) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    acknowledged = await alarms.Acknowledge(ask, timeout=10)
    assert (acknowledged.state, acknowledged.who) == (ZoneState.ACKNOWLEDGED, "Ada (admin)")
    reset = await alarms.Reset(ask, timeout=10)
    assert (reset.state, reset.alarm) == (ZoneState.NORMAL, acknowledged.alarm)
    assert not (await alarms.Zones(ZonesRequest(), timeout=10)).zones, "an undeclared zone without signs disappears"


async def test_the_answer_to_a_roster_has_the_fleets_ledger(
    link: Hubs,
) -> None:
    declared = [Device(id="s-1", zone="hall")]
    roster = FleetRoster(fleet="default/sensors/s", epoch=1, deadline_ns=5_000_000_000, devices=declared)
    assert not (await RosterStub(link.control).Set(roster, timeout=10)).HasField("ledger")
    call = EvidenceStub(link.control).Report(timeout=10)
    await call.write(ReportRequest(hello=ShardHello(fleet=roster.fleet, shard="s-0")))
    ledger = Ledger(offered=9, analysed=4, duplicate=2, shed={"overflow": 1, "compacted": 1}, rejected={"bad frame": 1})
    device = DeviceStatus(id="s-1", zone="hall", covered=True, ledger=ledger)
    await call.write(
        ReportRequest(coverage=Coverage(fleet=roster.fleet, shard="s-0", time_ns=time.time_ns(), devices=[device]))
    )
    async with asyncio.timeout(10):
        while not (response := await RosterStub(link.control).Set(roster, timeout=10)).HasField("ledger"):
            await asyncio.sleep(0.01)
    call.cancel()
    totals = response.ledger
    assert totals == FleetLedger(offered=9, analysed=4, shed=2, duplicate=2, rejected=1, time_ns=totals.time_ns)


async def test_the_operator_learns_which_shards_report_and_nothing_after_a_stall(link: Hubs) -> None:
    async def heard() -> list[tuple[str, str]]:
        response = await RosterStub(link.control).Heard(HeardRequest(), timeout=10)
        assert all(0 <= shard.silent_ns <= response.listening_ns for shard in response.shards)
        return [(shard.fleet, shard.shard) for shard in response.shards]

    assert await heard() == []
    call = EvidenceStub(link.control).Report(timeout=60)
    await call.write(ReportRequest(hello=ShardHello(fleet="default/sensors/s", shard="s-0")))
    await call.write(ReportRequest(coverage=Coverage(fleet="default/sensors/s", shard="s-0", time_ns=time.time_ns())))
    async with asyncio.timeout(10):
        while not (shards := await heard()):
            await asyncio.sleep(0.01)
    assert shards == [("default/sensors/s", "s-0")]
    time.sleep(2)  # noqa: ASYNC251 -- the hub is in this process and hears nobody meanwhile
    assert await RosterStub(link.control).Heard(HeardRequest(), timeout=10) == HeardResponse()
    call.cancel()


async def test_a_stream_that_does_not_start_with_hello_is_refused(link: Hubs) -> None:
    call = EvidenceStub(link.control).Report(timeout=10)
    await call.write(ReportRequest(evidence=smoke("e1")))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not (await AlarmsStub(link.people).Zones(ZonesRequest(), timeout=10)).zones


async def test_a_shard_that_leaves_during_a_write_is_no_error() -> None:
    class Gone:
        async def write(self, _: object) -> None:
            raise grpc.aio.InternalError('Failed "execute_batch"')

    stream: Any = Stream(ShardHello(fleet="default/sensors/hall", shard="hall-0"))
    async with beside(EvidenceService._acknowledge(stream, Gone()), name="write") as writing:  # type: ignore[arg-type]
        await asyncio.wait({writing})
    assert writing.exception() is None


async def test_a_shard_learns_why_its_reports_are_not_acknowledged(link: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(store: Store, transaction: object) -> None:
        raise StoreError("database or disk is full")

    coverage = ReportRequest(coverage=Coverage(fleet="default/sensors/s", shard="s-0"))
    call = EvidenceStub(link.control).Report(timeout=20)

    async def cover() -> None:
        while True:
            await call.write(coverage)
            await asyncio.sleep(0.02)

    with monkeypatch.context() as fault:
        fault.setattr(Store, "commit", full)
        await call.write(ReportRequest(hello=ShardHello(fleet="default/sensors/s", shard="s-0")))
        await call.write(ReportRequest(evidence=smoke("e1")))
        async with beside(cover(), name="cover"):
            why = "the hub cannot write its database: database or disk is full"
            assert await _failing(call, why) == [why], "once"
            fault.undo()
            assert await _failing(call, "") == [""]
    call.cancel()


async def _failing(call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]", latest: str) -> list[str]:
    """Read what the hub reports about its failing, up to `latest`."""
    reasons = list[str]()
    async for response in call:
        if response.HasField("failing"):
            reasons.append(response.failing)
            if response.failing == latest:
                break
    return reasons


async def test_a_subscriber_that_does_not_read_is_ended_with_its_cursor(tmp_path: Path) -> None:
    hub = Hub(StoreThreads(tmp_path), retention_ns=10**15)
    server, port = await serve(hub)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, 0)
        link = await stack.enter_async_context(channel(f"127.0.0.1:{port}", token=TOKEN))
        call = AlarmsStub(link).Subscribe(SubscribeRequest(live_only=True), timeout=60)
        await call.initial_metadata()
        for cursor in range(1, 4 * LAG):
            hub.feed.publish([AlarmEvent(cursor=cursor, why="x" * 4_000)])
            if cursor % 100 == 0:
                await asyncio.sleep(0.001)
        await eventually(lambda: not hub.feed.subscribers, 20)
        seen: list[int] = []

        async def read() -> None:
            async for event in call:
                seen.append(event.cursor)  # noqa: PERF401 -- events before the refusal are needed

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read()
        refusal = caught.value
    assert refusal.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    resume = int((refusal.details() or "").rpartition(" ")[2])
    assert seen[:resume] == list(range(1, resume + 1)), "everything up to that cursor was delivered"


def test_a_shards_clock_is_measured_by_its_fastest_report() -> None:
    skew, now = Skew(), 1_700_000_000 * SECOND
    for delay in (3, 0, 1, 2, 3, 0, 1, 2, 3, 0):
        skew.observe(Coverage(shard="s", clock_ns=now - (60 + delay) * SECOND), now)
    assert skew.wrong
    skew.observe(Coverage(shard="s", clock_ns=now), now)
    assert not skew.wrong
    skew.observe(Coverage(shard="s", clock_ns=now + 3 * SECOND), now)
    assert skew.wrong, "no delay can make a clock look fast"


@pytest.mark.parametrize("delays", [(5, 1, 4), (5, 4, 3, 5), (3, 3, 3, 3, 3, 3, 3, 3, 3, 1)])
def test_a_slow_connection_is_not_a_wrong_clock(delays: Sequence[int]) -> None:
    skew, now = Skew(), 1_700_000_000 * SECOND
    for delay in delays:
        skew.observe(Coverage(shard="s", clock_ns=now - delay * SECOND), now)
        assert not skew.wrong


@pytest.mark.parametrize("clock", [0, 1_700_000_000 * SECOND, 2**62, -(2**62)])
def test_a_reports_age_does_not_depend_on_its_shards_clock(clock: int) -> None:
    now = 1_700_000_000 * SECOND
    item = EvidenceItem(since_ns=clock - 9 * SECOND, until_ns=clock - 2 * SECOND)
    put_on_timeline(item, clock, now)
    if clock:
        assert (now - item.since_ns, now - item.until_ns) == (9 * SECOND, 2 * SECOND)
    else:
        assert item.since_ns == item.until_ns == now, "impossible times become now"


@pytest.mark.parametrize(("lit_ns", "sent_ns"), [(-(2**63), 0), (-(2**63), 2**63 - 1), (2**63 - 1, 1)])
async def test_a_canary_with_an_impossible_time_stops_nothing(link: Hubs, lit_ns: int, sent_ns: int) -> None:
    fleet, now = "default/sensors/s", time.time_ns()
    plan = CanaryPlan(process="p", interval_ns=SECOND, within_ns=SECOND)
    canary = EvidenceItem(
        id="c1", fleet=fleet, device=f"{PREFIX}1", zone="_canary", kind=Kind.SMOKE.wire, level=Level.ALARM.wire,
        since_ns=now, until_ns=now, canary=CanaryFire(shard="s-0", process="p", lit_ns=lit_ns, within_ns=SECOND),
    )  # fmt: skip
    call = EvidenceStub(link.control).Report(timeout=20)
    await call.write(ReportRequest(hello=ShardHello(fleet=fleet, shard="s-0")))
    await call.write(ReportRequest(coverage=Coverage(fleet=fleet, shard="s-0", time_ns=now, canary=plan)))
    await call.write(ReportRequest(evidence=canary, sent_ns=sent_ns))
    await call.write(ReportRequest(evidence=smoke("e1")))
    acknowledged = list[str]()
    while len(acknowledged) < 2:
        acknowledged += (await read(call)).acknowledged
    assert acknowledged == ["c1", "e1"]
    call.cancel()


LONG = "".join(map(chr, range(0x1000, 0x1000 + 1_000)))  # text that no database compresses well


@pytest.mark.parametrize(
    "strange",
    [
        ReportRequest(evidence=EvidenceItem(id=LONG)),
        ReportRequest(evidence=EvidenceItem(id="e0", episode=LONG)),
        ReportRequest(evidence=EvidenceItem(id="e0", fleet=f"{LONG}/sensors/s")),
        ReportRequest(evidence=EvidenceItem(id="e0", zone=LONG)),
        ReportRequest(coverage=Coverage(shard="s-0", devices=[DeviceStatus(id="d", zone=LONG, ledger=Ledger())])),
        ReportRequest(coverage=Coverage(shard=LONG, devices=[DeviceStatus(id="d", zone="z", ledger=Ledger())])),
        ReportRequest(coverage=Coverage(shard="s-0", closed=[ClosedLedger(device=LONG)], final=True)),
    ],
)
async def test_names_too_long_for_a_database_stop_nothing(stored_in_postgres: Stored, strange: ReportRequest) -> None:
    now = time.time_ns()
    if strange.WhichOneof("body") == "evidence":
        strange.evidence.MergeFrom(EvidenceItem(kind=Kind.SMOKE.wire, level=Level.ALARM.wire, until_ns=now))
    else:
        strange.coverage.fleet = "default/sensors/s"
    async with running(stored_in_postgres) as hub:
        server, port = await serve(hub, control=True)
        async with channel(f"127.0.0.1:{port}") as link:
            call = EvidenceStub(link).Report(timeout=20)
            await call.write(ReportRequest(hello=ShardHello(fleet="default/sensors/s", shard="s-0")))
            await call.write(strange)
            await report(link, smoke("e1"))
            with pytest.raises(grpc.aio.AioRpcError, match="names of more than 600 characters are not allowed"):
                await drained(call)
        await server.stop(0)


async def test_a_streams_selection_changes_while_it_is_open(link: Hubs) -> None:
    alarms = AlarmsStub(link.people)
    hall, attic = Selection(zones=["hall"]), Selection(zones=["attic"])
    await alarms.StoreSubscription(StoreSubscriptionRequest(name="attics", selection=attic), timeout=10)
    call = alarms.Follow(timeout=20)

    async def receive() -> FollowResponse:
        answer = await call.read()
        assert isinstance(answer, FollowResponse)
        return answer

    await call.write(FollowRequest(start=SubscribeRequest(live_only=True, selection=hall)))
    assert (await receive()).selected.selection == hall
    await report(link.control, smoke("e1"))
    assert (await receive()).event.zone == "hall"
    await call.write(FollowRequest(subscription="attics"))
    answer = await receive()
    assert (answer.selected.selection, answer.selected.cursor) == (attic, 1)
    item = smoke("e2")
    item.zone = "attic"
    await report(link.control, item)
    assert (await receive()).event.zone == "attic"
    await call.write(FollowRequest(selection=Selection(levels=[9])))  # type: ignore[list-item]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "levels: 9 is not one of 1, 2, 3, 4",
    )
    (stored,) = (await alarms.ListSubscriptions(ListSubscriptionsRequest(), timeout=10)).subscriptions
    assert (stored.name, stored.selection, stored.made_by) == ("attics", attic, "admin")
    await alarms.RemoveSubscription(RemoveSubscriptionRequest(name="attics"), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError, match='no subscription "attics" is stored'):
        await alarms.Subscribe(SubscribeRequest(subscription="attics"), timeout=10).read()
    page = await alarms.History(HistoryRequest(selection=attic, newest=True, limit=1), timeout=10)
    assert ([event.cursor for event in page.events], page.latest, page.next) == ([2], 2, 2)


class SlowReader:
    """The context of a call with a slow client; like gRPC it accepts one message at a time."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()  # an event is being written
        self.responses: list[FollowResponse] = []
        self._writing = False

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5000"

    async def send_initial_metadata(self, metadata: object) -> None:
        pass

    async def write(self, message: bytes) -> None:
        assert not self._writing, "two writes at once"
        self._writing = True
        response = FollowResponse.FromString(message)
        if response.HasField("event"):
            self.begun.set()
        await asyncio.sleep(0.1)
        self.responses.append(response)
        self._writing = False


async def test_a_change_is_confirmed_while_an_event_is_being_written(link: Hubs) -> None:
    context, attic = SlowReader(), Selection(zones=["attic"])

    async def requests() -> AsyncIterator[FollowRequest]:
        yield FollowRequest(start=SubscribeRequest())
        await context.begun.wait()
        yield FollowRequest(selection=attic)
        await asyncio.Event().wait()

    await report(link.control, smoke("e1"))
    CALLER.set(Principal("ada", Role.VIEWER, "ada"))
    following = asyncio.ensure_future(AlarmsService(link.hub).Follow(requests(), context))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        while len(context.responses) < 3:
            await asyncio.wait({following}, timeout=0.05)
            assert not following.done(), following.exception()
    assert [response.WhichOneof("body") for response in context.responses] == ["selected", "event", "selected"]
    assert context.responses[-1].selected.selection == attic
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_unstored_fire_is_sent_on_request_and_again_once_it_is_stored(
    link: Hubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, transaction: object) -> None:
        raise StoreError("database or disk is full")

    alarms = AlarmsStub(link.people)
    call = alarms.Subscribe(SubscribeRequest(alive_ms=1_000, unstored=True), timeout=20)
    plain = alarms.Subscribe(SubscribeRequest(), timeout=20)
    following = alarms.Follow(timeout=20)
    await following.write(FollowRequest(start=SubscribeRequest(unstored=True)))
    assert (await read(following)).HasField("selected")
    assert (await read(call)).type == AlarmEvent.TYPE_ALIVE
    reporting = EvidenceStub(link.control).Report(timeout=20)
    with monkeypatch.context() as fault:
        fault.setattr(Store, "commit", full)
        await reporting.write(ReportRequest(hello=ShardHello(fleet="default/sensors/s", shard="s-0")))
        await reporting.write(ReportRequest(evidence=smoke("e1")))
        fire = await read(call)
        while fire.type == AlarmEvent.TYPE_ALIVE:
            fire = await read(call)
        assert (fire.unstored, fire.cursor, fire.zone) == (True, 0, "hall")
        assert (await read(following)).event == fire
        while not (alive := await read(call)).why:
            assert alive.type == AlarmEvent.TYPE_ALIVE
        assert (alive.cursor, alive.why) == (0, "the hub cannot write its database: database or disk is full")
    while (again := await read(call)).type == AlarmEvent.TYPE_ALIVE:
        pass
    fire.ClearField("unstored")
    fire.cursor = 1
    assert again == fire
    assert await read(plain) == fire
    for open_call in (call, plain, following, reporting):
        open_call.cancel()


async def read(call: Any) -> Any:
    event = await call.read()
    assert event is not grpc.aio.EOF
    return event


async def drained(call: Any) -> None:
    while await read(call):
        pass


async def test_alive_messages_more_often_than_once_a_second_are_refused(link: Hubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await AlarmsStub(link.people).Subscribe(SubscribeRequest(alive_ms=20), timeout=10).read()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "alive: 20 ms is too short. Use 1000 ms or more."
