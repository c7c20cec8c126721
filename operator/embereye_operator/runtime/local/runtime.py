"""Applies decisions to this machine: a Deployment is a process, a ConfigMap a folder, a Service an address."""

import base64
import contextlib
import errno
import itertools
import json
import logging
import os
import socket
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from embereye.process.addresses import free_ports
from embereye.process.files import write_whole
from embereye.process.identity.authority import LIFE
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, Role
from embereye.process.lifecycle import UserError
from embereye.units import bracketed
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Peer, ShardStatus
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.manifests.container import CREDENTIALS_FOLDER
from embereye_operator.decide.manifests.names import served_names
from embereye_operator.runtime.links import Address, Hub, Shards
from embereye_operator.runtime.local.identities import LocalIdentities
from embereye_operator.runtime.local.processes import ProcessSpec, Supervisor

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
OPERATOR = Identity(Role.OPERATOR, "local", "operator")
HUB = Identity(Role.HUB, "local", "hub")
OWN_NAMES = ("localhost", "127.0.0.1", "::1")  # of this machine, in certificates that devices are shown
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Reach:
    """From where devices and people reach this machine."""

    listen: str = HOST  # address that their ports listen on; "::": all of both families, "0.0.0.0": all of IPv4
    advertised: str = HOST  # what they are told
    first_port: int = 0  # of the shards' own gRPC ports; 0: free ones

    @property
    def everywhere(self) -> bool:
        """Whether every address of this machine is listened on, loopback among them."""
        return self.listen in {"::", "0.0.0.0"}

    @property
    def inside(self) -> str:
        """Where this machine itself dials these ports."""
        return HOST if self.everywhere else self.listen

    @property
    def is_outer(self) -> bool:
        """Whether others than this machine can reach it."""
        return self.listen != "::1" and not self.listen.startswith("127.")


class PortTakenError(UserError):
    """Somebody else listens there."""


def check_port(port: int, what: str, remedy: str, host: str = HOST) -> None:
    """UserError where `port` cannot be listened on at `host`, PortTakenError where somebody else does: asked first."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            sentence = f"{host} is no address of this machine ({error.strerror}): name one that it has with --listen"
            raise UserError(sentence) from error
        taken = error.errno == errno.EADDRINUSE
        sentence = f"port {port} for {what} {'is taken' if taken else 'cannot be had'} ({error.strerror}): {remedy}"
        raise (PortTakenError if taken else UserError)(sentence) from error


@dataclass(frozen=True)
class ShardPorts:
    """Where one local shard listens, by the names of its container ports."""

    grpc: int
    tcp: int
    metrics: int
    control: int
    tls: int


class Objects:
    """The objects that exist here, by kind and name, each kept as a JSON file so that placement survives a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.all: dict[tuple[str, str, str], Manifest] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                self._put(json.loads(path.read_text()))
            except (ValueError, KeyError, TypeError):
                logger.warning("%s is not an object of ours: ignored", path)

    def _put(self, manifest: Manifest) -> None:
        self.all[_key(manifest)] = manifest

    def _path(self, key: tuple[str, str, str]) -> Path:
        return self._folder / f"{'.'.join(key)}.json"

    def put(self, manifest: Manifest, beside: Callable[[Manifest], None] = lambda _: None) -> None:
        """Keep `manifest`; what stood under its name is replaced whole, or not at all.

        It is there once its file and what `beside` writes of it are: what a full disk refused is asked for again.
        """
        write_whole(self._path(_key(manifest)), json.dumps(manifest, indent=1).encode(), durable=False)
        beside(manifest)
        self._put(manifest)

    def remove(self, manifest: Manifest) -> None:
        """Forget `manifest`."""
        key = _key(manifest)
        self.all.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def owned_by(self, uid: str) -> list[Manifest]:
        """The objects whose owner has this uid."""
        return [manifest for manifest in self.all.values() if _owned_by(manifest, uid)]


