"""A building for the tests: a release of the chart, two fleets, simulated devices inside and outside the cluster.

Tests call `clean`, `prepare`, `install` and `apply_fleets` in this order, and `clean` again at the end. A `Site` owns
all background work of the run: devices, probers, the witness, and watches that follow fleets and events. The watches
retain the latest state of each fleet, on which `condition` and `covered` wait, and every change of Covered, from which
`dark` counts. Objects are compared with those from before the installation, so that nothing stays behind.
"""

import asyncio
import base64
import contextlib
import copy
import json
import secrets
import tempfile
import time
import urllib.request
from collections.abc import Coroutine, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from embereye.process.identity.authority import Authority
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity
from harness.cluster.adapter import ADAPTER_ROLES, METRICS
from harness.cluster.balancer import BALANCER, BALANCER_ROLES
from harness.cluster.cluster import NAME, ROOT, Cluster, CommandError, Json, node_ports, script, until
from harness.cluster.enforcer import enforce_policies
from harness.cluster.keda import KEDA, KEDA_READER, KEDA_ROLES
from harness.cluster.prometheus import MONITORING
from harness.devices import Film, PushCamera, TextDevice
from harness.records.diary import Diary, Level
from harness.records.probers import EvidenceProber, IngestProber
from harness.records.witness import Witness
from harness.servers.identity import Issuer

CHART = ROOT / "charts" / "embereye"
IMAGE = f"embereye:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"  # built by `make image`
SIMULATORS = f"{IMAGE}-simulate"  # built by it, too
ADMIN_SECRET = "hub-admin"
MOUNTED_SECONDS = 180.0  # time limit for a changed Secret to reach the pods that mount it
RELEASE, SYSTEM, SITE = "embereye", "embereye", "site"  # the release, its namespace, the fleets' namespace
SENSORS, CAMERAS = "hall", "yard"  # the fleets
VOLUME = "embereye-e2e"
MONITORING_ROLES = ("prometheus-operator", "e2e-prometheus")
FOREIGN = (".monitoring.coreos.com", ".metallb.io", ".keda.sh")  # groups of other projects' kinds that tests install
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
OUTSIDE = "outside"  # suffix of the Services by which tests get in
SIMULATED_SENSORS = {f"s-{number:02}": f"store-{(number + 1) // 2}" for number in range(1, 9)}
SIMULATED_CAMERAS = {"c-1": "store-1", "c-2": "store-2"}
CAMERA_PORT = 8093
# Of cameras and databases: without requests, the release's pods leave them no CPU on a busy node.
REQUESTS = {"cpu": "100m", "memory": "128Mi"}
# The taints that autoscalers set on a node before they remove it.
TAINTS = ("ToBeDeletedByClusterAutoscaler=1700000000:NoSchedule", "karpenter.sh/disrupted:NoSchedule")


