"""The local runtime: a Deployment is a process, a ConfigMap a folder, a Service an address.

`embereye up` reconciles with it as a cluster's operator does with an API server. `apply` gives a Deployment to the
`Supervisor` as a process with the same environment, in which mounts become folders and ports are replaced. Other
objects are stored as JSON files, and a ConfigMap's keys also as files for its readers. So the placement and its epoch
survive a restart; processes do not. There is no other writer, so no write is refused.
"""

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
from embereye_operator.decide.manifests.container import CREDENTIALS_FOLDER
from embereye_operator.decide.manifests.names import served_names
from embereye_operator.runtime.interface import Runtime
from embereye_operator.runtime.links import Address, Hub, Shards
from embereye_operator.runtime.local.identities import LocalIdentities
from embereye_operator.runtime.local.processes import ProcessSpec, Supervisor

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
OPERATOR = Identity(Role.OPERATOR, "local", "operator")
HUB = Identity(Role.HUB, "local", "hub")
OWN_NAMES = ("localhost", "127.0.0.1", "::1")  # of this machine, in certificates for devices
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Reach:
    """The addresses at which devices and people reach this machine."""

    listen: str = HOST  # address that their ports listen on; "::": all of both families, "0.0.0.0": all of IPv4
    advertised: str = HOST  # address given to devices and people
    first_port: int = 0  # first gRPC port of the shards; 0: any free ports

    @property
    def everywhere(self) -> bool:
        """True if the ports listen on every address of this machine, including loopback."""
        return self.listen in {"::", "0.0.0.0"}

    @property
    def inside(self) -> str:
        """Return the address for connections from this machine."""
        return HOST if self.everywhere else self.listen

    @property
    def is_outer(self) -> bool:
        """True if other machines can reach the ports."""
        return self.listen != "::1" and not self.listen.startswith("127.")


class PortTakenError(UserError):
    """Another process listens on the port."""


def check_port(port: int, purpose: str, remedy: str, host: str = HOST) -> None:
    """Check that `port` is free at `host`: PortTakenError if another process listens there, else UserError."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            sentence = f"--listen {host}: not an address of this machine ({error.strerror}). Use one of its addresses"
            raise UserError(sentence) from error
        in_use = error.errno == errno.EADDRINUSE
        sentence = (
            f"port {port} for {purpose} {'is taken' if in_use else 'cannot be used'} ({error.strerror}): {remedy}"
        )
        raise (PortTakenError if in_use else UserError)(sentence) from error


@dataclass(frozen=True)
class ShardPorts:
    """The ports of one local shard, by the names of its container ports."""

    grpc: int
    tcp: int
    metrics: int
    control: int
    tls: int


class Objects:
    """The existing objects by kind and name, each stored as a JSON file, so that the placement survives a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.all: dict[tuple[str, str, str], Manifest] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                self._put(json.loads(path.read_text()))
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: not an EmberEye object, ignored", path)

    def _put(self, manifest: Manifest) -> None:
        self.all[_key(manifest)] = manifest

    def _path(self, key: tuple[str, str, str]) -> Path:
        return self._folder / f"{'.'.join(key)}.json"

    def put(self, manifest: Manifest, write_files: Callable[[Manifest], None] = lambda _: None) -> None:
        """Store `manifest` atomically in place of the object with its name.

        It exists once its file and those of `write_files` are written: after an error on a full disk, `apply` repeats
        all.
        """
        write_whole(self._path(_key(manifest)), json.dumps(manifest, indent=1).encode(), durable=False)
        write_files(manifest)
        self._put(manifest)

    def remove(self, manifest: Manifest) -> None:
        """Forget `manifest`."""
        key = _key(manifest)
        self.all.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def owned_by(self, uid: str) -> list[Manifest]:
        """Return the objects with an owner of this uid."""
        return [manifest for manifest in self.all.values() if _owned_by(manifest, uid)]


def identified(fleet: Fleet, generation: int) -> Fleet:
    """Return `fleet` with the identity that an API server would assign; the same name is the same fleet.

    Without `spec.expose`, because there is no cluster.
    """
    spec = replace(fleet.spec, expose=None)
    return replace(fleet, uid=str(uuid.uuid5(uuid.NAMESPACE_URL, fleet.key)), generation=generation, spec=spec)


def embereye_command(*arguments: str) -> tuple[str, ...]:
    """Return the command `embereye ARGUMENTS` of this installation."""
    return (sys.executable, "-m", "embereye_cli", *arguments)


