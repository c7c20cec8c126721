"""A release in a cluster, the target of faults: two sensor shards, one camera shard, devices outside the pods.

`running_release` cleans a cluster, installs the release, starts devices, probers and the witness, and cleans it again.
A `Release` is the matrix's building: it lights a further sensor at each call, and answers from the probers' books. It
has one hub with a volume, or two hubs on a PostgreSQL in a pod and a NATS outside the cluster.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from embereye_operator.api.bounds import COVERED_SECONDS
from harness.cluster.cluster import Cluster, Json, until
from harness.cluster.postgres_pod import PostgresPod, install_postgres
from harness.cluster.prometheus import LABELS, Prometheus, install_prometheus
from harness.cluster.site import CAMERAS, SENSORS, SITE, SYSTEM, VOLUME, Site
from harness.devices import Film, PushCamera, TextDevice, fire_id
from harness.matrix.rules import lapsed_rules
from harness.records.diary import Diary
from harness.records.probers import EvidenceProber, IngestProber, is_admitted
from harness.records.witness import Witness
from harness.servers.nats import Nats, run_nats

PROBED = 6  # sensors whose readings are all accounted for
SHARDS = 2
CAMERA = "watched"
TOKENS = "devices"  # the Secret of the devices' tokens
ACCESS = {"networks": ["0.0.0.0/0"], "tokensRef": {"name": TOKENS}}  # text devices have no tokens
PORTS = {"tcp": 30061, "grpc": 30051, "shards": 30070}  # fixed node ports, the same after the fleet is applied again
BETA = "embereye.dev/v1beta1"
# Scraped by this run's Prometheus, which has faster rules.
MONITORED = (
    "monitoring.enabled=true", "monitoring.interval=1s", "monitoring.rules.enabled=false",
    *(f"monitoring.labels.{key}={value}" for key, value in LABELS.items()),
)  # fmt: skip
DATABASE = "hub-database"  # the Secret with the database's address


@dataclass(frozen=True)
class Engines:
    """The servers that several hubs share."""

    postgres: PostgresPod
    nats: Nats

    def values(self) -> tuple[str, ...]:
        """The chart values for two hubs on these servers."""
        return (
            "hub.replicas=2", "hub.persistence.enabled=false", f"hub.database.dsnSecret.name={DATABASE}",
            f"hub.nats.servers={{{self.nats.address}}}",
        )  # fmt: skip

    def secret(self) -> Json:
        """The Secret with the database's address."""
        coded = base64.b64encode(self.postgres.address.encode()).decode()
        metadata = {"name": DATABASE, "namespace": SYSTEM}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"dsn": coded}}


