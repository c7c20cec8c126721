"""Run an operator whose shards are simulated in its process, for benchmarks without nodes.

Everything is the real operator except two classes. `SimulatedWorld` reports a Deployment as available a second after it
was created. `SimulatedLinks` answers in place of shards and hub: it accepts assignments, and reports every device as
covered. Files named by environment variables make shards dead or busy while it runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from embereye.process import lifecycle
from embereye.process.lifecycle import configure_logging
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.roster_pb2 import FleetLedger, FleetRoster
from embereye.v1.shard_pb2 import Assignment, AssignResponse, Load, ShardStatus
from embereye_operator import controller
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.cluster.witnesses import ShardKey
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.holding import TAKE_OVER
from embereye_operator.process import OperatorOptions, serve
from embereye_operator.runtime.kubernetes.links import KubernetesLinks
from embereye_operator.runtime.kubernetes.runtime import build_runtime
from embereye_operator.runtime.kubernetes.world import KubernetesWorld

START_SECONDS = 1.0  # from a Deployment to its first answer
DAY = 86_400  # seconds


class SimulatedWorld(KubernetesWorld):
    """Simulates a pod for every Deployment. Those of the file of dead shards do not run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._made: dict[ShardKey, float] = {}
        self._file = Path(os.environ.get("EMBEREYE_DEAD_SHARDS", "/nonexistent"))
        self._dead: frozenset[str] = frozenset()
        self._dead_read_at = 0.0

    def is_running(self, fleet: Fleet, shard: str) -> bool:
        """True if the shard's simulated pod runs."""
        now = time.monotonic()
        if now - self._dead_read_at > 0.2:
            self._dead_read_at = now
            self._dead = frozenset(self._file.read_text().split()) if self._file.exists() else frozenset()
        if ("Deployment", fleet.namespace, shard) not in self.cache.objects:
            self._made.pop((fleet.key, shard), None)
            return False
        return (
            now - self._made.setdefault((fleet.key, shard), now) >= START_SECONDS
            and f"{fleet.namespace}/{shard}" not in self._dead
        )

    async def children(self, fleet: Fleet) -> Sequence[Manifest]:
        """Add the status that a cluster would report for a Deployment whose pod runs."""
        manifests = await super().children(fleet)
        for child in manifests:
            if child["kind"] == "Deployment" and self.is_running(fleet, child["metadata"]["name"]):
                child["status"] = {"availableReplicas": 1, "updatedReplicas": 1}
        return manifests


class SimulatedLinks(KubernetesLinks):
    """Simulates a covering shard for every pod of a `SimulatedWorld`, and a hub."""

    def __init__(self, client: Any, world: SimulatedWorld, *arguments: Any, **options: Any) -> None:
        super().__init__(client, world, *arguments, **options)
        self._pods = world
        self._simulated: dict[ShardKey, Assignment] = {}
        self._fleets: dict[ShardKey, Fleet] = {}
        self._heard: dict[ShardKey, float] = {}  # monotonic seconds of a shard's latest report to the hub
        self._began = time.monotonic()
        self._work = Path(os.environ.get("EMBEREYE_SIMULATED_CORES", "/nonexistent"))

    async def ask_shard(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """Answer like a shard."""
        if not self._pods.is_running(fleet, shard):
            return None
        assignment = self._simulated.get((fleet.key, shard), Assignment())
        return ShardStatus(
            fleet=assignment.fleet,
            shard=shard,
            epoch=assignment.epoch,
            ready=bool(assignment.epoch),
            devices=[DeviceStatus(id=device.id, zone=device.zone, covered=True) for device in assignment.devices],
            load=self._load(fleet),
        )

    def _load(self, fleet: Fleet) -> Load:
        """Almost no load, or this shard's share of the cores of work in a file."""
        if (cores := self._cores(fleet)) is None:
            return Load(arrival_rate=40, cost_seconds=0.0001, utilization=0.02)
        share = cores / max(1, fleet.spec.shards)
        return Load(arrival_rate=share * 1000, cost_seconds=0.001, utilization=min(1.0, share))

    def _cores(self, fleet: Fleet) -> float | None:
        """The cores of work in the file: one number for every fleet, or lines of a fleet's name and its number."""
        words = self._work.read_text().split() if self._work.exists() else []
        if len(words) == 1:
            return float(words[0])
        return next(
            (float(cores) for name, cores in zip(words[::2], words[1::2], strict=True) if name == fleet.name), None
        )

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """Accept the assignment at once."""
        self._fence()
        if not self._pods.is_running(fleet, shard):
            return None
        key = fleet.key, shard
        self._simulated[key], self._fleets[key], self._heard[key] = assignment, fleet, time.monotonic()
        return AssignResponse(accepted=True, epoch=assignment.epoch)

    async def ask_hubs(self) -> list[dict[ShardKey, int]]:
        """Answer like a hub to which every shard that runs reports."""
        now = time.monotonic()
        for key, fleet in self._fleets.items():
            if self._pods.is_running(fleet, key[1]):
                self._heard[key] = now
        existing = {
            (fleet, shard): heard
            for (fleet, shard), heard in self._heard.items()
            if ("Deployment", fleet.partition("/")[0], shard) in self._pods.cache.objects
        }
        return [{shard: round((now - heard) * SECOND) for shard, heard in existing.items()}]

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """Answer like a hub whose devices have been sending for a day."""
        sent = int(len(roster.devices) * 10 * (DAY + time.monotonic() - self._began))
        return FleetLedger(offered=sent, analysed=sent, time_ns=time.time_ns())

    async def retain(self, fleets: Any) -> None:
        """Do nothing, because there is no hub."""


def main() -> int:
    """Run it with the options of `embereye operator` that benchmarks and tests need; return the exit code."""
    configure_logging()
    if period := os.environ.get("EMBEREYE_RESYNC_SECONDS"):
        controller.RESYNC_PERIOD, controller.OBJECT_SECONDS = float(period), 0.0
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("image", "hub", "fleet-selector", "lease", "role"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--namespace", action="append", default=[])
    parser.add_argument("--all-namespaces", action="store_true")
    parser.add_argument("--take-over-after", type=float, default=TAKE_OVER)
    parser.add_argument("--health-port", type=int, required=True)
    arguments = vars(parser.parse_args())
    named = ",".join(arguments.pop("namespace"))
    namespaces = () if arguments.pop("all_namespaces") or not named else tuple(named.split(","))
    settings = Settings(arguments.pop("image"), arguments.pop("hub"))
    options = OperatorOptions(settings=settings, namespaces=namespaces, **arguments)
    build = partial(build_runtime, world_type=SimulatedWorld, links_type=SimulatedLinks)
    return lifecycle.run(lambda stop: serve(options, stop, build))


if __name__ == "__main__":
    sys.exit(main())
