"""A hub in this process that notifies, and signs of fire for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from harness.stored import Stored
from prometheus_client import CollectorRegistry

from embereye.addons.notify.channel import Channel
from embereye.addons.notify.http import NotifyRoutes, schemas
from embereye.addons.notify.hub import SCRIPTS
from embereye.addons.notify.notifier import Notifier
from embereye.addons.notify.options import ALARM, Escalation, NotifyOptions, Route, Step
from embereye.addons.notify.webpush import Devices, PushChannel
from embereye.hub.actions import Action
from embereye.hub.addon import Parts
from embereye.hub.http.api import Api
from embereye.hub.http.console_files import console_files
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.process.http.server import bound_port, serve_http
from embereye.process.timing.backoff import Backoff
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term

LOOPBACK = (ip_network("127.0.0.0/8"),)
ADA = Principal("ada", Role.OPERATOR, "ada")
TOKEN = "an-admins-token-of-forty-characters-or-so"


def route(name: str, url: str, **changed: Any) -> Route:
    return Route(name, url, **{"allow": LOOPBACK, **changed})


def options(*routes: Route, **changed: Any) -> NotifyOptions:
    """Options that send alarms to all routes at once."""
    names = tuple(route.name for route in routes)
    escalations = (Escalation("fire", frozenset({ALARM}), (Step(names),)),)
    return NotifyOptions(
        **{"routes": {route.name: route for route in routes}, "escalations": escalations, "fold": 0.2, **changed}
    )


@dataclass
class Running:
    """A hub that notifies."""

    hub: Hub
    notifier: Notifier
    port: int = 0

    def ignite(self, zone: str = "hall", level: Level = Level.ALARM, *, picture: bytes = b"", device: str = "") -> None:
        """Report a sign of fire in `zone`."""
        now = self.hub.timeline.now_ns()
        device = device or f"s-{zone}"
        self.hub.inbox.admit(
            EvidenceItem(
                id=f"{zone}-{level}-{device}", episode=f"{zone}-{device}", fleet="default/sensors/all", device=device,
                zone=zone, kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=now,
                until_ns=now, why=[Term(name="temperature.max", value=61.3, threshold=57, unit="°C")],
                snapshot=picture,
            ),
            lambda _: None,
        )  # fmt: skip

    async def act(self, action: Action, zone: str = "hall") -> None:
        await self.hub.actions.perform(action, ADA, "default", zone)


@contextlib.asynccontextmanager
async def running(
    stored: Stored, wanted: NotifyOptions, *, http: bool = False, pause: float = 0.05, scripts: Sequence[str] = SCRIPTS
) -> AsyncIterator[Running]:
    """Run a hub whose routes wait `pause` seconds or twice as long after a failed attempt."""
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    devices = Devices(lambda: notifier.rows, hub.coverage.book, hub.access)

    def clock() -> float:
        return notifier.wall_ns() / 1e9

    def make(each: Route) -> Channel:
        return PushChannel(each, clock, devices, "") if each.is_web_push else Channel(each, clock)

    notifier = Notifier(wanted, hub, make, backoff=lambda: Backoff(floor=pause, cap=2 * pause))
    hub.add_part(notifier)
    tasks = [asyncio.ensure_future(hub.run()), asyncio.ensure_future(notifier.run())]
    parts = Parts(
        routes=[NotifyRoutes(notifier, devices), console_files("embereye.addons.notify", *scripts)],
        schemas=schemas(),
    )
    runner = await serve_http(Api(hub, addons=[parts]).app(CollectorRegistry()), "127.0.0.1", 0) if http else None
    try:
        yield Running(hub, notifier, bound_port(runner) if runner else 0)
    finally:
        await hub.committer.flush(10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if runner:
            await runner.cleanup()
        await store.close()
