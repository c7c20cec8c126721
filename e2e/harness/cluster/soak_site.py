"""The release of a soak in a cluster: the release under attack with more load, and with receivers that keep books.

Sensors outside the cluster send text lines with thermal frames, and gRPC, through node ports. Cameras in pods serve
H.264 by RTSP, and MJPEG. The hubs call a webhook and publish to an MQTT broker; both are outside. Sensors that burn are
used again after people have reset their zones.
"""

import asyncio
import random
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from embereye_bench.ending import terminate
from embereye_operator.api.bounds import COVERED_SECONDS
from harness.cluster.attacked import BETA, PORTS, Engines, Release, running_release
from harness.cluster.audit import AuditLog
from harness.cluster.cluster import Cluster, Json
from harness.cluster.site import SITE, Site, camera_service, simulator
from harness.devices import Film, FloodingDevice, fire_id
from harness.machine.people import reset_zones
from harness.machine.soak import SoakPlan, load_sensors
from harness.matrix.matrix import AlertsWatched
from harness.records.diary import Diary
from harness.records.receivers import Arrivals, WebhookReceiver, follow_broker
from harness.records.witness import ENDLESS, Lit
from harness.servers.mosquitto import Mosquitto

SURGE, SURGE_SHARDS = "surge", 2  # the fleet that the operator scales, and the shards that a burst needs
QUIET_LINES = 2.0  # lines/s of each of its devices without a burst
FIRES = 24  # sensors that burn, in turn
GRPC_SHARE = 0.4  # of the load's sensors
EVIDENCE_RATE = 1 / 15  # items/s
EVIDENCE_ZONES = 40  # used in turn, each of which is reset long before its next use
BOTH_SECONDS = 15.0  # for which sensors send with the old and the new token
OLD_NS = 60_000_000_000  # age at which a fire must have arrived everywhere
# The counts of a piece.
TOTALS = (
    "evidence", "evidence_lost", "evidence_doubled", "fires", "alarms_lost", "alarms_doubled", "taken_back",
    "webhooks_missing", "mqtt_missing", "webhooks_repeated", "mqtt_repeated",
)  # fmt: skip
STREAMS = {"mjpeg": 8091, "h264": 8554}  # kind of camera → port of its simulator


@dataclass(frozen=True)
class LoadPlan(SoakPlan):
    """The load of a soak in a cluster."""

    rate: float = 2.0  # readings/s per sensor
    mjpeg: int = 4
    h264: int = 8
    fps: float = 5.0
    burst_seconds: float = 900.0  # time between two bursts; 0: none, and no fleet for them
    burst_lines: float = 30_000.0  # lines/s of a burst
    audited: bool = True  # the operators' requests are counted; the API server starts again for that