class Site:
    """Everything of a run. Call `clean` before and after; tests drive the rest."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.diary: Diary = cluster.diary
        self.entrance = ""  # the address for NodePorts
        self.token = secrets.token_urlsafe(32)  # of the hub's administrator
        self.home_node = ""  # the node with the hub's volume
        self.installed_ns = 0
        self.before: set[str] = set()
        self.texts: dict[str, TextDevice] = {}
        self.ingest: list[IngestProber] = []
        self.cameras: list[PushCamera] = []
        self.witness: Witness
        self.evidence: EvidenceProber
        self._fleets: dict[tuple[str, str], Json] = {}  # kind and name → latest state from the API server
        # kind and name → changes of Covered: monotonic seconds, and the new value
        self._coverage: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._identities = tempfile.TemporaryDirectory(prefix="embereye-e2e-")

    # --- background work ---

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run `work` until the run ends. The diary and `check_tasks` report its failure."""
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.diary.note("harness", f"{task.get_name()} failed: {error!r}", "bad")

    async def stop(self, *names: str) -> None:
        """Cancel background work; all of it without names."""
        for name in names or list(self._tasks):
            task = self._tasks.pop(name)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    async def ended(self, name: str, limit: float) -> None:
        """Wait until a piece of background work has ended."""
        async with asyncio.timeout(limit):
            await asyncio.shield(self._tasks[name])

    def check_tasks(self) -> None:
        """Raise AssertionError if a piece of background work has failed."""
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise AssertionError(f"{name} failed: {error!r}") from error

    # --- the cluster's side ---

    async def clean(self) -> None:
        """Remove everything that this run or an earlier one left behind."""
        cluster = self.cluster
        for node in await cluster.nodes():
            await cluster.power_on(node)
        with contextlib.suppress(CommandError):
            if RELEASE in (await cluster.helm("list", "--namespace", SYSTEM, "--short", "--all")).split():
                await cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
        gone = ("delete", "--ignore-not-found", "--timeout=180s")
        # Shards wait for their successors and for the hub, so they go first; deleting the namespace would take longer.
        await cluster.kubectl(*gone, "--namespace", SITE, "deployments", "--all")
        await cluster.kubectl(*gone, "--namespace", SITE, "pods", "--all", "--grace-period=1")
        await cluster.kubectl(*gone, "namespace", SYSTEM, SITE, limit=200)
        await cluster.kubectl(*gone, "persistentvolume", VOLUME)
        crds = [f"{plural}.embereye.dev" for plural in ("sensorfleets", "camerafleets", "fleetbackups")]
        known = (await cluster.kubectl("get", "customresourcedefinitions", "--output", "name")).split()
        crds += [name.partition("/")[2] for name in known if name.endswith(FOREIGN)]
        # First, because the server must be able to list every kind before it can delete a namespace.
        await cluster.kubectl(*gone, "apiservice", METRICS)
        await cluster.kubectl(*gone, "namespace", MONITORING, BALANCER, KEDA)
        await cluster.kubectl(*gone, "customresourcedefinition", *crds)
        await cluster.kubectl(
            *gone, "clusterrole,clusterrolebinding", *MONITORING_ROLES, *BALANCER_ROLES, *ADAPTER_ROLES, *KEDA_ROLES
        )
        await cluster.kubectl(*gone, "clusterrolebinding", f"{ADAPTER_ROLES[0]}-delegator")
        await cluster.kubectl(*gone, "--namespace", "kube-system", "rolebinding", ADAPTER_ROLES[0], KEDA_READER)
        for node in await cluster.nodes():
            await cluster.kubectl("uncordon", node)
            for taint in TAINTS:
                await cluster.kubectl(
                    "taint", "node", node, f"{taint.partition('=')[0].partition(':')[0]}-", check=False
                )
            await cluster.on_node(node, "rm", "-rf", "/var/lib/embereye-e2e")

    async def prepare(self) -> None:
        """Load the image, and create the hub's volume and the namespaces, which admit only restricted pods."""
        await script("load", IMAGE, SIMULATORS)
        await enforce_policies(self.cluster, IMAGE)
        self.entrance = await self.cluster.entrance()
        self.home_node = min(await self.cluster.nodes())
        path = f"/var/lib/embereye-e2e/{self.diary.started_ns}"
        await self.cluster.on_node(self.home_node, "mkdir", "-p", path)
        await self.cluster.apply(_namespace(SYSTEM), _namespace(SITE), _volume(path, self.home_node))
        for namespace in (SYSTEM, SITE):
            await self.cluster.existing("serviceaccount", "default", namespace, 20)
            await self.cluster.existing("configmap", "kube-root-ca.crt", namespace, 20)
        self.before = await self.objects()

    async def objects(self) -> set[str]:
        """Every lasting object, as "namespace/kind/name"."""
        listed = await self.cluster.kubectl("api-resources", "--verbs=list", "--output", "name")
        fleeting = ("events", "leases.", "pods.metrics", "nodes.metrics", "componentstatuses")
        kinds = [kind for kind in listed.split() if not kind.startswith(fleeting)]
        columns = "custom-columns=N:.metadata.namespace,K:.kind,M:.metadata.name"
        out = await self.cluster.kubectl(
            "get", ",".join(kinds), "--all-namespaces", "--no-headers", "--output", columns, "--ignore-not-found"
        )
        rows = (line.split() for line in out.splitlines())
        return {"/".join(row) for row in rows if row[:2] != ["kube-system", "Pod"]}

    async def added(self) -> set[str]:
        """The objects that were added since the installation."""
        return await self.objects() - self.before

    async def removed(self) -> set[str]:
        """The objects that were removed since the installation."""
        return self.before - await self.objects()

    async def install(self, *values: str, chart: Path = CHART) -> None:
        """Run `helm install` as a user does, with a NodePort for the hub and, without `values`, its volume."""
        self.installed_ns = time.time_ns()
        await self.cluster.apply(_namespace(SYSTEM), _admin_secret(self.token))
        await self._helm("install", chart, values)

    async def change_admin_token(self) -> None:
        """Replace the administrator's token. Returns when the hub accepts it."""
        token = secrets.token_urlsafe(32)
        await self.cluster.apply(_admin_secret(token))

        async def accepted() -> bool:
            try:
                await self._devices(token)
            except OSError:
                return False
            return True

        await until(accepted, bool, "the hub accepts the administrator's new token", MOUNTED_SECONDS)
        self.token = token

    async def upgrade(self, *values: str) -> None:
        """Run `helm upgrade` to this version, with the same extra values as `install`."""
        await self._helm("upgrade", CHART, values)

    async def _helm(self, command: str, chart: Path, values: tuple[str, ...]) -> None:
        changed = (
            "hub.service.type=NodePort",
            f"hub.adminToken.existingSecret={ADMIN_SECRET}",  # stays the same even if the hub has no volume
            "operator.clusterWide=true",  # fleets are in a separate namespace
            *(values or (f"hub.persistence.storageClass={VOLUME}",)),
        )
        options = [argument for value in changed for argument in ("--set", value)]
        await self.cluster.helm(command, RELEASE, str(chart), "--namespace", SYSTEM, *options)

    async def apply_fleets(self, *fleets: Json) -> None:
        """Declare `fleets`, by default all. Waits until the API server serves the new kinds."""
        fleets = fleets or (self.sensor_fleet(), self.camera_fleet())

        async def applied() -> str:
            try:
                await self.cluster.apply(*fleets)
            except CommandError as error:
                return str(error)
            return ""

        await until(applied, lambda problem: not problem, "the fleets are accepted", 30)
        for kind, plural in (("sf", "sensorfleets"), ("cf", "camerafleets")):
            if f"follow-{plural}" not in self._tasks:
                self.start(self._follow(kind, f"{plural}.embereye.dev"), f"follow-{plural}")

    async def exposed(self, kind: str, name: str, *, device: str = "") -> dict[str, str]:
        """Protocol → the address by which outside devices reach a fleet, or by which the camera `device` sends."""
        known = await self._addresses(kind, name)
        mine = [entry for entry in known if not entry.get("shard") and entry.get("device", "") == device]
        return {entry["protocol"]: entry["address"] for entry in mine}

    async def advertised(self, kind: str, name: str) -> set[str]:
        """The addresses to which gRPC senders may be redirected."""
        return {entry["address"] for entry in await self._addresses(kind, name) if entry["protocol"] == "grpc"}

    async def _addresses(self, kind: str, name: str) -> list[Json]:
        await self.condition(kind, name, 60, Exposed=True)
        addresses: list[Json] = self._fleets[kind, name]["status"]["addresses"]
        return addresses

    async def hub(self) -> str:
        """The hub's gRPC address from here."""
        service = await self.cluster.existing("service", f"{RELEASE}-hub", SYSTEM, 30)
        return f"{self.entrance}:{node_ports(service)['grpc']}"

    async def console(self) -> str:
        """The console's address from here."""
        service = await self.cluster.existing("service", f"{RELEASE}-hub", SYSTEM, 30)
        return f"http://{self.entrance}:{node_ports(service)['http']}"

    async def watchers(self) -> dict[str, list[str]]:
        """Device → the names of the shards that reported it last, to choose targets for faults."""
        return {device["id"]: device.get("shards", []) for device in await self._devices(self.token)}

    async def _devices(self, token: str) -> list[Json]:
        """Ask the hub for its devices with `token`. Raises OSError if the hub refuses."""
        url = f"{await self.console()}/v1/devices"

        def ask() -> list[Json]:
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=5) as answer:
                devices: list[Json] = json.load(answer)["devices"]
            return devices

        return await asyncio.to_thread(ask)

    async def hub_control(self) -> str:
        """Open the hub's control port to the tests, for clients with a shard's certificate: see `identity`."""
        service = await self.cluster.existing("service", f"{RELEASE}-hub-control", SYSTEM, 30)
        door = _door(service, f"{RELEASE}-hub-control", service["spec"]["selector"], ("control",))
        door["metadata"]["namespace"] = SYSTEM
        # The release's policy admits only EmberEye's pods.
        name = f"{RELEASE}-hub-control-{OUTSIDE}"
        policy = {
            **_named("networking.k8s.io/v1", "NetworkPolicy", name, SYSTEM, {"e2e": OUTSIDE}),
            "spec": {
                "podSelector": {"matchLabels": service["spec"]["selector"]},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": "control", "protocol": "TCP"}]}],
            },
        }
        await self.cluster.apply(door, policy)
        made = await self.cluster.existing("service", name, SYSTEM, 30)
        return f"{self.entrance}:{node_ports(made)['control']}"

    async def identity(self, identity: Identity) -> Credentials:
        """Issue a certificate from the release's authority for a process that a test plays."""
        stored = (await self.cluster.existing("secret", f"{RELEASE}-ca", SYSTEM, 30))["data"]
        authority = Authority.load(*(base64.b64decode(stored[name]) for name in ("ca.crt", "ca.key")))
        return Credentials(Issuer(Path(self._identities.name), authority).folder(identity))

    async def _follow(self, kind: str, resource: str) -> None:
        """Follow the fleets of a kind, and note changes of their conditions, until cancelled."""
        known: dict[str, str] = {}
        while True:
            async for fleet in self.cluster.watch(resource, "--namespace", SITE):
                name = fleet["metadata"]["name"]
                self._fleets[kind, name] = fleet
                for condition in fleet.get("status", {}).get("conditions", []):
                    place, state = f"{kind}/{name} {condition['type']}", f"{condition['status']} {condition['reason']}"
                    if known.get(place) == state:
                        continue
                    known[place] = state
                    level: Level = "info"
                    if condition["type"] == "Covered":
                        covered = condition["status"] == "True"
                        level = "good" if covered else "bad"
                        self._coverage.setdefault((kind, name), []).append((time.monotonic(), covered))
                    text = f"{place}={condition['status']} {condition.get('message', '')}"
                    self.diary.note("fleet", text[:500], level, 0)
            await asyncio.sleep(1)

    async def follow_events(self) -> None:
        """Put the cluster's events into the diary, until cancelled."""
        started = self.diary.started_ns / 1e9
        async for event in self.cluster.watch("events", "--all-namespaces"):
            if event["metadata"].get("namespace") not in {SYSTEM, SITE, "default"}:
                continue
            about = event["involvedObject"]
            text = f"{about.get('kind')}/{about.get('name')} {event.get('reason')}: {event.get('message', '')}"
            if time.time() - started < 3 and event.get("count", 1) > 1:
                continue
            self.diary.note("event", text[:400], "bad" if event.get("type") == "Warning" else "info")

    async def fleet(self, kind: str, name: str) -> Json:
        """Read a fleet from the API server."""
        return await self.cluster.get(kind, name, "--namespace", SITE) or {}

    async def condition(self, kind: str, name: str, limit: float, **wanted: bool) -> None:
        """Wait until the fleet's status, for its current declaration, has these conditions."""
        generation = (await self.fleet(kind, name))["metadata"]["generation"]

        async def conditions() -> dict[str, str]:
            status = self._fleets.get((kind, name), {}).get("status", {})
            if status.get("observedGeneration", 0) < generation:
                return {}
            return {entry["type"]: f"{entry['status']} {entry.get('message', '')}" for entry in status["conditions"]}

        def satisfied(now: dict[str, str]) -> bool:
            return all(now.get(type_, "").startswith(str(value)) for type_, value in wanted.items())

        await until(conditions, satisfied, f"{kind}/{name} {wanted}", limit, 0.05)

    def dark(self, kind: str, name: str, since: float) -> float:
        """The seconds since `since` (monotonic) in which the fleet's status did not say Covered=True."""
        changes = [*self._coverage.get((kind, name), []), (time.monotonic(), True)]
        return sum(
            max(0.0, until - max(start, since)) for (start, covered), (until, _) in pairwise(changes) if not covered
        )

    async def evict(self, pod: Json) -> bool:
        """Request a pod's eviction, as an autoscaler does. Returns True if it was accepted."""
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        out = await self.cluster.kubectl(
            "create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction), check=False
        )
        return bool(out)

    async def covered(self, kind: str, name: str, limit: float, *, wanted: bool = True) -> None:
        """Wait until the fleet's status says Covered=`wanted`."""
        await self.condition(kind, name, limit, Covered=wanted)

    async def pods(self, *, component: str = "", fleet: str = "", namespace: str = SITE) -> list[Json]:
        """The pods that are not being deleted, sorted by name."""
        labels = [f"app.kubernetes.io/component={component}"] if component else []
        labels += [f"app.kubernetes.io/instance={fleet}"] if fleet else []
        pods = await self.cluster.items("pods", "--namespace", namespace, "--selector", ",".join(labels))
        return sorted(
            (pod for pod in pods if not pod["metadata"].get("deletionTimestamp")),
            key=lambda pod: str(pod["metadata"]["name"]),
        )

    # --- declared objects ---

    @property
    def node_ports(self) -> Json:
        """The `spec.expose` for devices outside the pod network."""
        return {"type": "NodePort", "advertisedHost": self.entrance}

    def sensor_fleet(self) -> Json:
        """All sensors: simulated in pods, text devices outside, the ingest probers."""
        zones = {**SIMULATED_SENSORS, **TEXTS, **INGEST}
        return {
            **_named("embereye.dev/v1alpha1", "SensorFleet", SENSORS, SITE),
            "spec": {
                "sensors": [{"id": name, "zone": zone} for name, zone in zones.items()],
                "shards": 1,
                "autoscaling": {"mode": "none"},
                "expose": self.node_ports,
            },
        }

    def camera_fleet(self) -> Json:
        """Cameras that are fetched over HTTP, and pushing cameras."""
        fetched = [
            {"id": name, "zone": zone, "source": f"http://cameras.{SITE}.svc:{CAMERA_PORT}/{name}.mjpg"}
            for name, zone in SIMULATED_CAMERAS.items()
        ]
        pushed = [{"id": name, "zone": zone, "source": "push"} for name, zone in PUSHED.items()]
        return {
            **_named("embereye.dev/v1alpha1", "CameraFleet", CAMERAS, SITE),
            "spec": {
                "cameras": [*fetched, *pushed],
                "detection": {"detectors": ["motion", "flame"]},
                "shards": 1,
                "autoscaling": {"mode": "none"},
                "expose": self.node_ports,
            },
        }

    async def start_simulators(self) -> None:
        """Start simulator pods on the hub's node, where a drain of the other node does not affect them."""
        sensors = ",".join(f"{name}={zone}" for name, zone in SIMULATED_SENSORS.items())
        cameras = ",".join(f"{name}={zone}" for name, zone in SIMULATED_CAMERAS.items())
        await self.cluster.apply(
            simulator("sensors", ["--target", f"{SENSORS}-sensors.{SITE}.svc:9001", "--devices", sensors,
                                   "--rate", "20", "--frame-rate", "2"], self.home_node),
            simulator("cameras", ["--listen", f"0.0.0.0:{CAMERA_PORT}", "--cameras", cameras, "--fps", "10",
                                   "--size", "320x240"], self.home_node),
            camera_service("cameras", CAMERA_PORT),
        )  # fmt: skip

    async def start_text_devices(self, devices: Mapping[str, str]) -> None:
        """Start text devices, name → zone, of the sensor fleet."""
        host, _, port = (await self.exposed("sf", SENSORS))["tcp"].rpartition(":")
        for name, zone in devices.items():
            device = self.texts[name] = TextDevice(name, zone, host, int(port))
            self.start(device.run(), f"text-{name}")

    async def start_devices(self, film: Film) -> None:
        """Start the devices outside."""
        await self.start_text_devices(TEXTS)
        sensors, cameras = await self.exposed("sf", SENSORS), await self.exposed("cf", CAMERAS)
        for name in INGEST:
            prober = IngestProber(name, sensors["grpc"], self.diary)
            self.ingest.append(prober)
            self.start(prober.run(), f"ingest-{name}")
        for name, zone in PUSHED.items():
            camera = PushCamera(name, zone, cameras["grpc"], film, self.diary)
            self.cameras.append(camera)
            self.start(camera.run(), f"camera-{name}")

    def text_in(self, zone: str) -> TextDevice:
        """The text device of a zone."""
        return next(device for device in self.texts.values() if device.zone == zone)

    def gap(self, since: float) -> float:
        """The longest time, in seconds, that an ingest prober had no acknowledgement since `since` (monotonic)."""
        now = time.monotonic()
        return max(prober.gap(since, now) for prober in self.ingest)

    async def ingest_well(self, limit: float = 30) -> None:
        """Wait until every ingest prober is acknowledged again."""
        await asyncio.gather(*(prober.well(limit) for prober in self.ingest))

    def taken_back(self) -> list[str]:
        """The acknowledged readings that a shard requested again."""
        return [entry for prober in self.ingest for entry in prober.taken_back]


