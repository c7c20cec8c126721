"""Leader election: the holder of a Lease acts, for as long as its own clock proves that it still leads.

`run` tries every RETRY seconds to renew the Lease, or to take it once it has not changed for its duration. The holder
stops acting DEADLINE seconds after the start of its last successful renewal, which is before any other replica may take
over. So two never act at once, even if the server is away. The `Fence` calls `is_leading` before every write. Only the
local clock counts; times in the Lease are compared for equality only.
"""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient

from embereye.process.condition import Condition
from embereye.process.reason import reason_of
from embereye.process.timing.clock import lease_seconds
from embereye_operator.decide.ownership.holding import ANNOTATION_SCOPE
from embereye_operator.runtime.kubernetes.client.answers import find, tolerating
from embereye_operator.runtime.kubernetes.client.resources import LEASES

logger = logging.getLogger(__name__)
# Short, because an outdated status remains until a leader writes it: a node may be lost with its leader.
DURATION = 7.0  # seconds without renewal until another replica may take the lease
DEADLINE = 5.0  # seconds without renewal until the holder stops acting: earlier than another can take over
RETRY = 1.0  # seconds between attempts
RELEASE_LIMIT = 3.0  # seconds to release the lease at the end; waiting for its expiry would take longer


def identity() -> str:
    """Return a unique name for this process."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(eq=False)
class Election:
    """Acquires and renews the lease. Other clocks are not trusted: its age is the time without a visible change."""

    client: AsyncClient
    name: str
    namespace: str
    holder: str = field(default_factory=identity)
    scope: str = ""  # of the holder's fleets; stored on the lease
    changed: Callable[[bool], None] = lambda _: None  # called when leading begins and ends
    clock: Callable[[], float] = lease_seconds  # monotonic seconds that include suspends of the machine
    _renewed: float = -DURATION
    _attempted: float | None = None  # time of the latest attempt; None: it has not joined the election yet
    _is_holder: bool = False
    _seen: tuple[Any, ...] = ()
    _seen_at: float = 0.0
    _failing: Condition = field(default_factory=lambda: Condition(logger))

    def is_leading(self) -> bool:
        """True if this process may act now, even right after a suspend."""
        return self._is_holder and self.clock() - self._renewed < DEADLINE

    def unhealthy(self) -> str:
        """Return the reason to restart the operator; '' if it is healthy."""
        silent = 0.0 if self._attempted is None else self.clock() - self._attempted
        return f"no attempt to renew the lease for {silent:.0f} s" if silent > 6 * DURATION else ""

    async def run(self) -> None:
        """Acquire and renew the lease until cancelled."""
        leading = False
        while True:
            self._attempted = started = self.clock()
            try:
                async with asyncio.timeout(DEADLINE / 2):
                    self._is_holder = await self._attempt()
                if self._is_holder:
                    self._renewed = started
                self._failing.clear()
            except Exception as error:
                reason = reason_of(error)
                self._failing.fail(reason, "lease %s/%s: %s", self.namespace, self.name, reason)
            if self.is_leading() != leading:
                leading = not leading
                logger.info("%s: this operator %s", self.name, "leads" if leading else "does not lead any more")
                self.changed(leading)
            # Often enough to notice the end of leading in time, even if the server does not answer.
            await asyncio.sleep(RETRY)

    async def _attempt(self) -> bool:
        stored = await find(self.client, LEASES, self.name, self.namespace)
        if stored is None:
            return await self._write(None, 0)
        spec = stored.get("spec") or {}
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self.clock()
        holder = spec.get("holderIdentity") or ""
        fresh = self.clock() - self._seen_at < float(spec.get("leaseDurationSeconds") or DURATION)
        if holder not in {"", self.holder} and fresh:
            return False
        transitions = int(spec.get("leaseTransitions") or 0)
        return await self._write(stored, transitions + (holder != self.holder))

    async def _write(self, stored: Any, transitions: int, holder: str | None = None) -> bool:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (stored or {}).get("spec") or {}
        is_holder = before.get("holderIdentity") == self.holder
        body: Any = {
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": self._annotations(stored)},
            "spec": {
                "holderIdentity": self.holder if holder is None else holder,
                "leaseDurationSeconds": int(DURATION) if holder is None else 1,
                "acquireTime": before.get("acquireTime") if is_holder else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
        with tolerating(409):
            if stored is None:
                await self.client.create(LEASES.from_dict(body))
            else:
                # Replace only the version that was read: of two replicas that try at once, one fails.
                body["metadata"] = {**stored["metadata"], **body["metadata"], "managedFields": None}
                await self.client.replace(LEASES.from_dict(body), self.name)
            return True
        return False

    def _annotations(self, stored: Any) -> dict[str, str]:
        known = ((stored or {}).get("metadata") or {}).get("annotations") or {}
        return {**known, ANNOTATION_SCOPE: self.scope} if self.scope else dict(known)

    async def release(self) -> None:
        """Release the lease, so that another replica takes over at once; call it after all work has stopped."""
        if not self.is_leading():
            return
        self._is_holder = False
        try:
            async with asyncio.timeout(RELEASE_LIMIT):
                stored = await self.client.get(LEASES, self.name, namespace=self.namespace)
                if (stored.get("spec") or {}).get("holderIdentity") == self.holder:
                    transitions = int(stored["spec"].get("leaseTransitions") or 0)
                    await self._write(stored, transitions, holder="")
        except (httpx.HTTPError, OSError, TimeoutError) as error:  # ApiError is an HTTPError
            logger.info("lease %s/%s is not released: %s", self.namespace, self.name, reason_of(error))
