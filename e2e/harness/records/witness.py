"""An independent listener to the hub's alarms: what it heard, and when, is what tests believe."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import grpc
from google.protobuf import json_format

from embereye.client.alarms import ALIVE_MS, SilentError, listen
from embereye.process.http.bearer import Metadata, bearer
from embereye.v1.alarms_pb2 import AlarmEvent, SubscribeRequest, ZonesRequest, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from harness.records.diary import Diary

RETRY_SECONDS = 0.1
CONNECT_SECONDS = 1.0
ENDLESS = 2**63 - 1  # nanoseconds
# A hub that was killed comes back at the same address; gRPC alone would wait longer and longer before it looks.
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True)
class Heard:
    """An event, and when the witness was told."""

    time_ns: int  # nanoseconds since the Unix epoch
    event: AlarmEvent

    @property
    def zone(self) -> str:
        """The event's zone; the tests' zones have different names in all namespaces."""
        return self.event.zone

    @property
    def raises(self) -> bool:
        """Whether the event is an alarm that begins, and is stored: what is not is told once more."""
        return self.announces and not self.event.unstored

    @property
    def announces(self) -> bool:
        """Whether the event is an alarm that begins, stored or not."""
        return self.event.type == AlarmEvent.TYPE_STATE and self.event.state == ZoneState.ZONE_STATE_ALARM


class Lit(NamedTuple):
    """A zone, and from when until when it has to be in alarm exactly once; nanoseconds since the Unix epoch."""

    zone: str
    since_ns: int = 0
    until_ns: int = ENDLESS


class Witness:
    """Subscribes by cursor, again and again; keeps everything, also what it should not have been told twice."""

    def __init__(self, address: str, diary: Diary, name: str = "witness", token: str | Callable[[], str] = "") -> None:
        """`token` is what it shows, or tells it anew each time that it subscribes."""
        self.heard: list[Heard] = []
        self.connections = 0
        self._address = address
        self._diary = diary
        self._token = token
        self._cursor = 0
        self._cut: float | None = time.monotonic()  # since when it has no feed, monotonic seconds; None: it has one
        self._cuts: list[tuple[float, float]] = []  # from when until when it had none
        self._latest = 0.0  # when anything was heard last, monotonic seconds
        self._file = (diary.folder / f"{name}.jsonl").open("w", encoding="utf-8")

    async def run(self) -> None:
        """Listen until cancelled."""
        failing = ""
        try:
            while True:
                link = grpc.aio.insecure_channel(self._address, options=OPTIONS)
                request = SubscribeRequest(cursor=self._cursor, alive_ms=ALIVE_MS, unstored=True)
                call = AlarmsStub(link).Subscribe(request, metadata=self._shown())
                try:
                    # Of a connection that is refused this tells at once; what waits for one waits for gRPC's back-off.
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await call.wait_for_connection()
                    self._latest = self._served()
                    failing = ""
                    self._diary.note("witness", f"subscribed after cursor {self._cursor}")
                    async for event in listen(call):
                        self._latest = time.monotonic()
                        if event.type != AlarmEvent.TYPE_ALIVE:
                            self._hear(event)
                    reason = "the hub ended the stream"
                except TimeoutError:
                    reason = "no connection"
                except SilentError as error:
                    self._cut = self._latest
                    reason = str(error)
                except grpc.aio.AioRpcError as error:
                    reason = f"{error.code().name}: {error.details()}"
                finally:
                    call.cancel()
                    await link.close()
                if self._cut is None:
                    self._cut = time.monotonic()
                if reason.partition(":")[0] != failing:
                    self._diary.note("witness", f"cut off: {reason}")
                failing = reason.partition(":")[0]
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._file.close()

    def _shown(self) -> Metadata:
        return bearer(self._token if isinstance(self._token, str) else self._token())

    def _served(self) -> float:
        """It has a feed now; when that is, monotonic seconds."""
        now = time.monotonic()
        if self._cut is not None and self.connections:
            self._cuts.append((self._cut, now))
        self._cut = None
        self.connections += 1
        return now

    def _hear(self, event: AlarmEvent) -> None:
        heard = Heard(time.time_ns(), event)
        self.heard.append(heard)
        self._cursor = max(self._cursor, event.cursor)
        record = {"time_ns": heard.time_ns, "event": json_format.MessageToDict(event)}
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        name = AlarmEvent.Type.Name(event.type).removeprefix("TYPE_").lower()
        state = ZoneState.Name(event.state).removeprefix("ZONE_STATE_").lower()
        self._diary.note(
            "alarm",
            f"{event.cursor or 'not stored:'} {event.namespace}/{event.zone} {name} {state}: {event.why}",
            "bad" if heard.raises else "info",
            heard.time_ns,
        )

    # What it knows

    async def connected(self) -> int:
        """How often it has been connected so far."""
        return self.connections

    def gap(self, since: float, until: float) -> float:
        """The longest time without a feed that touches the span, in seconds; all in monotonic seconds.

        What a hub that says nothing any more sent last ends its feed; of one that is gone the connection tells at once.
        """
        cuts = [*self._cuts, *([] if self._cut is None else [(self._cut, until)])]
        return max((end - begin for begin, end in cuts if end > since and begin < until), default=0.0)

    def alarms(self, zone: str, since_ns: int = 0) -> list[Heard]:
        """Every beginning of an alarm in `zone` that was heard since then."""
        return [heard for heard in self.heard if heard.zone == zone and heard.raises and heard.time_ns >= since_ns]

    def first(self, zone: str, since_ns: int) -> Heard | None:
        """What it was told of an alarm in `zone` first since then, whether that was stored by then or not."""
        told = (heard for heard in self.heard if heard.zone == zone and heard.announces and heard.time_ns >= since_ns)
        return next(told, None)

    async def alarmed(self, zone: str, limit: float, since_ns: int = 0) -> Heard:
        """The first alarm of `zone` since then; AssertionError after `limit` seconds."""
        return await self.told(
            lambda heard: heard.zone == zone and heard.raises and heard.time_ns >= since_ns,
            f"an alarm in {zone}",
            limit,
        )

    async def told(self, wanted: Callable[[Heard], bool], what: str, limit: float) -> Heard:
        """The first event that is `wanted`; AssertionError after `limit` seconds."""
        deadline = time.monotonic() + limit
        seen = 0
        while True:
            while seen < len(self.heard):
                if wanted(self.heard[seen]):
                    return self.heard[seen]
                seen += 1
            if time.monotonic() > deadline:
                raise AssertionError(f"the witness was not told of {what} within {limit:g} s")
            await asyncio.sleep(0.02)

    def broken_cursors(self) -> list[str]:
        """Events that came twice or not at all, by the feed's own numbers."""
        broken, last = [], 0
        for heard in self.heard:
            cursor = heard.event.cursor
            if cursor <= last:
                broken.append(f"{cursor} came after {last}")
            elif cursor > last + 1:
                broken.append(f"{last + 1} to {cursor - 1} never came")
            last = max(last, cursor)
        return broken

    def miscounted(self, zones: Iterable[str]) -> tuple[list[str], list[str]]:
        """(lost, doubled): the zones of `zones` with no alarm, and those with more than one."""
        return self.miscounted_lit(Lit(zone) for zone in sorted(set(zones)))

    def miscounted_lit(self, lit: Iterable[Lit]) -> tuple[list[str], list[str]]:
        """The same of zones in which it burns several times: those of each time without an alarm of its own, or two."""
        raised: dict[str, list[int]] = defaultdict(list)
        for heard in self.heard:
            if heard.raises:
                raised[heard.zone].append(heard.time_ns)
        counts = [(one.zone, sum(one.since_ns <= at < one.until_ns for at in raised[one.zone])) for one in lit]
        return [zone for zone, count in counts if not count], [zone for zone, count in counts if count > 1]

    async def zones(self) -> list[str]:
        """The zones that the hub lists now."""
        link = grpc.aio.insecure_channel(self._address, options=OPTIONS)
        call = AlarmsStub(link).Zones(ZonesRequest(), timeout=5, metadata=self._shown())
        try:
            return [zone.name for zone in (await call).zones]
        finally:
            call.cancel()
            await link.close()