FIRE_ZONES = [f"fire-{number:02}" for number in range(1, 13)]
TEXTS = {f"t-{number:02}": zone for number, zone in enumerate(FIRE_ZONES, 1)} | {
    "t-21": "shard-killed",
    "t-22": "while-shard-away",
    "t-23": "hub-killed",
    "t-24": "while-hub-away",
    "t-25": "edited",
}
INGEST = {f"g-{number}": f"probe-{number}" for number in range(1, 7)}
PUSHED = {f"p-{number}": f"flame-{number}" for number in range(1, 4)}


def _named(version: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Json:
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _namespace(name: str) -> Json:
    """A namespace that admits only restricted pods. Applied without the labels, it would lose them."""
    return _named("v1", "Namespace", name, labels=RESTRICTED)


def _volume(path: str, node: str) -> Json:
    """A local volume on one node, because these clusters have no provisioner. Kubelet assigns it to the pod's group."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
    return {
        **_named("v1", "PersistentVolume", VOLUME),
        "spec": {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": VOLUME,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def _admin_secret(token: str) -> Json:
    coded = base64.b64encode(token.encode()).decode()
    return {**_named("v1", "Secret", ADMIN_SECRET, SYSTEM, {}), "data": {"token": coded}}


def _door(service: Json, name: str, selector: dict[str, str], ports: tuple[str, ...]) -> Json:
    chosen = [port for port in copy.deepcopy(service["spec"]["ports"]) if port["name"] in ports]
    return {
        **_named("v1", "Service", f"{name}-{OUTSIDE}", SITE, {"e2e": OUTSIDE}),
        "spec": {
            "type": "NodePort",
            "selector": selector,
            "ports": [{key: port[key] for key in ("name", "port", "targetPort", "protocol")} for port in chosen],
        },
    }


def camera_service(name: str, port: int) -> Json:
    """The Service of the simulator `name`, whose cameras listen on `port`."""
    return {**_named("v1", "Service", name, SITE), "spec": {"selector": {"simulator": name}, "ports": [{"port": port}]}}


def simulator(kind: str, arguments: Sequence[str], node: str, name: str = "") -> Json:
    """A Deployment of `embereye simulate KIND` on a node. `name` is for a second one of the same kind."""
    labels = {"simulator": name or kind}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        **_named("apps/v1", "Deployment", f"simulated-{name or kind}", SITE),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "simulator",
                            "image": SIMULATORS,
                            "args": ["simulate", kind, *arguments],
                            "resources": {"requests": REQUESTS},
                            "securityContext": security,
                        }
                    ],
                },
            },
        },
    }


def results_folder() -> Path:
    """A new folder for one run's results."""
    return ROOT / "e2e" / "results" / time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())


__all__ = ["NAME", "Site", "results_folder"]
