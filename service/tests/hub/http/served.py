"""A hub that is served over HTTP in this process."""

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from embereye.hub.hub import Hub
from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem, Ledger, ThermalPicture
from embereye.v1.types_pb2 import Term

TOKEN = "an-admins-token-of-forty-characters-or-so"
FLEET = "default/sensors/hall"
FOLDER = "/v1/devices/default/sensors/hall"


@dataclass
class Served:
    hub: Hub
    base: str
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.json()

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, object]]:
        headers = {"Content-Type": "application/json", **headers}
        async with self.session.post(self.base + path, data=json.dumps(body), headers=headers) as response:
            return response.status, await response.json()

    async def put(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        async with self.session.put(self.base + path, json=body) as response:
            return response.status, await response.json()

    async def alarm(
        self, name: str = "one", zone: str = "hall", device: str = "s-01", snapshot: bytes = b"\xff\xd8jpeg"
    ) -> None:
        now = time.time_ns()
        item = EvidenceItem(
            id=name, episode=device, fleet=FLEET, device=device, zone=zone, kind=Kind.HEAT.wire,
            sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now, snapshot=snapshot,
            why=[Term(name="temperature.max", value=61.3, threshold=57, unit="°C")],
        )  # fmt: skip
        self.hub.inbox.admit(item, lambda _: None)
        await self.hub.committer.flush(10)

    def coverage(self) -> None:
        celsius = [20.0] * 767 + [math.nan]
        device = DeviceStatus(
            id="s-01", zone="hall", covered=True, state="streaming", picture=b"\xff\xd8still",
            ledger=Ledger(offered=10, analysed=9, shed={"queue full": 1}),
            latest=[Term(name="gas", value=400, unit="ppm")], thermal=ThermalPicture(celsius=celsius),
        )  # fmt: skip
        devices = [device, DeviceStatus(id="s-02", zone="hall", reason="never heard")]
        self.hub.coverage.report(Coverage(fleet=FLEET, shard="hall-0", time_ns=time.time_ns(), devices=devices))
