"""Receivers outside the product that keep books: a server for webhooks, and a subscriber to an MQTT broker.

Each runs for a whole run and writes down every alarm that arrives, repetitions included. Afterwards, the books are
compared with the fires: an alarm that the feed has and a receiver lacks was not delivered.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import aiomqtt
from aiohttp import web
from google.protobuf import json_format

from embereye.v1.alarms_pb2 import AlarmEvent
from harness.records.diary import Diary
from harness.records.witness import Heard, Lit

RETRY_SECONDS = 0.5
POLL_SECONDS = 0.05


class Arrivals:
    """The alarms that arrived on one way, by zone. Every arrival is written to a file at once."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.repeated = 0  # arrivals of alarms that had arrived before
        self._first: dict[str, dict[str, int]] = defaultdict(dict)  # zone → alarm's id → ns since the Unix epoch
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.jsonl"

    def note(self, zone: str, alarm: str, time_ns: int = 0) -> None:
        """Note that an alarm arrived, now unless `time_ns` (ns since the Unix epoch) is given."""
        at = time_ns or time.time_ns()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time_ns": at, "zone": zone, "alarm": alarm}) + "\n")
        if alarm in self._first[zone]:
            self.repeated += 1
        else:
            self._first[zone][alarm] = at

    def first(self, fire: Lit) -> int | None:
        """The time, in ns since the Unix epoch, at which the first alarm of a fire arrived. None: not yet."""
        times = (at for at in self._first[fire.zone].values() if fire.since_ns <= at < fire.until_ns)
        return min(times, default=None)

    async def arrived(self, fire: Lit, limit: float) -> float | None:
        """Wait for the alarm of a fire. Returns the seconds from the fire's start; None: not within `limit` seconds."""
        deadline = time.monotonic() + limit
        while (at := self.first(fire)) is None:
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(POLL_SECONDS)
        return (at - fire.since_ns) / 1e9

    def missing(self, fires: Iterable[Lit]) -> list[str]:
        """The zones of fires whose alarm never arrived."""
        return [fire.zone for fire in fires if self.first(fire) is None]


class WebhookReceiver:
    """A server that accepts every webhook and notes its alarms."""

    def __init__(self, host: str, arrivals: Arrivals) -> None:
        """`host` is its listen address. Its port is known once it runs."""
        self.host, self.port = host, 0
        self.arrivals = arrivals
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Its address for the hub."""
        return f"http://{self.host}:{self.port}/hook"

    async def start(self) -> None:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_post("/hook", self._accept)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _accept(self, request: web.Request) -> web.Response:
        event = json_format.ParseDict((await request.json())["event"], AlarmEvent(), ignore_unknown_fields=True)
        heard = Heard(time.time_ns(), event)
        if heard.is_alarm:
            self.arrivals.note(heard.zone, event.alarm or str(event.cursor), heard.time_ns)
        return web.Response(status=204)


async def follow_broker(host: str, port: int, arrivals: Arrivals, diary: Diary, prefix: str = "embereye") -> None:
    """Note every alarm that the hub publishes to the MQTT broker at `host`:`port`, until cancelled."""
    while True:
        try:
            async with aiomqtt.Client(host, port) as client:
                await client.subscribe(f"{prefix}/zones/#", qos=1)
                diary.note_change("broker", "subscribed")
                known: dict[str, str] = {}  # topic → the alarm in its last message
                async for message in client.messages:
                    state = json.loads(message.payload) if message.payload else {}
                    alarm = state.get("alarm", "") if state.get("fire") else ""
                    # A zone is published again with each sign that joins; that is no repetition of its alarm.
                    if alarm and known.get(str(message.topic)) != alarm:
                        arrivals.note(state["zone"], alarm)
                    known[str(message.topic)] = alarm
        except aiomqtt.MqttError as error:
            diary.note_change("broker", f"cut off: {error}")
        await asyncio.sleep(RETRY_SECONDS)