def simulated_cameras(fleet: Fleet) -> dict[int, list[str]]:
    """Return the cameras with a source on this machine, as "id=zone", by the port to serve them."""
    served: dict[int, list[str]] = defaultdict(list)
    if isinstance(fleet.spec, CameraFleetSpec):
        for camera in fleet.spec.cameras:
            with contextlib.suppress(ValueError):  # not a URL; its shard reports that
                url = urlsplit(camera.source)
                if url.scheme == "http" and url.hostname in LOOPBACK and url.port:
                    served[url.port].append(f"{camera.id}={camera.zone}")
    return dict(served)


class LocalRuntime:
    """The `World`, the `Writer` and the `Links` of local processes.

    Every shard listens on separate ports. The kernel shares the fleet's ports between its shards (SO_REUSEPORT), which
    spreads connections as a Service does.
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
        """Use the hub with control port `hub`, a host:port; certificates last for `life`.

        Shards never get a port of `taken`, which may grow.
        """
        self._data = data
        self._reach = reach
        self._taken = taken
        # The folders in place of Secrets; users create them.
        self.login_folder = Path(os.environ.get("EMBEREYE_CREDENTIALS") or data / "credentials").resolve()
        self.identities = LocalIdentities(data / "identity", life)
        self.credentials = Credentials(self.identities.folder(OPERATOR))
        self._hub = Hub(hub, self.credentials)
        self._shards = Shards(self.credentials)
        self._supervisor = supervisor
        self._objects = Objects(data / "objects")
        self._processes: dict[
            tuple[str, str, str], Manifest
        ] = {}  # Deployments; not stored, they exist as long as this process
        self._ports: dict[str, ShardPorts] = {}  # by the name of the process
        self.statuses: dict[str, Manifest] = {}  # by fleet key
        self._unwritten: dict[Path, bytes] = {}  # files of statuses that a full disk refused
        self.scales: dict[str, int] = {}  # spec.shards by fleet key, of scaled fleets

    @property
    def parts(self) -> Runtime:
        """The runtime of a pass; a single machine has no `Cluster`."""
        return Runtime(world=self, writer=self, links=self)

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        """Return names without versions: reading from memory is cheap."""
        return {(child["kind"], child["metadata"]["name"]): "" for child in await self.children(fleet)}

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """Return the fleet's objects; a Deployment is available while its process runs."""
        deployments = [
            {**manifest, "status": {"availableReplicas": int(self._supervisor.is_running(_process_name(manifest)))}}
            for manifest in self._processes.values()
            if _owned_by(manifest, fleet.uid)
        ]
        return [*self._objects.owned_by(fleet.uid), *deployments]

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        """Start or write it; there is no other writer."""
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
        """Stop or delete it; a shard drains on SIGTERM."""
        if manifest["kind"] == "Deployment":
            (_, namespace, shard), name = _key(manifest), _process_name(manifest)
            self._processes.pop(_key(manifest), None)
            await self._supervisor.stop(name)
            if ports := self._ports.pop(name, None):  # its successor gets other ports
                await self._shards.forget(Address(namespace, shard, f"{HOST}:{ports.control}"))
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                self.identities.forget(_identity(manifest["metadata"], container))
        else:
            self._objects.remove(manifest)

    async def delete_fleet(self, fleet: Fleet) -> None:
        """Delete everything that the fleet owns, as a cluster's garbage collector does."""
        for child in await self.children(fleet):
            await self.delete(child)
        self.statuses.pop(fleet.key, None)
        self.scales.pop(fleet.key, None)
        self._unwritten.pop(self._status_file(fleet), None)
        self._status_file(fleet).unlink(missing_ok=True)

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """Set the names in the shards' certificates, which are issued at their start."""
        for shard in shards:
            identity = Identity(Role.SHARD, fleet.namespace, shard, fleet.key)
            self.identities.add_names(identity, served_names(fleet, *OWN_NAMES, self._reach.advertised))

    def address(self, fleet: Fleet, shard: str) -> Peer:
        """Return the shard's ports: the advertised address for senders, loopback for our processes."""
        ports = self._shard_ports(fleet.namespace, shard)
        grpc = f"{bracketed(self._reach.advertised)}:{ports.grpc}"
        return Peer(shard=shard, grpc=grpc, control=f"{HOST}:{ports.control}")

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """Return the epoch as last reported by the hub."""
        return self._hub.epochs.get(fleet.key, 0)

    def is_reaching_people(self, hub: str) -> bool | None:
        """Return the hub's latest answer."""
        return self._hub.is_reaching_people

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """Query the shard."""
        return await self._shards.status(self._address(fleet, shard))

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """Call the shard."""
        return await self._shards.assign(self._address(fleet, shard), assignment)

    def _address(self, fleet: Fleet, shard: str) -> Address:
        return Address(fleet.namespace, shard, f"{HOST}:{self._shard_ports(fleet.namespace, shard).control}")

    async def scale(self, fleet: Fleet, shards: int) -> None:
        """Override the manifest's spec.shards as long as this process runs."""
        self.scales[fleet.key] = shards

    def is_offered(self, kind: str) -> bool:
        """True for the kinds that become a process, an address or a folder."""
        return kind in {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget"}

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        """Store the status for the display, and as a file for `embereye explain`."""
        self.statuses[fleet.key] = status
        self._unwritten[self._status_file(fleet)] = json.dumps({**fleet.manifest, "status": status}).encode()
        self.write_statuses()

    def write_statuses(self) -> str:
        """Write statuses that are not in their files yet; return the error if some still cannot be written, else ''.

        Such an error fails no pass, because the status itself is correct.
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
        """Report to the only hub."""
        return await self._hub.set(roster)

    async def report_scaling(self, scaling: FleetScaling) -> None:
        """Report to the hub."""
        await self._hub.report_scaling(scaling)

    async def retain(self, fleets: Sequence[str]) -> None:
        """Make the hub forget all other fleets."""
        await self._hub.retain(fleets)

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Log it: `embereye up` shows the conditions."""
        logger.info("%s %s %s: %s", fleet.key, type_, reason, message)

    def endpoints(self, fleet: Fleet) -> dict[str, Any]:
        """Return the addresses of the fleet and of each of its shards."""
        shards = {}
        host = bracketed(self._reach.advertised)
        for manifest in self._processes.values():
            if _owned_by(manifest, fleet.uid):
                name = manifest["metadata"]["name"]
                ports = self._shard_ports(fleet.namespace, name)
                shards[name] = {"grpc": f"{host}:{ports.grpc}", "metrics": f"http://{HOST}:{ports.metrics}/metrics"}
                if isinstance(fleet.spec, SensorFleetSpec):
                    shards[name]["tcp"] = f"{HOST}:{ports.tcp}"
        service = {name: f"{host}:{port}" for name, port in fleet.ports.items()}
        return {"service": service, "shards": shards}

    def simulators(self, fleet: Fleet, fire: str) -> list[ProcessSpec]:
        """Return the processes that simulate the devices; `fire` is a script such as "at=15,for=60,zone=hall"."""
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
            reserved = self._taken | {port for ports in self._ports.values() for port in astuple(ports)}
            grpc, *further_ports = free_ports(5, taken=reserved)
            if self._reach.first_port:
                grpc = next(port for port in itertools.count(self._reach.first_port) if port not in reserved)
            self._ports[name] = ShardPorts(grpc, *further_ports)
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
        """Return the process for a Deployment's only container: volumes become folders, ports are replaced."""
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
            "EMBEREYE_SUCCESSOR": "0",  # its ports are never reused
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
        if "http" in named:
            environment["EMBEREYE_HTTP_PORT"] = str(service["http"])
        alive = f"http://{HOST}:{ports.metrics}/healthz"
        return ProcessSpec(_process_name(manifest), embereye_command(*container["args"]), environment, alive)

    def _service_of(self, deployment: Manifest) -> dict[str, int]:
        """Return the ports of the Service that selects all shards of the Deployment's fleet."""
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
        folders = {CREDENTIALS_FOLDER: self.login_folder}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if any(mount["mountPath"].startswith(f"{path}/") for path in paths):
                continue  # part of the outer folder
            if "configMap" in volume:
                folder = self._folder("config", namespace, volume["configMap"]["name"])
            elif mount["mountPath"].startswith(f"{CREDENTIALS_FOLDER}/"):
                continue  # part of the common folder
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
    """Return the name of a Deployment's process: fleets of two namespaces may have the same name."""
    _, namespace, name = _key(deployment)
    return _qualified(namespace, name)


def _qualified(namespace: str, name: str) -> str:
    """Return a name that is unique across namespaces, for processes, ports and folders."""
    return f"{namespace}.{name}"


def _identity(metadata: Manifest, container: Manifest) -> Identity:
    """Return the identity of a Deployment's shard."""
    fleet = next(variable["value"] for variable in container["env"] if variable["name"] == "EMBEREYE_FLEET")
    return Identity(Role.SHARD, metadata.get("namespace", "default"), metadata["name"], fleet)


def _owned_by(manifest: Manifest, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in manifest["metadata"].get("ownerReferences", ()))