def identified(fleet: Fleet, generation: int) -> Fleet:
    """`fleet` with the identity that an API server would have given it; the same name is the same fleet.

    Without `spec.expose`: there is no cluster that devices could be outside of.
    """
    spec = replace(fleet.spec, expose=None)
    return replace(fleet, uid=str(uuid.uuid5(uuid.NAMESPACE_URL, fleet.key)), generation=generation, spec=spec)


def embereye_command(*arguments: str) -> tuple[str, ...]:
    """How to run `embereye ARGUMENTS` with this very installation."""
    return (sys.executable, "-m", "embereye_cli", *arguments)


def listen_ports(fleet: Fleet) -> dict[str, int]:
    """The ports that the fleet's Service has, by name."""
    ports = {"grpc": fleet.spec.listen.grpc}
    if isinstance(fleet.spec, SensorFleetSpec):
        ports["tcp"] = fleet.spec.listen.tcp
        if fleet.spec.listen.tls:
            ports["tls"] = fleet.spec.listen.tls
    return ports


def simulated_cameras(fleet: Fleet) -> dict[int, list[str]]:
    """The cameras with a source on this machine, as "id=zone", by the port that is to serve them."""
    served: dict[int, list[str]] = defaultdict(list)
    if isinstance(fleet.spec, CameraFleetSpec):
        for camera in fleet.spec.cameras:
            with contextlib.suppress(ValueError):  # it is no URL, as its shard says
                url = urlsplit(camera.source)
                if url.scheme == "http" and url.hostname in LOOPBACK and url.port:
                    served[url.port].append(f"{camera.id}={camera.zone}")
    return dict(served)


