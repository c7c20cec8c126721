"""The hub's process: one `Hub` and the servers around it.

`serve` is a loop over three states. A replica (started with --advertise) starts in standby: it forwards connections to
the owner of the database until there is none. Then it becomes the owner, creates a `Hub` and serves it. If the
database changes under the hub (ReloadRequiredError), it starts over. A hub without replicas is always the owner.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from embereye.hub.access import admin_file
from embereye.hub.addon import Addon, Parts
from embereye.hub.candidates.keeper import Candidates
from embereye.hub.candidates.parts import candidate_parts
from embereye.hub.clips.store import ClipStore
from embereye.hub.database import OwnedError, ReloadRequiredError
from embereye.hub.databases.store import StoreThreads, read_address
from embereye.hub.evidence_bus import EvidenceBus
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.live.parts import live_parts
from embereye.hub.margins.parts import margin_parts
from embereye.hub.margins.store import DEFAULT_BYTES as MARGINS_BYTES
from embereye.hub.margins.store import MarginStore
from embereye.hub.metrics import hub_metrics
from embereye.hub.mqtt.options import MqttOptions
from embereye.hub.oidc.options import ProviderOptions
from embereye.hub.services.access import AccessCheck, AccessService
from embereye.hub.services.alarms import AlarmsService, RosterService
from embereye.hub.services.clips import ClipsService
from embereye.hub.services.evidence import EvidenceService
from embereye.hub.services.feed import add_alarms
from embereye.hub.services.webhooks import WebhooksService
from embereye.hub.tracing import EvidenceTraces
from embereye.hub.webhooks.options import WebhookOptions
from embereye.process.addresses import LOOPBACK
from embereye.process.daemon import Daemon
from embereye.process.extras import needed_by
from embereye.process.grpc_server import PEOPLE, GrpcServer, Service
from embereye.process.heap import collect_garbage, freeze_heap
from embereye.process.http.connections import Connections
from embereye.process.http.pages import metrics_pages, serve_pages
from embereye.process.http.server import bound_port, serve_http
from embereye.process.identity.credentials import Credentials
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks, beside, first_of
from embereye.process.telemetry.metric import Scraped
from embereye.process.telemetry.runtime_metrics import RuntimeMetrics
from embereye.process.telemetry.tracing import open_tracer
from embereye.process.tls.folder import ServerTls
from embereye.v1.access_pb2_grpc import add_AccessServicer_to_server
from embereye.v1.clips_pb2_grpc import add_ClipsServicer_to_server
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.roster_pb2_grpc import add_RosterServicer_to_server
from embereye.v1.webhooks_pb2_grpc import add_WebhooksServicer_to_server

if TYPE_CHECKING:
    from embereye.hub.mqtt.publisher import MqttPublisher
    from embereye.hub.oidc.provider import Provider

logger = logging.getLogger(__name__)
STOP_SECONDS = 0.2  # how long open calls get to end when the hub stops


@dataclass(frozen=True)
class HubOptions:
    """A hub's command-line options."""

    data: Path  # folder of the database and of clips
    host: str
    grpc_port: int
    http_port: int
    metrics_port: int  # serves only /metrics and /healthz, without a token; 0: none
    admin_token_file: Path  # created if it does not exist
    retention_ns: int  # how long history is retained
    clips_bytes: int  # room for clips
    margins_bytes: int = MARGINS_BYTES  # room for margins
    outer_host: str = ""  # address of the gRPC and HTTP ports for people; empty: `host`
    control_port: int = 0  # for shards and the operator
    tls: Path | None = None  # folder of the certificate for people; None: no TLS
    identity: Path | None = None  # folder of its certificate; None: the control port listens on loopback only
    database: str = ""  # address of a PostgreSQL, as in `open_database`; '': SQLite in `data`
    advertise: str = ""  # this replica's address for other replicas on the same database; '': there are none
    hosts: AllowedHosts = field(default_factory=AllowedHosts)  # host names that browsers may use for it
    webhooks: Sequence[WebhookOptions] = ()
    mqtt: MqttOptions | None = None  # broker to which states of zones and devices are published; None: no broker
    oidc: ProviderOptions | None = None  # identity provider for people's sign-in; None: no sign-in through a provider
    base_path: str = ""  # path below which browsers see the console, such as "/fire"; "": the root
    namespaces: Sequence[str] = ()  # namespaces of the shards that may report; none: all
    addons: Sequence[Addon] = ()

    @property
    def advertisement(self) -> str:
        """The address that other replicas read while this one owns the database; '' if there are no replicas."""
        if not self.advertise:
            return ""
        ports = {"grpc": self.grpc_port, "control": self.control_port, "http": self.http_port}
        for addon in self.addons:
            ports |= addon.ports
        return json.dumps({"host": self.advertise, "ports": ports})


