"""Marks of false alarms: their effect on later alarms and on cameras, over restarts, in either database."""

import asyncio
import threading
import time
from typing import Any

import grpc
import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.hub.actions import Action
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.hub.services.evidence import EvidenceService
from embereye.hub.tables.alarms import AlarmQuery
from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.v1.evidence_pb2 import EvidenceItem, Region, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub, add_EvidenceServicer_to_server
from embereye.v1.types_pb2 import Term

ADA = Principal("Ada", Role.OPERATOR, "Ada")
CAMERAS = "default/cameras/yard"


class Running:
    """A hub in this process on a database, which can be stopped and started again."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.number = 0

    async def __aenter__(self) -> "Running":
        self._threads = self._stored.threads()
        self.hub = Hub(self._threads, retention_ns=10**15)
        await self.hub.open()
        self._task = asyncio.ensure_future(self.hub.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hub.committer.flush(10)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._threads.close()

    async def see(self, value: float = 61.0, *, device: str = "s-01", region: Region | None = None) -> None:
        self.number += 1
        now = time.time_ns()
        item = EvidenceItem(
            id=f"{now}", episode=f"{now}", fleet=CAMERAS if region else "default/sensors/hall", device=device,
            zone="kitchen", kind=(Kind.FLAME if region else Kind.HEAT).wire,
            sense=(Sense.CAMERA if region else Sense.SENSOR).wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
            why=[Term(name="temperature.max", value=value, threshold=57, unit="°C")], region=region,
        )  # fmt: skip
        self.hub.inbox.admit(item, lambda _: None)
        assert await self.hub.committer.flush(10)

    @property
    def zone(self) -> Any:
        (zone,) = [zone for zone in self.hub.zones.messages() if zone.name == "kitchen"]
        return zone

    async def close_alarm(self) -> str:
        alarm: str = self.zone.alarm
        await self.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "kitchen")
        await self.hub.actions.perform(Action.RESET, ADA, "default", "kitchen")
        return alarm


async def test_a_mark_turns_similar_alarms_into_pre_alarms_until_it_is_removed(stored: Stored) -> None:
    async with Running(stored) as running:
        await running.see()
        assert ZoneState(running.zone.state) is ZoneState.ALARM
        alarm = await running.close_alarm()
        event = await running.hub.false_alarms.mark(ADA, alarm, "steam from the kettle")
        assert (event.alarm, event.why) == (alarm, "marked as false by Ada: steam from the kettle")
    async with Running(stored) as running:
        (mark,) = running.hub.false_alarms.all()
        assert (mark.who, mark.reason, mark.signs[0].device) == ("Ada", "steam from the kettle", "s-01")
        await running.see()
        assert ZoneState(running.zone.state) is ZoneState.PRE_ALARM
        assert "as in an alarm that Ada marked as false" in running.zone.why
        await running.see(80.0)
        assert ZoneState(running.zone.state) is ZoneState.ALARM, "a stronger sign is an alarm"
        await running.close_alarm()
        await running.hub.false_alarms.take_back(ADA, alarm)
    async with Running(stored) as running:
        assert running.hub.false_alarms.all() == []
        await running.see()
        assert ZoneState(running.zone.state) is ZoneState.ALARM
        trail = await running.hub.history.audit(0, 10)
        assert {"take back false", "mark false"} <= {entry.action for entry in trail}


async def test_removing_the_mark_of_a_forgotten_alarm_opens_no_alarm(stored: Stored) -> None:
    wanted = AlarmQuery(10, category="open")
    async with Running(stored) as running:
        await running.see()
        alarm = await running.close_alarm()
        await running.hub.false_alarms.mark(ADA, alarm, "steam from the kettle")
        until_ns = time.time_ns()
        await running.see(99.0)
        opened = running.zone.alarm
        assert await running._threads.write(lambda store: store.prune(until_ns, 0))
        assert [past.alarm for past in await running.hub.history.alarms(AlarmQuery(10))] == [opened]
        await running.hub.false_alarms.take_back(ADA, alarm)
        assert [past.alarm for past in await running.hub.history.alarms(wanted)] == [opened]
        # A row that an earlier version left.
        add = "INSERT INTO alarms VALUES ('phantom', 'default', 'kitchen', 1, 1, 1, 0, 1, '')"
        await running._threads.write(lambda store: store.db.execute(add))
        await running._threads.write(lambda store: store.db.execute("UPDATE alarms SET why = ''"))
    async with Running(stored) as running:
        assert [past.alarm for past in await running.hub.history.alarms(wanted)] == [opened]


async def test_an_open_alarm_can_be_marked_and_stays_open(stored: Stored) -> None:
    async with Running(stored) as running:
        await running.see()
        alarm = running.zone.alarm
        await running.hub.false_alarms.mark(ADA, alarm, "a welder")
        assert ZoneState(running.zone.state) is ZoneState.ALARM
        assert running.zone.false_alarm.reason == "a welder"
        events = await running.hub.history.alarm_events(alarm)
        assert [event.why.partition(" ")[0] for event in events] == ["heat", "marked"]


async def test_an_impossible_mark_is_refused_with_a_reason(stored: Stored) -> None:
    async with Running(stored) as running:
        with pytest.raises(UnknownNameError, match="there is no alarm 0123"):
            await running.hub.false_alarms.mark(ADA, "0123", "steam")
        with pytest.raises(UnknownNameError, match="is not marked as false"):
            await running.hub.false_alarms.take_back(ADA, "0123")
        await running.see()
        await running.hub.false_alarms.mark(ADA, running.zone.alarm, "steam")
        with pytest.raises(ConflictError, match="Ada has marked the alarm as false already: steam"):
            await running.hub.false_alarms.mark(ADA, running.zone.alarm, "dust")


async def test_shards_get_the_places_of_marked_flames(stored: Stored) -> None:
    region = Region(x=0.4, y=0.5, width=0.1, height=0.1, area=0.004, view="v")
    async with Running(stored) as running:
        heard: list[int] = []
        unsubscribe = running.hub.false_alarms.subscribe(lambda: heard.append(1))
        await running.see(device="cam-1", region=region)
        alarm = running.zone.alarm
        await running.hub.false_alarms.mark(ADA, alarm, "a lamp")
        (place,) = running.hub.false_alarms.places(CAMERAS).places
        assert (place.alarm, place.device, place.region) == (alarm, "cam-1", region)
        assert not running.hub.false_alarms.places("default/cameras/other").places
        unsubscribe()
        await running.hub.false_alarms.take_back(ADA, alarm)
        assert not running.hub.false_alarms.places(CAMERAS).places
        assert heard == [1]


@pytest.mark.parametrize("end", ["full", "cancelled"])
async def test_listeners_learn_of_a_removed_mark_even_if_its_caller_gets_an_error(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    writing, place_counts = threading.Event(), list[int]()

    def fail(store: Store, transaction: object) -> None:
        writing.wait(10)
        raise StoreError("database or disk is full")

    async with Running(stored) as running:
        await running.see(region=Region(x=0.2, y=0.5, width=0.2, height=0.2, area=0.02))
        marks = running.hub.false_alarms
        await marks.mark(ADA, running.zone.alarm, "a lamp")
        marks.subscribe(lambda: place_counts.append(len(marks.places(CAMERAS).places)))
        with monkeypatch.context() as fault:
            fault.setattr(Store, "commit", fail)
            taking_back = asyncio.ensure_future(marks.take_back(ADA, running.zone.alarm))
            await eventually(lambda: not marks, 10)
            if end == "cancelled":
                taking_back.cancel()
                await asyncio.gather(taking_back, return_exceptions=True)
            writing.set()
            with pytest.raises((StoreFailingError, asyncio.CancelledError)):
                await taking_back
        assert place_counts == [0]


async def test_alarms_are_found_by_zone_time_and_category(stored: Stored) -> None:
    async with Running(stored) as running:
        before = time.time_ns()
        await running.see()
        first = await running.close_alarm()
        between = time.time_ns()
        await running.see(90.0)
        second = running.zone.alarm
        await running.hub.false_alarms.mark(ADA, first, "steam")

        async def alarm_ids(**wanted: Any) -> list[str]:
            return [alarm.alarm for alarm in await running.hub.history.alarms(AlarmQuery(limit=10, **wanted))]

        assert await alarm_ids() == [second, first]
        assert await alarm_ids(category="open") == [second]
        assert await alarm_ids(category="false") == [first]
        assert await alarm_ids(category="true") == [second]
        assert await alarm_ids(category="pre-alarm") == []
        assert await alarm_ids(zone="default/kitchen") == [second, first]
        assert await alarm_ids(zone="hall") == []
        assert await alarm_ids(until_ns=between) == [first]
        assert await alarm_ids(from_ns=between) == [second]
        assert await alarm_ids(until_ns=before) == []
        (newest, oldest) = await running.hub.history.alarms(AlarmQuery(limit=10))
        assert await alarm_ids(before=newest.first) == [first]
        assert before <= oldest.began_ns < oldest.ended_ns <= between
        assert (oldest.worst, newest.ended_ns) == (ZoneState.ALARM, 0)
        assert oldest.why.startswith("heat 61 °C ≥ 57 °C at s-01")


async def test_a_shard_gets_the_marks_when_it_connects_and_after_each_change(stored: Stored) -> None:
    region = Region(x=0.4, y=0.5, width=0.1, height=0.1, area=0.004, view="v")
    async with Running(stored) as running:
        service = EvidenceService(running.hub)
        server = grpc.aio.server()
        add_EvidenceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await running.see(device="cam-1", region=region)
        alarm = running.zone.alarm
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as link:
            call = EvidenceStub(link).Report(timeout=20)
            await call.write(ReportRequest(hello=ShardHello(fleet=CAMERAS, shard="yard-0")))
            responses = aiter(call)

            async def marked_devices() -> list[str]:
                async for response in responses:
                    if response.HasField("marked"):
                        return [place.device for place in response.marked.places]
                raise AssertionError("the stream ended")

            assert await marked_devices() == []
            await running.hub.false_alarms.mark(ADA, alarm, "a lamp")
            assert await marked_devices() == ["cam-1"]
            await running.hub.false_alarms.take_back(ADA, alarm)
            assert await marked_devices() == []
            call.cancel()
        await server.stop(0)
