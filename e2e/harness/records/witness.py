"""An independent subscriber to the hub's alarms. Tests trust its records, not the product's.

`run` subscribes for a whole run. After each interruption it resubscribes behind the last cursor it has, and notes how
long it had no feed. It records every event with its time of arrival, duplicates included, in memory and in a file. The
queries judge these records: whether each fire raised exactly one alarm, and whether cursors have gaps.
"""

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
# A killed hub returns at the same address; gRPC's default back-off would wait ever longer before it reconnects.
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True)
class Heard:
    """An event and the time at which the witness received it."""

    time_ns: int  # nanoseconds since the Unix epoch
    event: AlarmEvent

    @property
    def zone(self) -> str:
        """The event's zone. Zone names in tests are unique across namespaces."""
        return self.event.zone

    @property
    def is_stored_alarm(self) -> bool:
        """True for the start of an alarm that is stored. An unstored event is published again later."""
        return self.is_alarm and not self.event.unstored

    @property
    def is_alarm(self) -> bool:
        """True for the start of an alarm, stored or not."""
        return self.event.type == AlarmEvent.TYPE_STATE and self.event.state == ZoneState.ZONE_STATE_ALARM


class Lit(NamedTuple):
    """A fire: its zone must alarm exactly once in this span of time, in nanoseconds since the Unix epoch."""

    zone: str
    since_ns: int = 0
    until_ns: int = ENDLESS


class Witness:
    """A subscriber that reconnects by cursor and records every event, including duplicates."""

    def __init__(self, address: str, diary: Diary, name: str = "witness", token: str | Callable[[], str] = "") -> None:
        """`token` is its token, or a function that returns the current one for each subscription."""
        self.heard: list[Heard] = []
        self.connections = 0
        self._address = address
        self._diary = diary
        self._token = token
        self._cursor = 0
        self._cut: float | None = time.monotonic()  # monotonic seconds since which it has no feed; None: it has one
        self._cuts: list[tuple[float, float]] = []  # spans without a feed, in monotonic seconds
        self._latest = 0.0  # monotonic seconds of the latest message
        self._file = (diary.folder / f"{name}.jsonl").open("w", encoding="utf-8")

    async def run(self) -> None:
        """Listen until cancelled."""
        failing = ""
        try:
            while True:
                link = grpc.aio.insecure_channel(self._address, options=OPTIONS)
                request = SubscribeRequest(cursor=self._cursor, alive_ms=ALIVE_MS, unstored=True)
                call = AlarmsStub(link).Subscribe(request, metadata=self._metadata())
                try:
                    # This fails at once if the connection is refused; the call alone would wait for gRPC's back-off.
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await call.wait_for_connection()
                    self._latest = self._note_connected()
                    failing = ""
                    self._diary.note("witness", f"subscribed after cursor {self._cursor}")
                    async for event in listen(call):
                        self._latest = time.monotonic()
                        if event.type != AlarmEvent.TYPE_ALIVE:
                            self._record(event)
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

    def _metadata(self) -> Metadata:
        return bearer(self._token if isinstance(self._token, str) else self._token())

    def _note_connected(self) -> float:
        """Note that a feed is open now. Returns the monotonic seconds."""
        now = time.monotonic()
        if self._cut is not None and self.connections:
            self._cuts.append((self._cut, now))
        self._cut = None
        self.connections += 1
        return now

    def _record(self, event: AlarmEvent) -> None:
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
            "bad" if heard.is_stored_alarm else "info",
            heard.time_ns,
        )

    # --- queries ---

    async def connected(self) -> int:
        """The number of connections so far."""
        return self.connections

    def gap(self, since: float, until: float) -> float:
        """The longest time without a feed that overlaps the span. All values are in monotonic seconds.

        The feed of a silent hub ends with its last message; a dead hub closes the connection at once.
        """
        cuts = [*self._cuts, *([] if self._cut is None else [(self._cut, until)])]
        return max((end - begin for begin, end in cuts if end > since and begin < until), default=0.0)

    def alarms(self, zone: str, since_ns: int = 0) -> list[Heard]:
        """The starts of stored alarms in `zone`, received since then."""
        return [
            heard for heard in self.heard if heard.zone == zone and heard.is_stored_alarm and heard.time_ns >= since_ns
        ]

    def first(self, zone: str, since_ns: int) -> Heard | None:
        """The first start of an alarm in `zone` received since then, stored or not."""
        alarms = (heard for heard in self.heard if heard.zone == zone and heard.is_alarm and heard.time_ns >= since_ns)
        return next(alarms, None)

    async def alarmed(self, zone: str, limit: float, since_ns: int = 0) -> Heard:
        """Wait for the first stored alarm of `zone` since then. AssertionError after `limit` seconds."""
        return await self.wait_for(
            lambda heard: heard.zone == zone and heard.is_stored_alarm and heard.time_ns >= since_ns,
            f"an alarm in {zone}",
            limit,
        )

    async def wait_for(self, wanted: Callable[[Heard], bool], description: str, limit: float) -> Heard:
        """Wait for the first `wanted` event. AssertionError after `limit` seconds."""
        deadline = time.monotonic() + limit
        seen = 0
        while True:
            while seen < len(self.heard):
                if wanted(self.heard[seen]):
                    return self.heard[seen]
                seen += 1
            if time.monotonic() > deadline:
                raise AssertionError(f"the witness did not receive {description} within {limit:g} s")
            await asyncio.sleep(0.02)

    def broken_cursors(self) -> list[str]:
        """Duplicate and missing events, judged by their cursors."""
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
        """(lost, doubled): the zones without an alarm, and those with several."""
        return self.miscounted_lit(Lit(zone) for zone in sorted(set(zones)))

    def miscounted_lit(self, lit: Iterable[Lit]) -> tuple[list[str], list[str]]:
        """(lost, doubled) for fires: the zones of fires without an alarm in their span, and of those with several."""
        raised: dict[str, list[int]] = defaultdict(list)
        for heard in self.heard:
            if heard.is_stored_alarm:
                raised[heard.zone].append(heard.time_ns)
        counts = [(fire.zone, sum(fire.since_ns <= at < fire.until_ns for at in raised[fire.zone])) for fire in lit]
        return [zone for zone, count in counts if not count], [zone for zone, count in counts if count > 1]

    async def zones(self) -> list[str]:
        """Ask the hub for its zones."""
        link = grpc.aio.insecure_channel(self._address, options=OPTIONS)
        call = AlarmsStub(link).Zones(ZonesRequest(), timeout=5, metadata=self._metadata())
        try:
            return [zone.name for zone in (await call).zones]
        finally:
            call.cancel()
            await link.close()