async def serve(options: HubOptions, stop: asyncio.Event) -> int:
    """Run a hub until `stop` is set; returns the exit code. UserError if its folder or a port cannot be used."""
    while True:
        if options.advertise and not await _stand_by(options, stop):
            return 0
        try:
            return await _serve_as_owner(options, stop)
        except ReloadRequiredError as error:
            logger.warning("reloading: %s", error)
        except OwnedError as error:
            if not options.advertise:
                raise
            logger.warning("standing by again: %s", error)


async def _stand_by(options: HubOptions, stop: asyncio.Event) -> bool:
    """Forward connections to the replica that owns the database until there is none; False if `stop` was set."""
    # Imported here because it loads psycopg, which a hub without PostgreSQL does not need.
    from embereye.hub.standby import Forwarder, Listen, stand_by

    control = options.host if options.identity else LOOPBACK
    listens = [
        Listen(options.host, options.grpc_port, "grpc"),
        Listen(control, options.control_port, "control"),
        Listen(options.host, options.http_port, "http"),
    ]
    for role, port in chain.from_iterable(addon.ports.items() for addon in options.addons):
        if port:
            listens.append(Listen(options.outer_host or options.host, port, role))
    parts = [addon.stand_by() for addon in options.addons]
    registry, bus = CollectorRegistry(), _bus(parts)
    _register(registry, parts)
    runtime = RuntimeMetrics(registry)
    credentials = Credentials(options.identity) if options.identity and bus else None
    fallback: dict[str, int] = {}
    forwarder = Forwarder(fallback=fallback)

    def not_ready() -> str:
        # A replica that accepts evidence is ready for shards.
        return "" if forwarder.owner or (bus and not bus.failing) else "no hub owns the database yet"

    pages = metrics_pages(registry, not_ready=not_ready)
    metrics = await serve_pages(pages, options.host, options.metrics_port) if options.metrics_port else None
    try:
        async with contextlib.AsyncExitStack() as stack, Tasks() as tasks:
            tasks.start(runtime.run(), name="event-loop-lag")
            if bus:
                fallback["control"] = await stack.enter_async_context(_control_without_owner(options, bus, credentials))
            for name, run in _tasks(parts).items():
                tasks.start(run(), name=name)
            if credentials:
                tasks.start(credentials.follow(), name="follow-identity")
            return await stand_by(lambda: read_address(options.database), listens, forwarder, stop)
    except OSError as error:
        raise UserError(f"cannot listen: {error.strerror or error}") from error
    finally:
        if metrics:
            metrics.close()


@contextlib.asynccontextmanager
async def _control_without_owner(
    options: HubOptions, bus: EvidenceBus, credentials: Credentials | None
) -> AsyncIterator[int]:
    """Serve the control calls while no hub owns the database; yields the port on loopback."""
    from embereye.hub.services import absent

    evidence = absent.EvidenceInAbsence(bus)
    control = GrpcServer(
        absent.services(evidence), control=True, credentials=credentials, namespaces=options.namespaces
    )
    port = control.listen(f"{LOOPBACK}:0")
    await control.start()
    await control.set_serving(True)
    try:
        yield port
    finally:
        evidence.close()
        await control.stop(STOP_SECONDS)


async def _serve_as_owner(options: HubOptions, stop: asyncio.Event) -> int:
    store = StoreThreads(options.data, options.database, options.advertisement)
    hub = Hub(store, retention_ns=options.retention_ns)
    clips = ClipStore(
        options.data / "clips", capacity=options.clips_bytes, recordings_ns=options.retention_ns,
        clock=hub.timeline.now_ns,
    )  # fmt: skip
    tracer = open_tracer("embereye-hub")
    if tracer:
        hub.trace(EvidenceTraces(tracer))
    try:
        await hub.open()
        hub.webhooks.declare(options.webhooks)
        hub.access.set_admin_token(admin_file.prepare(options.admin_token_file))
        return await _serve(options, hub, clips, stop)
    finally:
        await clips.close()
        await store.close()
        if tracer:
            tracer.close()


def _provider(options: HubOptions) -> "Provider | None":
    if options.oidc is None:
        return None
    # Imported here because it loads cryptography, 12 MB, which a hub without a provider does not need.
    from embereye.hub.oidc.provider import Provider

    return Provider(options.oidc)


def _publisher(options: HubOptions, hub: Hub, parts: Sequence[Parts]) -> "MqttPublisher | None":
    if options.mqtt is None:
        return None
    with needed_by("--mqtt-broker", "aiomqtt", "mqtt"):
        from embereye.hub.mqtt.publisher import MqttPublisher
    switches = [*chain.from_iterable(part.switches for part in parts)]
    return MqttPublisher(options.mqtt, hub.zones, hub.coverage.book, hub.feed, switches=switches)


def _bus(parts: Sequence[Parts]) -> EvidenceBus | None:
    return next((part.bus for part in parts if part.bus), None)