class SoakRelease(Release):
    """The release of a soak, its load and its receivers."""

    evidence_rate, evidence_zones = EVIDENCE_RATE, EVIDENCE_ZONES

    def __init__(
        self, site: Site, fires: int, engines: Engines | None, plan: LoadPlan, webhook: WebhookReceiver,
        broker: Mosquitto, mqtt: Arrivals,
    ) -> None:  # fmt: skip
        super().__init__(site, fires, engines)
        self.plan = plan
        self.webhook, self.broker, self.mqtt = webhook, broker, mqtt
        self.alerts: AlertsWatched | None = None
        self.lit: list[Lit] = []  # all fires of this piece, in order
        self._hub = ""
        number = 3 if plan.burst_seconds else 0
        self._floods = [FloodingDevice(f"surge-{n}", f"surge-{n}", "", 0, QUIET_LINES) for n in range(number)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: list[subprocess.Popen[bytes]] = []  # processes with an old token
        self._log: IO[bytes] | None = None
        order = random.Random(plan.seed).sample(range(fires), fires)
        self._quiet = deque(map(fire_id, order))  # sensors that can burn, in order
        self._burning: list[str] = []  # zones that burn, or were not reset

    # --- declared objects ---

    def values(self) -> tuple[str, ...]:
        """The chart values of the release."""
        broker = f"mqtt://{self.broker.host}:{self.broker.port}"
        return (*super().values(), "hub.webhooks[0].name=soak", f"hub.webhooks[0].url={self.webhook.url}",
                f"hub.mqtt.broker={broker}")  # fmt: skip

    def sensor_fleet(self) -> Json:
        """The sensor fleet under attack, with the load's sensors."""
        fleet = super().sensor_fleet()
        fleet["spec"]["sensors"] += [{"id": id_, "zone": zone} for id_, zone in load_sensors(self.plan).items()]
        return fleet

    def camera_fleet(self) -> Json:
        """The camera fleet under attack, with the load's cameras."""
        fleet = super().camera_fleet()
        fleet["spec"]["cameras"] += [
            {"id": id_, "zone": id_, "source": source} for id_, source in load_cameras(self.plan).items()
        ]
        return fleet

    # --- load ---

    async def begin(self, film: Film) -> None:
        """Start the load and the release. Returns when everything works."""
        plan, cluster = self.plan, self.cluster
        size = ("--fps", f"{plan.fps:g}", "--size", "640x360")
        listen = {"mjpeg": ("--listen",), "h264": ("--codec", "h264", "--rtsp")}
        for kind, count in (("mjpeg", plan.mjpeg), ("h264", plan.h264)):
            if count:
                arguments = [*size, "--count", str(count), *listen[kind], f"0.0.0.0:{STREAMS[kind]}"]
                pod = simulator("cameras", arguments, self.site.home_node, name=kind)
                await cluster.apply(pod, camera_service(kind, STREAMS[kind]))
        self._log = (self.diary.folder / "load.log").open("ab")
        self._start_sensors("text")
        self._start_sensors("grpc")
        self.site.start(follow_broker(self.broker.host, self.broker.port, self.mqtt, self.diary), "broker")
        await super().begin(film)
        if self._floods:
            await self._begin_surge()
        self._hub = await self.site.hub()

    def _start_sensors(self, way: str) -> None:
        """Start the load's sensors that send text lines, or those that use gRPC."""
        sensors = load_sensors(self.plan)
        by_grpc = int(len(sensors) * GRPC_SHARE)
        chosen = list(sensors)[:by_grpc] if way == "grpc" else list(sensors)[by_grpc:]
        if not chosen:
            return
        target = f"{self.site.entrance}:{PORTS['grpc' if way == 'grpc' else 'tcp']}"
        command = [sys.executable, "-m", "embereye_cli", "simulate", "sensors", "--target", target,
                   "--devices", ",".join(f"{id_}={sensors[id_]}" for id_ in chosen), "--rate", f"{self.plan.rate:g}",
                   "--frame-rate", f"{self.plan.frame_rate:g}"]  # fmt: skip
        if way == "grpc":
            command += ["--grpc", f"--token={self.device_token}"]  # it may begin with a hyphen
        self._processes[way] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def show_token(self, token: str) -> None:
        """Make devices authenticate with `token` from now on. The load's sensors are started again for that.

        Those with the old token send for some time longer, because a program needs seconds to start.
        """
        super().show_token(token)
        before = self._processes.pop("grpc", None)
        self._start_sensors("grpc")
        if before:
            self._leaving.append(before)
            asyncio.get_running_loop().call_later(BOTH_SECONDS, before.terminate)

    def load_ended(self) -> list[str]:
        """The parts of the load that ended early."""
        return [way for way, process in self._processes.items() if process.poll() is not None]

    def close(self) -> None:
        """End the load."""
        for process in (*self._processes.values(), *self._leaving):
            terminate(process)
        self._processes.clear()
        if self._log:
            self._log.close()

    async def database_mb(self) -> float:
        """The size of the hubs' database in MB. Raises CommandError while it is away."""
        if self.engines is None:
            raise RuntimeError("a soak has two hubs on a PostgreSQL")
        return await self.engines.postgres.size_mb()

    # --- bursts ---

    async def _begin_surge(self) -> None:
        await self.site.apply_fleets(surge_fleet([device.id for device in self._floods], self.site.node_ports))
        host, _, port = (await self.site.exposed("sf", SURGE))["tcp"].rpartition(":")
        for device in self._floods:
            device.host, device.port = host, int(port)
            self.site.start(device.run(), device.id)
        await self.site.covered("sf", SURGE, COVERED_SECONDS)

    def flood(self, lines: float) -> None:
        """Make the devices of the scaled fleet send `lines` a second in all; 0: as many as when they are quiet."""
        for device in self._floods:
            device.rate = lines / len(self._floods) if lines else QUIET_LINES

    async def surge_shards(self) -> int:
        """The number of shards of the scaled fleet."""
        return len(await self.site.pods(component="sensor-shard", fleet=SURGE))

    # --- fires and books ---

    async def ignite(self) -> tuple[str, float]:
        """Set one more sensor on fire. Returns its zone and the monotonic seconds of its first line."""
        if not self._quiet:
            raise RuntimeError(f"all {len(self._burning)} sensors have burnt; none of their zones was reset")
        name = self._quiet.popleft()
        self._burning.append(name)
        lit_ns = await self.site.texts[name].fire(ADC1=3600)
        zone, at = self.site.texts[name].zone, asyncio.get_running_loop().time()
        self.lit = [
            fire._replace(until_ns=min(fire.until_ns, lit_ns)) if fire.zone == zone else fire for fire in self.lit
        ]
        self.lit.append(Lit(zone, lit_ns, ENDLESS))
        return zone, at

    def put_out(self) -> None:
        """Put all fires out. Their alarms stay until they are reset."""
        for name in self._burning:
            self.site.texts[name].rest()

    @property
    def burnt(self) -> list[str]:
        """The zones that have burnt and were not reset."""
        return list(self._burning)

    async def reset(self) -> None:
        """Let people acknowledge alarms, and reset acknowledged ones whose fire is out."""
        for zone in await reset_zones(self._hub, self.site.token):
            if zone in self._burning:
                self._burning.remove(zone)
                self._quiet.append(zone)

    def counts(self) -> dict[str, int]:
        """The totals of this piece: its fires and reports, and those that were lost, doubled or not delivered."""
        evidence = self.prober.lit(list(self.prober.acknowledged))
        lost, doubled = self.witness.miscounted_lit(evidence)
        alarms_lost, alarms_doubled = self.witness.miscounted_lit(self.lit)
        newest = self.lit[-1].since_ns if self.lit else 0
        old = [fire for fire in self.lit if fire.since_ns < newest - OLD_NS]
        counts = (
            len(evidence), len(lost), len(doubled), len(self.lit), len(alarms_lost), len(alarms_doubled),
            self.taken_back(), len(self.webhook.arrivals.missing(old)), len(self.mqtt.missing(old)),
            self.webhook.arrivals.repeated, self.mqtt.repeated,
        )  # fmt: skip
        return dict(zip(TOTALS, counts, strict=True))


def load_cameras(plan: LoadPlan) -> dict[str, str]:
    """The load's cameras and their sources, which are served by pods."""
    mjpeg, h264 = (f"{kind}.{SITE}.svc:{port}" for kind, port in STREAMS.items())
    cameras = {f"mjpeg-{number}": f"http://{mjpeg}/camera-{number}.mjpg" for number in range(1, plan.mjpeg + 1)}
    return cameras | {f"h264-{number}": f"rtsp://{h264}/camera-{number}" for number in range(1, plan.h264 + 1)}


@asynccontextmanager
async def running_soak(
    diary: Diary, folder: Path, plan: LoadPlan, film: Film, *, alerts: bool, leave: bool
) -> AsyncIterator[SoakRelease]:
    """Run the release of a soak in a cluster that is clean before and after; `alerts`, `leave`: `running_release`."""
    cluster = await Cluster.connect(diary)
    host = await cluster.neighbour()
    if plan.audited:
        with diary.step("an audit log of the operator's requests"):
            await AuditLog(cluster).begin()
    async with AsyncExitStack() as stack:
        webhook = WebhookReceiver(host, Arrivals(folder, "webhook"))
        await webhook.start()
        stack.push_async_callback(webhook.stop)
        broker = Mosquitto(folder / "broker", host=host)
        await asyncio.to_thread(broker.start)
        stack.callback(broker.stop)
        build = partial(SoakRelease, plan=plan, webhook=webhook, broker=broker, mqtt=Arrivals(folder, "mqtt"))
        running = running_release(diary, FIRES, film, several_hubs=True, alerts=alerts, build=build, leave=leave)
        release = await stack.enter_async_context(running)
        if alerts:
            release.alerts = release.prometheus
        yield release


def surge_fleet(sensors: Sequence[str], expose: Json) -> Json:
    """Return a fleet of `sensors` that the operator scales by its load, exposed as `expose` says.

    A tenth of a core, the least that may be declared, is all that a shard is to use.
    """
    return {
        "apiVersion": BETA,
        "kind": "SensorFleet",
        "metadata": {"name": SURGE, "namespace": SITE},
        "spec": {
            "sensors": [{"id": id_, "zone": id_} for id_ in sensors],
            "autoscaling": {
                "minShards": 1, "maxShards": SURGE_SHARDS, "targetUtilization": 0.1, "queueDepth": 500,
                "catchUp": "5s", "scaleDown": {"stabilization": "30s"},
            },
            "expose": expose,
        },
    }  # fmt: skip