class LocalRuntime:
    """A `Runtime` of local processes.

    Every shard listens on ports of its own; the fleet's ports are shared between its shards by the kernel
    (SO_REUSEPORT), which spreads connections over them as a Service does.
    """

    def __init__(
        self,
        data: Path,
        hub: str,
        supervisor: Supervisor,
        life: timedelta = LIFE,
        reach: Reach = Reach(),
        taken: Set[int] = frozenset(),
    ) -> None:
        """`hub` is the host:port of the hub's control port; certificates last for `life`.

        Shards are given no port of those `taken`, which may become more.
        """
        self._data = data
        self._reach = reach
        self._taken = taken
        # Where the Secrets that fleets name are folders; none is made here.
        self._credentials = Path(os.environ.get("EMBEREYE_CREDENTIALS") or data / "credentials").resolve()
        self.identities = LocalIdentities(data / "identity", life)
        self.credentials = Credentials(self.identities.folder(OPERATOR))
        self._hub = Hub(hub, self.credentials)
        self._shards = Shards(self.credentials)
        self._supervisor = supervisor
        self._objects = Objects(data / "objects")
        self._processes: dict[tuple[str, str, str], Manifest] = {}  # Deployments: they exist as long as we do
        self._ports: dict[str, ShardPorts] = {}  # by the name of the process
        self.statuses: dict[str, Manifest] = {}  # by fleet key
        self._unwritten: dict[Path, bytes] = {}  # files of statuses that the disk had no room for
        self.scales: dict[str, int] = {}  # spec.shards by fleet key, where it was scaled

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """Names alone: what is in memory need not be asked for its version."""
        return {(child["kind"], child["metadata"]["name"]): "" for child in await self.children(fleet)}

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """The fleet's objects; a Deployment is available while its process runs."""
        deployments = [
            {**manifest, "status": {"availableReplicas": int(self._supervisor.runs(_process_name(manifest)))}}
            for manifest in self._processes.values()
            if _owned_by(manifest, fleet.uid)
        ]
        return [*self._objects.owned_by(fleet.uid), *deployments]

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """Make it so; nobody else makes objects here."""
        match manifest["kind"]:
            case "Deployment":
                self._processes[_key(manifest)] = manifest
                await self._supervisor.ensure(self._process(manifest))
            case "ConfigMap":
                self._objects.put(manifest, self._write_files)
            case _:
                self._objects.put(manifest)
        return manifest

    async def delete(self, manifest: Manifest) -> None:
        """Stop or forget it; a shard drains on SIGTERM."""
        if manifest["kind"] == "Deployment":
            (_, namespace, shard), name = _key(manifest), _process_name(manifest)
            self._processes.pop(_key(manifest), None)
            await self._supervisor.stop(name)
            if ports := self._ports.pop(name, None):  # the next one of its name has others
                await self._shards.forget(Address(namespace, shard, f"{HOST}:{ports.control}"))
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                self.identities.forget(_identity(manifest["metadata"], container))
        else:
            self._objects.remove(manifest)

    async def delete_fleet(self, fleet: Fleet) -> None:
        """Delete everything the fleet owns, as the garbage collector of a cluster does."""
        for child in await self.children(fleet):
            await self.delete(child)
        self.statuses.pop(fleet.key, None)
        self.scales.pop(fleet.key, None)
        self._unwritten.pop(self._status_file(fleet), None)
        self._status_file(fleet).unlink(missing_ok=True)

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        """None: without a cluster there are no ConfigMaps of the user's."""
        return {}

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str] | None:
        """None: whoever writes the manifests here can read the files, too."""
        return None

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """A shard gets its certificate when it is started; with names that devices dial, where they are shown it."""
        for shard in shards:
            identity = Identity(Role.SHARD, fleet.namespace, shard, fleet.key)
            self.identities.add_names(identity, served_names(fleet, *OWN_NAMES, *self._told_names()))

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """The shard's own ports: for senders where they are told to go, for our own processes on loopback."""
        ports = self._shard_ports(fleet.namespace, shard)
        told = f"{bracketed(self._reach.advertised)}:{ports.grpc}"
        return Peer(shard=shard, grpc=told, control=f"{HOST}:{ports.control}")

    def hub_address(self, name: str) -> str:
        """Shards are started with a number."""
        return ""

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """As the hub said."""
        return self._hub.epochs.get(fleet.key, 0)

    def _told_names(self) -> Sequence[str]:
        return () if self._reach.advertised in OWN_NAMES else (self._reach.advertised,)

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """Ask the shard."""
        return await self._shards.status(self._address(fleet, shard))

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """Tell the shard."""
        return await self._shards.assign(self._address(fleet, shard), assignment)

    def _address(self, fleet: Fleet, shard: str) -> Address:
        return Address(fleet.namespace, shard, f"{HOST}:{self._shard_ports(fleet.namespace, shard).control}")

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """Override the manifest's spec.shards as long as we run."""
        self.scales[fleet.key] = shards

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        """None: there is nobody else here."""
        return ()

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        """None: this machine is the only node."""
        return {}

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        """None: what keeps a process from running is in the log."""
        return {}

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        """Never asked for where nothing is displaced."""

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        """None: nobody evicts processes."""
        return None

    @property
    def sees_nodes(self) -> bool:
        """There is nothing to see."""
        return True

    def offers(self, kind: str) -> bool:
        """Only what becomes a process, an address or a folder."""
        return kind in {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget"}

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        """Keep the status for the display, and as a file for `embereye explain`."""
        self.statuses[fleet.key] = status
        self._unwritten[self._status_file(fleet)] = json.dumps({**fleet.manifest, "status": status}).encode()
        self.write_statuses()

    def write_statuses(self) -> str:
        """Write what statuses are not in their files yet; why some are not even now, '' where all are.

        A pass does not fail by it: what a fleet is told and whether its devices are watched is not less true.
        """
        for path, content in list(self._unwritten.items()):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, content, durable=False)
            except OSError as error:
                return error.strerror or str(error)
            del self._unwritten[path]
        return ""

    def _status_file(self, fleet: Fleet) -> Path:
        return self._data / "fleets" / f"{fleet.key.replace('/', '.')}.json"

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """Tell the hub: there is one."""
        return await self._hub.set(roster)

    async def tell_scaling(self, scaling: FleetScaling) -> None:
        """Tell the hub."""
        await self._hub.tell_scaling(scaling)

    async def retain(self, fleets: Sequence[str]) -> None:
        """Tell the hub."""
        await self._hub.retain(fleets)

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Log it: `embereye up` shows the conditions themselves."""
        logger.info("%s %s %s: %s", fleet.key, type_, reason, message)

    def endpoints(self, fleet: Fleet) -> dict[str, Any]:
        """Where the fleet and each of its shards listen."""
        shards = {}
        host = bracketed(self._reach.advertised)
        for manifest in self._processes.values():
            if _owned_by(manifest, fleet.uid):
                name = manifest["metadata"]["name"]
                ports = self._shard_ports(fleet.namespace, name)
                shards[name] = {"grpc": f"{host}:{ports.grpc}", "metrics": f"http://{HOST}:{ports.metrics}/metrics"}
                if isinstance(fleet.spec, SensorFleetSpec):
                    shards[name]["tcp"] = f"{HOST}:{ports.tcp}"
        service = {name: f"{host}:{port}" for name, port in listen_ports(fleet).items()}
        return {"service": service, "shards": shards}

    def simulators(self, fleet: Fleet, fire: str) -> list[ProcessSpec]:
        """The processes that play the fleet's devices; `fire` is a script such as "at=15,for=60,zone=hall"."""
        script = ("--fire", fire) if fire else ()
        name = fleet.key.replace("/", "-")
        if isinstance(fleet.spec, SensorFleetSpec):
            devices = ",".join(f"{sensor.id}={sensor.zone}" for sensor in fleet.spec.sensors)
            tls, ports = fleet.spec.access and fleet.spec.access.tls, fleet.spec.listen
            secured = tls and ports.tls and tls.clients is None and tls.secret_ref is None
            target = f"{bracketed(self._reach.inside)}:{ports.tls if secured else ports.tcp}"
            command = embereye_command("simulate", "sensors", "--target", target, "--devices", devices, *script)
            if secured:
                command += ("--tls", "--ca", str(self.identities.authority))
            return [ProcessSpec(f"simulate-{name}", command)] if devices else []
        return [
            ProcessSpec(
                f"simulate-{name}-{port}",
                embereye_command(
                    "simulate", "cameras", "--listen", f"{HOST}:{port}", "--cameras", ",".join(cameras), *script
                ),
            )
            for port, cameras in simulated_cameras(fleet).items()
        ]

    async def close(self) -> None:
        """Close the connections."""
        await self._shards.close()
        await self._hub.close()

    def _shard_ports(self, namespace: str, shard: str) -> ShardPorts:
        name = _qualified(namespace, shard)
        if name not in self._ports:
            given = self._taken | {port for ports in self._ports.values() for port in astuple(ports)}
            grpc, *others = free_ports(5, taken=given)
            if self._reach.first_port:
                grpc = next(port for port in itertools.count(self._reach.first_port) if port not in given)
            self._ports[name] = ShardPorts(grpc, *others)
        return self._ports[name]

    def _folder(self, kind: str, namespace: str, name: str) -> Path:
        return (self._data / kind / _qualified(namespace, name)).resolve()

    def _write_files(self, manifest: Manifest) -> None:
        folder = self._folder("config", manifest["metadata"].get("namespace", "default"), manifest["metadata"]["name"])
        folder.mkdir(parents=True, exist_ok=True)
        files = {key: value.encode() for key, value in (manifest.get("data") or {}).items()}
        files |= {key: base64.b64decode(value) for key, value in (manifest.get("binaryData") or {}).items()}
        for key, value in files.items():
            write_whole(folder / key, value, durable=False)
        for path in folder.iterdir():
            if path.name not in files:
                path.unlink()

    def _process(self, manifest: Manifest) -> ProcessSpec:
        """The process that a Deployment's only container is here: volumes are folders, ports are our own."""
        metadata, pod = manifest["metadata"], manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        folders = self._folders(metadata, pod, container)
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        for name, value in environment.items():
            for mount, folder in folders.items():
                if value == mount or value.startswith(f"{mount}/"):
                    environment[name] = f"{folder}{value[len(mount) :]}"
        ports = self._shard_ports(metadata.get("namespace", "default"), metadata["name"])
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        environment |= {
            "EMBEREYE_HOST": HOST,
            "EMBEREYE_OUTER_HOST": bracketed(self._reach.listen),
            "EMBEREYE_LINGER": "0",  # its spool stays in the data folder
            "EMBEREYE_SUCCESSOR": "0",  # nobody else gets its ports
            "EMBEREYE_HUB": self._hub.address,
            "EMBEREYE_GRPC_PORT": str(ports.grpc),
            "EMBEREYE_CONTROL_PORT": str(ports.control),
            "EMBEREYE_TCP_PORT": str(ports.tcp),
            "EMBEREYE_METRICS_PORT": str(ports.metrics),
        }
        service = self._service_of(manifest)
        environment["EMBEREYE_SHARED_GRPC_PORT"] = str(service["grpc"])
        for name in ("tcp", "tls"):
            if name in named:
                environment[f"EMBEREYE_SHARED_{name.upper()}_PORT"] = str(service[name])
        if "tls" in named:
            environment["EMBEREYE_TLS_PORT"] = str(ports.tls)
        alive = f"http://{HOST}:{ports.metrics}/healthz"
        return ProcessSpec(_process_name(manifest), embereye_command(*container["args"]), environment, alive)

    def _service_of(self, deployment: Manifest) -> dict[str, int]:
        """The ports of the Service whose selector takes in all shards of the Deployment's fleet."""
        labels, namespace = deployment["spec"]["template"]["metadata"]["labels"], _key(deployment)[1]
        matching = [
            manifest["spec"]
            for (kind, place, _), manifest in self._objects.all.items()
            if (kind, place) == ("Service", namespace) and manifest["spec"]["selector"].items() <= labels.items()
        ]
        widest = min(matching, key=lambda spec: len(spec["selector"]))
        return {port["name"]: port["port"] for port in widest["ports"]}

    def _folders(self, metadata: Manifest, pod: Manifest, container: Manifest) -> dict[str, Path]:
        namespace = metadata.get("namespace", "default")
        folders = {CREDENTIALS_FOLDER: self._credentials}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if any(mount["mountPath"].startswith(f"{path}/") for path in paths):
                continue  # a folder inside another one here, too
            if "configMap" in volume:
                folder = self._folder("config", namespace, volume["configMap"]["name"])
            elif mount["mountPath"].startswith(f"{CREDENTIALS_FOLDER}/"):
                continue  # a folder in the one for all
            elif volume["name"] == "identity":
                folder = self.identities.folder(_identity(metadata, container))
            elif "persistentVolumeClaim" in volume:
                folder = self._folder("volumes", namespace, volume["persistentVolumeClaim"]["claimName"])
            else:
                folder = self._folder("shards", namespace, metadata["name"])
            if mount["mountPath"] != "/tmp":
                folders[mount["mountPath"]] = folder
        return folders


def _key(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return (manifest["kind"], metadata.get("namespace", "default"), metadata["name"])


def _process_name(deployment: Manifest) -> str:
    """What the process of a Deployment is called: fleets of two namespaces may have the same name."""
    _, namespace, name = _key(deployment)
    return _qualified(namespace, name)


def _qualified(namespace: str, name: str) -> str:
    """What no other namespace has: of processes, their ports and folders."""
    return f"{namespace}.{name}"


def _identity(metadata: Manifest, container: Manifest) -> Identity:
    """Who the shard of a Deployment is."""
    fleet = next(variable["value"] for variable in container["env"] if variable["name"] == "EMBEREYE_FLEET")
    return Identity(Role.SHARD, metadata.get("namespace", "default"), metadata["name"], fleet)


def _owned_by(manifest: Manifest, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in manifest["metadata"].get("ownerReferences", ()))