def _register(registry: CollectorRegistry, parts: Sequence[Parts]) -> None:
    for collector in chain.from_iterable(part.collectors for part in parts):
        registry.register(collector)


def _tasks(parts: Sequence[Parts]) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    return dict(chain.from_iterable(part.tasks.items() for part in parts))


def _services(
    hub: Hub, clips: ClipStore, evidence: EvidenceService, candidates: Candidates, parts: Sequence[Parts]
) -> list[Service]:
    return [
        Service(add_EvidenceServicer_to_server, evidence, "embereye.v1.Evidence"),
        Service(add_alarms, AlarmsService(hub), "embereye.v1.Alarms"),
        Service(add_RosterServicer_to_server, RosterService(hub, candidates.result), "embereye.v1.Roster"),
        Service(add_ClipsServicer_to_server, ClipsService(hub, clips), "embereye.v1.Clips"),
        Service(add_AccessServicer_to_server, AccessService(hub), "embereye.v1.Access"),
        Service(add_WebhooksServicer_to_server, WebhooksService(hub), "embereye.v1.Webhooks"),
        *chain.from_iterable(part.services for part in parts),
    ]


def _access_check(hub: Hub, parts: Sequence[Parts]) -> AccessCheck:
    return AccessCheck(hub.access, dict(chain.from_iterable(part.roles.items() for part in parts)))


def _daemon(options: HubOptions, services: list[Service], access: AccessCheck, tls: ServerTls | None) -> Daemon:
    return Daemon(
        services,
        credentials=Credentials(options.identity) if options.identity else None,
        tls=tls,
        interceptors=[access],
        namespaces=options.namespaces,
    )


async def _serve(options: HubOptions, hub: Hub, clips: ClipStore, stop: asyncio.Event) -> int:
    parts = [*(addon.attach(hub, clips) for addon in options.addons), live_parts(hub)]
    margins = MarginStore(options.data, capacity=options.margins_bytes, retention_ns=options.retention_ns)
    candidates = Candidates(hub)
    parts += [margin_parts(hub, margins), candidate_parts(hub, candidates, clips)]
    evidence = EvidenceService(hub, bus := _bus(parts))
    tls = ServerTls(options.tls) if options.tls else None
    daemon = _daemon(options, _services(hub, clips, evidence, candidates, parts), _access_check(hub, parts), tls)
    daemon.control.answer(PEOPLE, hub.is_reaching_people)
    registry, mqtt = daemon.registry, _publisher(options, hub, parts)
    registry.register(Scraped(lambda: hub_metrics(hub, evidence, clips, options.data, mqtt)))
    _register(registry, parts)
    outer = options.outer_host or options.host
    [grpc_port] = daemon.listen(outer, options.grpc_port)
    control_port = daemon.listen_control(options.host, options.control_port)
    api = Api(hub, clips, options.hosts, _provider(options), bus, parts, options.base_path)
    web = await serve_http(api.app(registry), outer, options.http_port, tls, connections=Connections())
    if options.metrics_port:
        await daemon.open_pages(options.host, options.metrics_port)
    for part in parts:
        await part.listen(outer, tls)
    async with Tasks() as tasks:
        running = tasks.start(_run(hub), name="hub")
        runs = {"hub-clips": clips.run, **_tasks(parts)}
        if mqtt:
            runs["mqtt"] = mqtt.run
        for name, run in runs.items():
            tasks.start(run(), name=name)
        tasks.start(admin_file.follow(options.admin_token_file, hub.access), name="admin-token")
        await daemon.start(tasks)
        await daemon.set_serving(True)
        logger.info(
            "hub ready: gRPC %d, control %d, %s %d, data in %s",
            grpc_port, control_port, "HTTPS" if tls else "HTTP", bound_port(web), options.data,
        )  # fmt: skip
        await first_of(stop.wait(), _ended(running), tasks.failed.wait())
        failed = tasks.failed.is_set()
        reload_required = running.result() if running.done() and not failed else None
        await daemon.set_serving(False)
        evidence.close()
        hub.feed.close()
        for part in parts:
            await part.close()
        mqtt_stops = [mqtt.stop(STOP_SECONDS)] if mqtt else []
        await asyncio.gather(daemon.stop(STOP_SECONDS), web.cleanup(), *mqtt_stops)
        if not await hub.committer.flush(STOP_SECONDS):
            logger.warning("the hub stops before everything is stored; shards send unacknowledged evidence again")
    if reload_required:
        raise reload_required
    return int(failed)


async def _run(hub: Hub) -> ReloadRequiredError | None:
    """Run `hub`; returns ReloadRequiredError if it has to be replaced by a new one."""
    freeze_heap()
    try:
        async with beside(collect_garbage(), name="collect-garbage"):
            await hub.run()
    except ReloadRequiredError as error:
        return error
    return None


async def _ended(task: "asyncio.Task[ReloadRequiredError | None]") -> None:
    await asyncio.wait({task})
