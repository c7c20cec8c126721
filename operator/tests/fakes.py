"""A runtime in memory: objects in a dictionary, shards as values that tests set."""

import copy
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from embereye.units import SECOND
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Load, Peer, ShardStatus
from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet, parse_fleet
from embereye_operator.api.schema import Manifest, problems
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.cluster.witnesses import Statements
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.manifests.services import peer_address
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.snapshot import identity
from embereye_operator.errors import RefusedError, UnavailableError
from embereye_operator.reconcile.reconcile import Outcome, reconcile
from embereye_operator.runtime.interface import Runtime

START = 1_800_000_000 * SECOND
SETTINGS = Settings(image="embereye:test", hub="hub:50052")


@dataclass
class FakeShard:
    """A shard that obeys."""

    name: str
    assignment: Assignment = field(default_factory=Assignment)
    dark: dict[str, str] = field(default_factory=dict)  # device → reason
    degraded: dict[str, str] = field(default_factory=dict)  # device → reason
    heard_ns: int = 0  # latest message of its devices, by its clock
    draining: bool = False
    refusal: str = ""  # why it refuses assignments
    reachable: bool = True
    load: Load = field(default_factory=Load)
    spooled: int = 0  # reports that the hub has not accepted
    falls_short: str = ""  # why it does less besides watching
    slow: int = 0  # passes from owning a device to covering it
    waiting: dict[str, int] = field(default_factory=dict)  # device → passes until it is covered

    def tick(self) -> None:
        self.waiting = {device: passes - 1 for device, passes in self.waiting.items() if passes > 1}

    def why_dark(self, device: str) -> str:
        return self.dark.get(device, "never heard" if device in self.waiting else "")

    def accept(self, assignment: Assignment) -> AssignResponse:
        if self.refusal:
            return AssignResponse(accepted=False, epoch=self.assignment.epoch, reason=self.refusal)
        if assignment.epoch < self.assignment.epoch:
            return AssignResponse(accepted=False, epoch=self.assignment.epoch, reason="older")
        before = {device.id for device in self.assignment.devices}
        if self.slow:
            self.waiting |= {device.id: self.slow for device in assignment.devices if device.id not in before}
        self.assignment = copy.deepcopy(assignment)
        return AssignResponse(accepted=True, epoch=assignment.epoch)

    def status(self) -> ShardStatus:
        devices = [
            DeviceStatus(
                id=device.id,
                zone=device.zone,
                covered=not self.why_dark(device.id),
                reason=self.why_dark(device.id),
                heard_ns=self.heard_ns,
                degraded=self.degraded.get(device.id, ""),
            )
            for device in self.assignment.devices
        ]
        return ShardStatus(
            fleet=self.assignment.fleet,
            shard=self.name,
            epoch=self.assignment.epoch,
            ready=bool(self.assignment.epoch) and not self.draining,
            evidence_spooled=self.spooled,
            draining=self.draining,
            devices=devices,
            load=self.load,
            degraded=self.falls_short,
        )


