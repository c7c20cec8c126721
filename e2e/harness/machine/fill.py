"""Fill the hub's buffers of recent reports and events, so that later growth is a leak and not filling."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Sequence
from math import ceil

import grpc

from embereye.hub.feeds.feed import RETAINED_EVENTS
from embereye.hub.tables.evidence import RECENT
from embereye.process.grpc_server import control_channel
from embereye.process.http.bearer import bearer
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import SERVER_NAMES, Role
from embereye.v1.alarms_pb2 import ActionRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.types_pb2 import Level
from harness.records.probers import EvidenceProber, smoke
from harness.records.witness import OPTIONS

ZONES = 20  # filled together
EVENTS = 3  # per sign: alarm, acknowledgement, reset
ROUNDS = ceil(RETAINED_EVENTS / EVENTS / ZONES)
REPORTS = ceil(RECENT / ROUNDS / ZONES)  # per sign; the last one ends it
# Number of times the buffers are filled. New entries use other parts of the heap than the dropped ones, so the heap
# reaches its size only after several rounds. Measured: 54.9, 57.0, 57.7, 58.0, 58.3, 58.6, 58.8, 58.2 MB.
FILLS = 4
WHO = "the soak"
TIMEOUT = 30.0  # seconds for each step of a round


async def fill_hub(control: str, address: str, token: str, namespace: str, credentials: Credentials) -> None:
    """Raise, acknowledge and reset alarms until the hub's buffers have been filled `FILLS` times.

    `control` is the hub's address for shards, `address` for people. `token` is an operator's; `credentials` belong to
    the evidence prober of `namespace`. Raises TimeoutError, ConnectionError or grpc.aio.AioRpcError if the hub fails.
    """
    prober = EvidenceProber.identity(namespace)
    async with (
        control_channel(control, SERVER_NAMES[Role.HUB], credentials, OPTIONS) as inner,
        grpc.aio.insecure_channel(address, options=OPTIONS) as outer,
    ):
        call = EvidenceStub(inner).Report()
        await call.write(ReportRequest(hello=ShardHello(fleet=prober.fleet, shard=prober.name, epoch=1)))
        alarms = AlarmsStub(outer)
        for _ in range(FILLS * ROUNDS):
            reports, ends = _signs(prober.fleet)
            # Acknowledged during the fire, as in a soak: the event then lists the signs, which are its largest part.
            for items, action in ((reports, alarms.Acknowledge), (ends, alarms.Reset)):
                async with asyncio.timeout(TIMEOUT):
                    await _report(call, items)
                actions: list[Awaitable[object]] = [
                    action(
                        ActionRequest(namespace=namespace, zone=_zone(zone), who=WHO),
                        metadata=bearer(token),
                        timeout=TIMEOUT,
                    )
                    for zone in range(ZONES)
                ]
                await asyncio.gather(*actions)
        call.cancel()


async def _report(
    call: "grpc.aio.StreamStreamCall[ReportRequest, ReportResponse]", items: Sequence[EvidenceItem]
) -> None:
    """Send `items` and wait until all are acknowledged."""
    for item in items:
        await call.write(ReportRequest(evidence=item))
    waiting = {item.id for item in items}
    while waiting:
        response = await call.read()
        if not isinstance(response, ReportResponse):
            raise ConnectionError("the hub ended the stream of reports")
        waiting.difference_update(response.acknowledged)


def _signs(fleet: str) -> tuple[list[EvidenceItem], list[EvidenceItem]]:
    """Build repeated reports of a sign in every zone, and the reports that end these signs."""
    since, items = time.time_ns(), list[EvidenceItem]()
    episodes = [uuid.uuid4().hex for _ in range(ZONES)]
    for report in range(REPORTS):
        for zone, episode in enumerate(episodes):
            item = smoke(f"{episode}-{report}", fleet, _zone(zone), since, episode)
            item.until_ns += report
            if report == REPORTS - 1:
                item.level = Level.LEVEL_CLEAR
            items.append(item)
    return items[:-ZONES], items[-ZONES:]


def _zone(number: int) -> str:
    return f"fill-{number:04}"