class Release:
    """The release under attack, its devices, and the probers and witness that keep books on both."""

    evidence_rate, evidence_zones = 5.0, 0  # of the evidence prober: items/s, and zones in turn (0: a new one each)

    def __init__(self, site: Site, fires: int, engines: Engines | None = None) -> None:
        """`fires` is the number of sensors that each burn once and are quiet before."""
        self.site = site
        self.engines = engines
        self.cluster: Cluster = site.cluster
        self.diary: Diary = site.diary
        self.witness: Witness
        self.prober: EvidenceProber
        self.prometheus: Prometheus
        self.camera: PushCamera
        self.device_token = secrets.token_urlsafe()  # used by devices that can authenticate
        self.struck = 0.0
        self.shards = SHARDS
        self._fires = fires
        self._burnt = 0
        self.monitored = True  # a Prometheus evaluates our rules

    def close(self) -> None:
        """End what the release runs outside the cluster, except tasks of its site."""

    # --- declared objects ---

    def values(self) -> tuple[str, ...]:
        """The chart values of the release."""
        hub = self.engines.values() if self.engines else (f"hub.persistence.storageClass={VOLUME}",)
        return (*hub, *MONITORED) if self.monitored else hub

    @property
    def reach(self) -> Json:
        """The `spec.expose` by which every node accepts devices, even without a pod of the fleet on it."""
        return {**self.site.node_ports, "externalTrafficPolicy": "Cluster"}

    def sensor_fleet(self) -> Json:
        """The sensor fleet under attack."""
        names = [*map(fire_id, range(self._fires)), *(f"probed-{number}" for number in range(PROBED))]
        return {
            "apiVersion": BETA,
            "kind": "SensorFleet",
            "metadata": {"name": SENSORS, "namespace": SITE},
            "spec": {
                "sensors": [{"id": name, "zone": name} for name in names],
                "shards": self.shards,
                "autoscaling": {"mode": "none"},
                "access": ACCESS,
                "expose": {**self.reach, "ports": PORTS},
            },
        }

    def camera_fleet(self) -> Json:
        """A fleet of one pushing camera."""
        return {
            "apiVersion": BETA,
            "kind": "CameraFleet",
            "metadata": {"name": CAMERAS, "namespace": SITE},
            "spec": {
                "cameras": [{"id": CAMERA, "zone": CAMERA, "source": "push"}],
                "detection": {"detectors": ["motion", "flame"]},
                "fps": {"target": 10, "min": 3},
                "shards": 1,
                "autoscaling": {"mode": "none"},
                "access": ACCESS,
                "expose": self.reach,
            },
        }

    async def write_tokens(self, *tokens: str) -> None:
        """Write these tokens to the devices' Secret."""
        coded = base64.b64encode("\n".join(tokens).encode()).decode()
        labels = {"embereye.dev/allow-fleet-use": "true"}
        metadata = {"name": TOKENS, "namespace": SITE, "labels": labels}
        await self.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": coded}})

    async def admissions(self, token: str) -> set[bool]:
        """Dial every sensor shard with `token`. Returns the set of answers; True means admitted."""
        shards = await self.site.advertised("sf", SENSORS)
        return set(await asyncio.gather(*(is_admitted(shard, token) for shard in shards)))

    def show_token(self, token: str) -> None:
        """Make devices authenticate with `token` from now on."""
        self.device_token = self.camera.token = token
        for prober in self.site.ingest:
            prober.token = token

    async def wait_until_at_rest(self) -> None:
        """Wait until the sensor fleet is covered as declared and no change is in progress."""
        await self.site.condition("sf", SENSORS, COVERED_SECONDS, Covered=True, Progressing=False)

    async def begin(self, film: Film) -> None:
        """Install the release and start devices, probers and the witness. Returns when all of them work."""
        site = self.site
        if self.engines:
            await self.cluster.apply(self.engines.secret())
        await site.install(*self.values())
        await self.write_tokens(self.device_token)
        await site.apply_fleets(self.sensor_fleet(), self.camera_fleet())
        self.witness = site.witness = Witness(await site.hub(), self.diary, token=lambda: site.token)
        site.start(self.witness.run(), "witness")
        known = await site.exposed("sf", SENSORS)
        host, _, port = known["tcp"].rpartition(":")
        for number in range(self._fires):
            device = TextDevice(fire_id(number), fire_id(number), host, int(port), period=1.0)
            site.texts[device.id] = device
            site.start(device.run(), device.id)
        for number in range(PROBED):
            prober = IngestProber(f"probed-{number}", known["grpc"], self.diary, token=self.device_token)
            site.ingest.append(prober)
            site.start(prober.run(), prober.device)
        home = (await site.exposed("cf", CAMERAS))["grpc"]
        self.camera = PushCamera(CAMERA, CAMERA, home, film, self.diary, token=self.device_token)
        site.start(self.camera.run(), CAMERA)
        credentials = await site.identity(EvidenceProber.identity(SITE))
        self.prober = EvidenceProber(
            await site.hub_control(), SITE, self.diary, credentials, rate=self.evidence_rate, zones=self.evidence_zones
        )
        site.start(self.prober.run(), "evidence prober")
        await self.wait_until_at_rest()
        await site.covered("cf", CAMERAS, COVERED_SECONDS)
        await self.well(COVERED_SECONDS)

    # --- devices and books ---

    async def well(self, limit: float) -> None:
        """Wait until the witness listens and every probed sensor is acknowledged. AssertionError after `limit`."""
        await until(self.witness.connected, bool, "the witness is connected", limit, 0.05)
        await self.site.ingest_well(limit)

    async def ignite(self) -> tuple[str, float]:
        """Set one more sensor on fire. Returns its zone and the monotonic seconds of its first line."""
        device = self.site.texts[fire_id(self._burnt)]
        self._burnt += 1
        await device.fire(ADC1=3600)
        return device.zone, time.monotonic()

    async def notified(self, zone: str, limit: float) -> None:
        """Return at once: these hubs notify nobody."""

    def put_out(self) -> None:
        """Put all fires out. Their alarms stay."""
        for number in range(self._burnt):
            self.site.texts[fire_id(number)].rest()

    def gap(self, since: float, until: float) -> float:
        """The longest time, in seconds, that any probed sensor had no acknowledgement."""
        return max(prober.gap(since, until) for prober in self.site.ingest)

    def moved(self, since: float, until: float) -> float:
        """The longest move of a probed sensor between shards, in seconds; 0 if none moved."""
        return max((prober.moved(since, until) for prober in self.site.ingest), default=0.0)

    def taken_back(self) -> int:
        """The number of acknowledged readings that a shard requested again."""
        return len(self.site.taken_back())


R = TypeVar("R", bound=Release)


@asynccontextmanager
async def running_release(
    diary: Diary, fires: int, film: Film, *, several_hubs: bool = False, alerts: bool = True,
    build: Callable[[Site, int, Engines | None], R] = Release,  # type: ignore[assignment]
    leave: bool = False,
) -> AsyncIterator[R]:  # fmt: skip
    """Run a release with working devices in a cluster that is clean before and after.

    `alerts`: a Prometheus evaluates our rules. `build` makes the release. `leave`: the next run cleans the cluster.
    """
    with diary.step("a clean cluster with the image"):
        site = Site(await Cluster.connect(diary))
        await site.clean()
        await site.prepare()
    stack = ExitStack()
    try:
        engines = None
        if several_hubs:
            with diary.step("a PostgreSQL in a pod, and a NATS outside the cluster"):
                postgres = await install_postgres(site.cluster, site.home_node, "embereye")
                host = await site.cluster.neighbour()
                engines = Engines(postgres, await asyncio.to_thread(stack.enter_context, run_nats(host)))
        release = build(site, fires, engines)
        stack.callback(release.close)
        release.monitored = alerts
        if alerts:
            with diary.step("the real Prometheus Operator"):  # on the node that no fault takes
                release.prometheus = await install_prometheus(site.cluster, site.home_node)
        with diary.step("installed, fleets covered, devices well"):
            await release.begin(film)
        if alerts:
            with diary.step("everything is scraped, and no alert fires"):
                await release.prometheus.follow(site.cluster, lapsed_rules())
        yield release
    finally:
        with stack:  # even if the cluster is gone
            await site.stop()
            if not leave:
                await asyncio.shield(site.clean())
