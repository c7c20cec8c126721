"""Ownership of fleets: a fleet's status names its operator, and that operator's Lease shows if it is alive.

The controller asks `why_not` before each pass. A fleet without an operator is claimed: its status gets this operator's
name by a patch on the version that was read, so of two operators one fails. Another operator's fleet is left alone as
long as that operator's Lease changes. `decide/ownership/holding.py` decides; here Leases are read, at most every
LOOK_SECONDS each.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.decide.ownership.holding import ANNOTATION_SCOPE, TAKE_OVER, Holder, why_left_alone
from embereye_operator.decide.ownership.selection import Scope
from embereye_operator.runtime.kubernetes.client.cache import Stored
from embereye_operator.runtime.kubernetes.client.resources import FLEETS, LEASES
from embereye_operator.runtime.kubernetes.world import KubernetesWorld

logger = logging.getLogger(__name__)
LOOK_SECONDS = 2.0  # seconds between reads of another operator's Lease


@dataclass(eq=False)
class Ownership:
    """Claims fleets for the operator `name`, and leaves alone those of another operator."""

    client: AsyncClient
    world: KubernetesWorld
    name: str = ""  # of the operator's Lease, namespace/name; empty: it has none, and can own no fleet
    image: str = ""
    patience: float = TAKE_OVER
    clock: Callable[[], float] = time.monotonic
    _holders: dict[str, Holder] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)  # operator → monotonic seconds

    async def why_not(self, fleet: Fleet, stored: Stored) -> str:
        """Return why `fleet` is left alone; empty if it is this operator's, which its status then says."""
        holder = self._holders.setdefault(stored.holder, Holder())
        if stored.holder not in {"", self.name}:
            await self._read_lease(stored.holder, holder)
        now = self.clock()
        if why := why_left_alone(self.name, stored.holder, fleet, holder, now=now, patience=self.patience):
            return why
        if not self.name or stored.holder == self.name:
            return ""
        return await self._claim(fleet, stored)

    async def _read_lease(self, name: str, holder: Holder) -> None:
        now = self.clock()
        if now - self._read_at.get(name, -LOOK_SECONDS) < LOOK_SECONDS:
            return
        self._read_at[name] = now
        namespace, _, lease = name.rpartition("/")
        try:
            stored: Any = await self.client.get(LEASES, lease, namespace=namespace)
        except ApiError as error:
            if error.status.code == 404:
                holder.observe((), Scope(), now)
            else:
                holder.unreadable = str(error.status.message)
            return
        spec = stored.get("spec") or {}
        annotations = stored["metadata"].get("annotations") or {}
        seen = (stored["metadata"].get("uid"), spec.get("holderIdentity"), spec.get("renewTime"))
        holder.observe(seen, Scope.from_text(annotations.get(ANNOTATION_SCOPE, "{}")), now)

    async def _claim(self, fleet: Fleet, stored: Stored) -> str:
        """Claim `fleet` unless it changed since it was read: of two operators that try at once, one fails."""
        body = {
            "metadata": {"resourceVersion": str(stored.version), "uid": fleet.uid},
            "status": {"operator": {"name": self.name, "image": self.image}},
        }
        try:
            claimed = await self.client.patch(
                FLEETS[fleet.type.resource].Status, fleet.name, body, namespace=fleet.namespace,
                patch_type=PatchType.MERGE, field_manager=MANAGED_BY,
            )  # fmt: skip
        except ApiError as error:
            if error.status.code != 409:
                raise
            return "it was changed at this moment"
        self.world.cache.put({**claimed, "kind": fleet.type.resource})
        before = f", formerly of {stored.holder}" if stored.holder else ""
        logger.info("%s%s: this operator reconciles it", fleet.key, before)
        return ""
