"""The calls to a cluster's shards and hubs, and the certificates for them.

Passes call it for their shards and hubs; the controller's tasks call `resync`, `diagnose_hubs` and `renew_identities`.
Until the operator has a certificate, shards count as silent and reports to the hub fail. Changes pass the fence, so
only the leader sends assignments and rosters. `_reports_to` remembers which hub has a fleet's roster, so that other
hubs forget a fleet that moved.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from lightkube import AsyncClient

from embereye.v1.roster_pb2 import FleetLedger, FleetRoster, FleetScaling
from embereye.v1.shard_pb2 import Assignment, AssignResponse, ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.cluster.witnesses import ShardKey
from embereye_operator.errors import UnavailableError
from embereye_operator.runtime.kubernetes.client.cache import ObjectKey
from embereye_operator.runtime.kubernetes.fence import Fence
from embereye_operator.runtime.kubernetes.hub_pods import HubPods
from embereye_operator.runtime.kubernetes.identities import Identities
from embereye_operator.runtime.kubernetes.nodes import Nodes
from embereye_operator.runtime.kubernetes.silence import SilenceWatch
from embereye_operator.runtime.kubernetes.world import KubernetesWorld, labelled_fleets
from embereye_operator.runtime.links import Address, Hub, Shards


class KubernetesLinks:
    """Implements `interface.Links`."""

    def __init__(
        self,
        client: AsyncClient,
        world: KubernetesWorld,
        nodes: Nodes,
        fence: Fence,
        *,
        hubs: Mapping[str, str],
        identities: Identities | None,
        namespaces: Sequence[str],
        resolve: Callable[[Fleet, str], str] | None = None,
    ) -> None:
        """Call `hubs`, name → host:port; "" is the release's default hub.

        `identities` issues the certificates in `namespaces`; None: no certificates. `resolve` returns the address for
        calls to a shard; by default its Service.
        """
        self.identities = identities
        self._world = world
        self._fence = fence
        self._namespaces = namespaces
        self._resolve = resolve or (lambda fleet, shard: world.address(fleet, shard).control)
        self._shards = Shards()
        self._hubs = {name: Hub(address) for name, address in hubs.items()}
        self._hub_pods = {name: HubPods(client, address, nodes) for name, address in hubs.items()}
        self._reports_to: dict[str, str] = {}  # fleet → name of the hub that has its roster
        self.silence = SilenceWatch(self.ask_hubs, self.ask_shard)

    async def resync(self) -> None:
        """Find the hubs' addresses, and close idle connections; call it periodically."""
        for name, hub in self._hubs.items():
            await self._hub_pods[name].locate()
            hub.ip_address = self._hub_pods[name].address
        await self._shards.close_idle()

    async def diagnose_hubs(self) -> None:
        """Find out why hubs do not answer; call it every few seconds."""
        for name, hub in self._hubs.items():
            pods = self._hub_pods[name]
            await pods.diagnose(is_serving=self._is_identified() and await hub.is_serving())
            hub.ip_address = pods.address

    def hub_address(self, name: str) -> str:
        """Return the IP address of a hub, by its name; "" if unknown."""
        return self._hub_pods[name].address

    def hub_epoch(self, fleet: Fleet, hub: str) -> int:
        """See Links."""
        return self._hubs[hub].epochs.get(fleet.key, 0)

    def is_reaching_people(self, hub: str) -> bool | None:
        """See Links."""
        return self._hubs[hub].is_reaching_people

    async def renew_identities(self) -> None:
        """Issue and renew certificates; call it every few seconds."""
        if self.identities is None:
            return
        try:
            await self.identities.renew(self._namespaces)
        finally:  # the operator's certificate may exist even if another could not be written
            self._shards.credentials = self.identities.credentials
            for hub in self._hubs.values():
                hub.credentials = self.identities.credentials

    def take_unidentified(self) -> list[ObjectKey]:
        """Return the fleets that have lost certificates since the last call; their next pass issues them again."""
        if self.identities is None:
            return []
        lost, self.identities.lost = self.identities.lost, set()
        return [key for namespace, label in lost for key in labelled_fleets(label, namespace)]

    def _is_identified(self) -> bool:
        """True if this operator has a certificate, or needs none."""
        return self.identities is None or self._shards.credentials is not None

    async def identify(self, fleet: Fleet, shards: Collection[str]) -> None:
        """See Links."""
        if self.identities is not None:
            await self.identities.identify(fleet, shards)

    def _address(self, fleet: Fleet, shard: str) -> Address:
        return Address(fleet.namespace, shard, self._resolve(fleet, shard))

    async def shard_status(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """See Links."""
        return None if self.silence.is_unanswered(fleet, shard) else await self.ask_shard(fleet, shard)

    async def ask_hubs(self) -> list[dict[ShardKey, int]]:
        """Return for how many nanoseconds each hub has not heard each existing shard.

        If the hub of its fleet never heard it, this is the time for which that hub has been able to.
        """
        if not self._is_identified():
            return []
        answers = await asyncio.gather(*(hub.heard() for hub in self._hubs.values()))
        listening = {name: heard.listening for name, heard in zip(self._hubs, answers, strict=True)}
        existing, missed = set[ShardKey](), dict[ShardKey, int]()
        for (kind, namespace, shard), stored in self._world.cache.objects.items():
            if kind == "Deployment" and stored.label:
                key = f"{namespace}/{stored.label.replace('.', '/', 1)}", shard
                existing.add(key)
                if since := listening.get(self._reports_to.get(key[0], ""), 0):
                    missed[key] = since
        known = [{key: ns for key, ns in heard.silences.items() if key in existing} for heard in answers]
        never = {key: since for key, since in missed.items() if not any(key in silences for silences in known)}
        return [*known, never]

    async def ask_shard(self, fleet: Fleet, shard: str) -> ShardStatus | None:
        """Query a shard's status; None if it does not answer within two seconds."""
        if ("Deployment", fleet.namespace, shard) not in self._world.cache.objects or not self._is_identified():
            return None
        status = await self._shards.status(self._address(fleet, shard))
        # A reused address of another shard proves nothing about this one.
        return status if status is None or status.shard == shard else None

    async def assign(self, fleet: Fleet, shard: str, assignment: Assignment) -> AssignResponse | None:
        """See Links."""
        self._fence()
        if not self._is_identified():
            return None
        return await self._shards.assign(self._address(fleet, shard), assignment)

    async def set_roster(self, roster: FleetRoster, hub: str) -> FleetLedger | None:
        """See Links."""
        self._fence()
        self._check_identity()
        try:
            ledger = await self._hubs[hub].set(roster)
        except UnavailableError as error:
            if not (trouble := self._hub_pods[hub].trouble):
                raise
            raise UnavailableError(f"{error}: {trouble}") from error
        self._reports_to[roster.fleet] = hub
        return ledger

    async def report_scaling(self, scaling: FleetScaling) -> None:
        """See Links."""
        self._fence()
        self._check_identity()
        # Only the hub that has the fleet's roster.
        if (hub := self._reports_to.get(scaling.fleet)) is not None:
            await self._hubs[hub].report_scaling(scaling)

    async def retain(self, fleets: Sequence[str]) -> None:
        """See Links. Does nothing until every fleet was listed, because earlier operators may have reported any."""
        self._fence()
        self._check_identity()
        if not self._world.has_listed_fleets:
            return
        for fleet in self._reports_to.keys() - set(fleets):
            del self._reports_to[fleet]
        unreachable = []
        for name, hub in self._hubs.items():
            # A fleet without a report under this leader may be at any hub.
            try:
                await hub.retain([fleet for fleet in fleets if self._reports_to.get(fleet, name) == name])
            except UnavailableError as error:
                unreachable.append(str(error))
        if unreachable:
            raise UnavailableError("; ".join(unreachable))

    def _check_identity(self) -> None:
        if self.identities is not None and not self._is_identified():
            raise UnavailableError(f"cannot report the roster to the hub: {self.identities.trouble}")

    async def close(self) -> None:
        """Close all connections."""
        await self.silence.close()
        await self._shards.close()
        for hub in self._hubs.values():
            await hub.close()
        if self.identities:
            self.identities.close()