class FakeRuntime:
    """Implements all parts of a `Runtime`; `log` has every change in order."""

    def __init__(self, *, starts_shards: bool = True, slow: int = 0) -> None:
        self.slow = slow
        self.scaled: int | None = None
        self.others: list[str] = []
        self.on_emptied_nodes: dict[str, Displaced] = {}
        self.waiting_pods: dict[str, str] = {}
        self.witnessed = Statements()
        self.budgets_go_with: Manifest | None = None
        self.missing = {"NetworkPolicy", "ServiceMonitor", "PrometheusRule", "ScaledObject"}
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.maps: dict[str, dict[str, str]] = {}
        self.shards: dict[str, FakeShard] = {}
        self.log: list[str] = []
        self.statuses: list[Manifest] = []
        self.events: list[str] = []
        self.rosters: list[FleetRoster] = []
        self.reported_hub = ""
        self.hub_found = ""
        self.hub_is_down = False
        self.hub_reaches: bool | None = None
        self.hub_has = 0  # the epoch of its roster, as last reported
        self.ledger: FleetLedger | None = None
        self.scaling: FleetScaling | None = None  # the latest report to the hub
        self.refused: dict[tuple[str, str], str] = {}
        self.starts_shards = starts_shards
        self.identified: set[str] = set()
        self.unidentified = ""
        self.allowed: Collection[str] | None = None  # Secrets; None: all

    @property
    def parts(self) -> Runtime:
        return Runtime(world=self, writer=self, links=self, cluster=self)

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        children = copy.deepcopy(list(self.objects.values()))
        for manifest in children:
            # Tests edit objects: their version is derived from their content.
            content = zlib.crc32(repr(manifest).encode())
            manifest["metadata"]["resourceVersion"] = f"{manifest['metadata'].get('resourceVersion', '')}.{content}"
        return children

    async def versions(self, fleet: Fleet) -> Mapping[tuple[str, str], str]:
        versions = {identity(child): child["metadata"]["resourceVersion"] for child in await self.children(fleet)}
        return versions | {("ConfigMap", name): repr(data) for name, data in self.maps.items()}

    async def allowed_secrets(self, fleet: Fleet) -> Collection[str]:
        if self.allowed is not None or not isinstance(fleet.spec, CameraFleetSpec):
            return self.allowed or ()
        return {camera.credentials_ref.name for camera in fleet.spec.cameras if camera.credentials_ref}

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        self.identified = set(shards)
        if self.unidentified:
            raise UnavailableError(self.unidentified)

    async def apply(self, manifest: Manifest, *, new: bool = False) -> Manifest:
        if reason := self.refused.get(identity(manifest)):
            raise RefusedError(reason)
        name = manifest["metadata"]["name"]
        self.log.append(f"apply {manifest['kind']} {name}")
        manifest = copy.deepcopy(manifest)
        if version := manifest["metadata"].pop("resourceVersion", "").split(".")[0]:
            manifest["metadata"]["resourceVersion"] = version
        self.objects[identity(manifest)] = manifest
        if manifest["kind"] == "Deployment":
            self.objects[identity(manifest)]["status"] = {"availableReplicas": int(self.starts_shards)}
            if self.starts_shards:
                self.shards.setdefault(name, FakeShard(name, slow=self.slow))
        return manifest

    async def delete(self, manifest: Manifest) -> None:
        self.log.append(f"delete {manifest['kind']} {manifest['metadata']['name']}")
        self.objects.pop(identity(manifest), None)
        if manifest["kind"] == "Deployment":
            self.shards.pop(manifest["metadata"]["name"], None)

    async def config_maps(self, fleet: Fleet) -> Mapping[str, Mapping[str, str]]:
        return self.maps

    def address(self, fleet: Fleet, shard: str) -> Peer:
        return peer_address(fleet, shard)

    def hub_address(self, name: str) -> str:
        return self.hub_found

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        return self.hub_has

    def is_reaching_people(self, hub: str) -> bool | None:
        return self.hub_reaches

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        known = self.shards.get(shard)
        return known.status() if known and known.reachable else None

    def statements(self, fleet: Fleet, shards: Iterable[str]) -> Statements:
        return self.witnessed

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        known = self.shards.get(shard)
        if known is None or not known.reachable:
            return None
        self.log.append(f"assign {shard}")
        return known.accept(assignment)

    async def scale(self, fleet: Fleet, shards: int) -> None:
        self.log.append(f"scale {shards}")
        self.scaled = shards

    def rivals(self, fleet: Fleet) -> Sequence[str]:
        return self.others

    def displaced(self, fleet: Fleet) -> Mapping[str, Displaced]:
        return self.on_emptied_nodes

    def missing_rights(self, fleet: Fleet) -> str:
        return ""

    def waiting(self, fleet: Fleet) -> Mapping[str, str]:
        return self.waiting_pods

    async def roll(self, deployment: Manifest, pod: Mapping[str, Any]) -> None:
        self.log.append(f"roll {deployment['metadata']['name']}")
        template = self.objects[identity(deployment)]["spec"]["template"]
        template["metadata"].setdefault("annotations", {}).update(pod["metadata"]["annotations"])

    async def budget_owner(self, fleet: Fleet) -> Manifest | None:
        return self.budgets_go_with

    @property
    def can_see_nodes(self) -> bool:
        return True

    def is_offered(self, kind: str) -> bool:
        return kind not in self.missing

    async def write_status(self, fleet: Fleet, status: Manifest) -> None:
        if reason := self.refused.get(("Status", fleet.name)):
            raise RefusedError(reason)
        assert problems(FleetStatus, status, path="status") == [], "an API server would refuse it"
        self.log.append("status")
        self.statuses.append(copy.deepcopy(status))

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        self.reported_hub = hub
        if self.hub_is_down:
            raise UnavailableError("hub hub:50052 cannot be reached")
        if roster.epoch < self.hub_has:
            raise UnavailableError("hub hub:50052 cannot be reached (FAILED_PRECONDITION)")
        self.rosters.append(roster)
        return self.ledger

    async def report_scaling(self, scaling: FleetScaling) -> None:
        if self.hub_is_down:
            raise UnavailableError("hub hub:50052 cannot be reached")
        self.scaling = scaling

    async def retain(self, fleets: Sequence[str]) -> None:
        raise AssertionError("a reconcile of one fleet knows nothing of the others")

    async def event(self, fleet: Fleet, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.events.append(f"{type_} {reason}: {message}")


class World:
    """A fleet, its runtime and a clock."""

    def __init__(self, manifest: Manifest, **options: Any) -> None:
        self.manifest = manifest
        self.runtime = FakeRuntime(**options)
        self.now = START
        self.memory = FleetMemory()
        self.settings = SETTINGS
        self._spec, self._generation = "", 0

    @property
    def fleet(self) -> Fleet:
        status = {"status": self.runtime.statuses[-1]} if self.runtime.statuses else {}
        if self.runtime.scaled:
            self.manifest["spec"]["shards"] = self.runtime.scaled
            self.runtime.scaled = None
        if (spec := repr(self.manifest["spec"])) != self._spec:
            self._spec, self._generation = spec, self._generation + 1
        metadata = {**self.manifest["metadata"], "generation": self._generation}
        return parse_fleet({**self.manifest, "metadata": metadata, **status})

    async def step(self) -> Outcome:
        """Run one pass."""
        self.now += 2 * SECOND
        for shard in self.runtime.shards.values():
            shard.tick()
        return await reconcile(self.fleet, self.runtime.parts, lambda: self.now, self.settings, self.memory)

    async def last(self, seconds: float) -> Outcome:
        """Run passes until the present state has lasted for `seconds`; returns the outcome of the last."""
        until = self.now + (seconds + 2) * SECOND
        while True:
            outcome = await self.step()
            if self.now >= until:
                return outcome

    async def run_until_complete(self) -> Outcome:
        """Run passes until no change is in progress and nothing is written."""
        for _ in range(10):
            outcome = await self.step()
            if outcome.complete and not outcome.actions:
                return outcome
        raise AssertionError(f"not complete after 10 passes: {outcome}")

    def owners(self) -> dict[str, list[str]]:
        """Return device → shards that own it, according to the shards."""
        owners: dict[str, list[str]] = {}
        for name, shard in sorted(self.runtime.shards.items()):
            for device in shard.assignment.devices:
                owners.setdefault(device.id, []).append(name)
        return owners
