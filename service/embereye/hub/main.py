"""The hub process: `embereye hub`."""

import asyncio
import logging
import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from prometheus_client import CollectorRegistry

from embereye.hub.alarms import AlarmsService, RosterService
from embereye.hub.api import Api
from embereye.hub.clip_service import ClipsService
from embereye.hub.clips import ClipStore
from embereye.hub.control import ControlService, Outputs
from embereye.hub.core import Hub
from embereye.hub.evidence import EvidenceService
from embereye.hub.metrics import HubCollector
from embereye.hub.store import StoreThreads
from embereye.process import lifecycle
from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.http_server import bound_port, serve_http
from embereye.process.lifecycle import Tasks, UserError, first_of
from embereye.process.runtime_metrics import RuntimeMetrics
from embereye.v1.alarms_pb2_grpc import add_AlarmsServicer_to_server
from embereye.v1.clips_pb2_grpc import add_ClipsServicer_to_server
from embereye.v1.control_pb2_grpc import add_ControlServicer_to_server
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.roster_pb2_grpc import add_RosterServicer_to_server

logger = logging.getLogger(__name__)
SIZES = {"M": 1024**2, "G": 1024**3, "T": 1024**4}  # bytes
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
STOP_SECONDS = 0.2  # for calls that do not end by themselves


def seconds(text: str) -> int:
    """A span such as "90s", "30m", "12h" or "7d" in seconds."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if not match or not int(match[1]):
        raise ArgumentTypeError(f'"{text}" is not a time span such as 90s, 30m, 12h or 7d')
    return int(match[1]) * UNITS[match[2]]


def size(text: str) -> int:
    """A size such as "500M", "20G" or "1T" in bytes."""
    match = re.fullmatch(r"(\d{1,6})([MGT])i?", text)
    if not match or not int(match[1]):
        raise ArgumentTypeError(f'"{text}" is not a size such as 500M, 20G or 1T')
    return int(match[1]) * SIZES[match[2]]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    parser.add_argument("--host", default=env("HOST", "[::]"), help="address to listen on [EMBEREYE_HOST]")
    parser.add_argument("--grpc-port", type=int, default=int(env("GRPC_PORT", "50052")),
                        help="gRPC port [EMBEREYE_GRPC_PORT]")  # fmt: skip
    parser.add_argument("--http-port", type=int, default=int(env("HTTP_PORT", "8080")),
                        help="port of the console, the HTTP API and /metrics [EMBEREYE_HTTP_PORT]")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of the database; required [EMBEREYE_DATA]")  # fmt: skip
    parser.add_argument("--retention", type=seconds, default=env("RETENTION", "30d"),
                        help="how long history is kept, for example 12h or 30d [EMBEREYE_RETENTION]")  # fmt: skip
    parser.add_argument("--clips", type=size, default=env("CLIPS", "5G"),
                        help="room for clips, for example 500M or 20G; the oldest go [EMBEREYE_CLIPS]")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Run a hub until SIGTERM or SIGINT; returns the exit code."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    return lifecycle.run(lambda stop: serve(arguments, stop))


async def serve(arguments: Namespace, stop: asyncio.Event) -> int:
    """Run a hub until `stop` is set; returns the exit code."""
    if arguments.data is None:
        raise UserError("--data is missing: name the folder that the hub's database is to be kept in")
    store = StoreThreads(arguments.data)
    hub = Hub(store, retention_ns=arguments.retention * 1_000_000_000)
    clips = ClipStore(arguments.data / "clips", capacity=arguments.clips)
    try:
        await hub.open()
        await clips.open()
        return await _serve(arguments, hub, clips, stop)
    finally:
        await clips.close()
        await store.close()


async def _serve(arguments: Namespace, hub: Hub, clips: ClipStore, stop: asyncio.Event) -> int:
    outputs, evidence = Outputs(), EvidenceService(hub)
    grpc = GrpcServer(
        [
            Service(add_EvidenceServicer_to_server, evidence, "embereye.v1.Evidence"),
            Service(add_AlarmsServicer_to_server, AlarmsService(hub), "embereye.v1.Alarms"),
            Service(add_RosterServicer_to_server, RosterService(hub), "embereye.v1.Roster"),
            Service(add_ClipsServicer_to_server, ClipsService(hub, clips), "embereye.v1.Clips"),
            Service(add_ControlServicer_to_server, ControlService(hub, outputs), "embereye.v1.Control"),
        ]
    )
    registry = CollectorRegistry()
    registry.register(HubCollector(hub, evidence, clips, arguments.data))
    runtime = RuntimeMetrics(registry)
    grpc_port = grpc.listen(f"{arguments.host}:{arguments.grpc_port}")
    web = await serve_http(Api(hub, outputs, clips).app(registry), arguments.host, arguments.http_port)
    async with Tasks() as tasks:
        tasks.start(hub.run(), name="hub")
        tasks.start(clips.run(), name="hub-clips")
        tasks.start(runtime.run(), name="event-loop-lag")
        await grpc.start()
        await grpc.set_serving(True)
        tasks.start(_tell_health(hub, grpc), name="hub-health")
        logger.info("hub ready: gRPC %d, HTTP %d, data in %s", grpc_port, bound_port(web), arguments.data)
        await first_of(stop.wait(), tasks.failed.wait())
        failed = tasks.failed.is_set()
        await grpc.set_serving(False)
        evidence.close()
        await asyncio.gather(grpc.stop(STOP_SECONDS), web.cleanup())
        if not await hub.flush(STOP_SECONDS):
            logger.warning("the hub ends before everything is stored; shards keep what was not acknowledged")
    return int(failed)


async def _tell_health(hub: Hub, grpc: GrpcServer) -> None:
    """Keep the gRPC health at what the store allows."""
    while True:
        changed = hub.failing_changed
        await grpc.set_serving(not hub.failing)
        await changed.wait()
