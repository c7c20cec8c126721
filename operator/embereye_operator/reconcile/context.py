"""The inputs shared by the steps of one pass: access to the cluster, the settings, the memory.

`reconcile` builds one `Context` for each pass and gives it to every step. Runtime, settings and memory outlive the
pass; `Children` belongs to it, and reads the fleet's objects only when a step asks for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.fleet_memory import FleetMemory
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.placement.record import PlacementRecord, read_record
from embereye_operator.decide.snapshot import Identity, identity
from embereye_operator.runtime.interface import Runtime, World

Problems = Mapping[str, str]  # reason → sentence, for the status, worst first


class Children:
    """A fleet's existing children, read at most once: a pass over an idle fleet never reads them."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._fleet = fleet
        self._world = world
        self._read: Mapping[Identity, Manifest] | None = None
        self._record: PlacementRecord | None = None

    async def objects(self) -> Mapping[Identity, Manifest]:
        """Return all children by kind and name."""
        if self._read is None:
            self._read = {identity(child): child for child in await self._world.children(self._fleet)}
        return self._read

    async def record(self) -> PlacementRecord:
        """Return the placement ConfigMap's content, with each shard's assignment."""
        if self._record is None:
            objects = await self.objects()
            self._record = read_record(self._fleet, objects.get(("ConfigMap", self._fleet.names.placement)))
        return self._record


@dataclass(frozen=True)
class Context:
    """The inputs of every step of a pass."""

    runtime: Runtime
    settings: Settings
    memory: FleetMemory
    children: Children
