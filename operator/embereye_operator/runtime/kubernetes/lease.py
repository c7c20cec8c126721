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
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx  # what lightkube speaks with
from lightkube import AsyncClient

from embereye.process.condition import Condition
from embereye.process.timing.clock import lease_seconds
from embereye_operator.decide.ownership.holding import ANNOTATION_SCOPE
from embereye_operator.runtime.kubernetes.client.answers import find, tolerating
from embereye_operator.runtime.kubernetes.client.resources import LEASES

logger = logging.getLogger(__name__)
DURATION = 10.0  # seconds without renewal until another replica may take the lease
DEADLINE = 7.0  # seconds without renewal until the holder stops acting: earlier than another can take over
RETRY = 2.0  # seconds between attempts
RELEASE_LIMIT = 3.0  # seconds to release the lease at the end; waiting for its expiry would take longer


def identity() -> str:
    """Return a unique name for this process."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Election:
    """Acquires and renews the lease. Other clocks are not trusted: its age is the time without a visible change."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        namespace: str,
        *,
        holder: str = "",
        scope: str = "",
        changed: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = lease_seconds,
    ) -> None:
        """Store `scope` on the lease: the holder's fleets. `changed` is called when leading begins and ends.

        `clock` returns monotonic seconds that include suspends of the machine.
        """
        self.holder = holder or identity()
        self._scope = scope
        self._client = client
        self._name = name
        self._namespace = namespace
        self.changed = changed
        self._clock = clock
        self._renewed = -DURATION
        self._attempted: float | None = None  # time of the latest attempt; None: it has not joined the election yet
        self._is_holder = False
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._failing = Condition(logger)

    def is_leading(self) -> bool:
        """True if this process may act now, even right after a suspend."""
        return self._is_holder and self._clock() - self._renewed < DEADLINE

    def unhealthy(self) -> str:
        """Return the reason to restart the operator; '' if it is healthy."""
        silent = 0.0 if self._attempted is None else self._clock() - self._attempted
        return f"no attempt to renew the lease for {silent:.0f} s" if silent > 6 * DURATION else ""

    async def run(self) -> None:
        """Acquire and renew the lease until cancelled."""
        leading = False
        while True:
            self._attempted = started = self._clock()
            try:
                async with asyncio.timeout(DEADLINE / 2):
                    self._is_holder = await self._attempt()
                if self._is_holder:
                    self._renewed = started
                self._failing.clear()
            except Exception as error:
                reason = str(error) or type(error).__name__
                self._failing.fail(reason, "lease %s/%s: %s", self._namespace, self._name, reason)
            if self.is_leading() != leading:
                leading = not leading
                logger.info("%s: this operator %s", self._name, "leads" if leading else "does not lead any more")
                self.changed(leading)
            # Often enough to notice the end of leading in time, even if the server does not answer.
            await asyncio.sleep(RETRY)

    async def _attempt(self) -> bool:
        stored = await find(self._client, LEASES, self._name, self._namespace)
        if stored is None:
            return await self._write(None, 0)
        spec = stored.get("spec") or {}
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        holder = spec.get("holderIdentity") or ""
        fresh = self._clock() - self._seen_at < float(spec.get("leaseDurationSeconds") or DURATION)
        if holder not in {"", self.holder} and fresh:
            return False
        transitions = int(spec.get("leaseTransitions") or 0)
        return await self._write(stored, transitions + (holder != self.holder))

    async def _write(self, stored: Any, transitions: int, holder: str | None = None) -> bool:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (stored or {}).get("spec") or {}
        is_holder = before.get("holderIdentity") == self.holder
        body: Any = {
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": self._annotations(stored)},
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
                await self._client.create(LEASES.from_dict(body))
            else:
                # Replace only the version that was read: of two replicas that try at once, one fails.
                body["metadata"] = {**stored["metadata"], **body["metadata"], "managedFields": None}
                await self._client.replace(LEASES.from_dict(body), self._name)
            return True
        return False

    def _annotations(self, stored: Any) -> dict[str, str]:
        known = ((stored or {}).get("metadata") or {}).get("annotations") or {}
        return {**known, ANNOTATION_SCOPE: self._scope} if self._scope else dict(known)

    async def release(self) -> None:
        """Release the lease, so that another replica takes over at once; call it after all work has stopped."""
        if not self.is_leading():
            return
        self._is_holder = False
        try:
            async with asyncio.timeout(RELEASE_LIMIT):
                stored = await self._client.get(LEASES, self._name, namespace=self._namespace)
                if (stored.get("spec") or {}).get("holderIdentity") == self.holder:
                    transitions = int(stored["spec"].get("leaseTransitions") or 0)
                    await self._write(stored, transitions, holder="")
        except (httpx.HTTPError, OSError, TimeoutError) as error:  # ApiError is an HTTPError
            logger.info("lease %s/%s is not released: %s", self._namespace, self._name, error)
