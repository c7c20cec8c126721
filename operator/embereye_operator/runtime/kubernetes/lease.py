"""Which of several operators acts: the holder of a Lease, for as long as it can prove it to itself."""

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
from lightkube.core.exceptions import ApiError

from embereye.process.timing.clock import lease_seconds
from embereye_operator.decide.ownership.holding import ANNOTATION_SCOPE
from embereye_operator.runtime.kubernetes.client.resources import LEASES

logger = logging.getLogger(__name__)
DURATION = 10.0  # seconds after which another one may take a lease that was not renewed
DEADLINE = 7.0  # seconds after which a holder that could not renew stops acting: earlier than anybody takes over
RETRY = 2.0  # seconds between attempts
RELEASE_LIMIT = 3.0  # seconds for letting go at the end; whoever waits for the lease to be old waits for longer


def identity() -> str:
    """A name that no other process has had."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Election:
    """Acquires and renews. Other clocks are not trusted: a lease is old once it has not changed here for long."""

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
        """`scope` says on the lease what its holder looks after; `changed` is told when leading begins and ends.

        `clock` gives steady seconds, of which none is left out while the machine is suspended.
        """
        self.holder = holder or identity()
        self._scope = scope
        self._client = client
        self._name = name
        self._namespace = namespace
        self.changed = changed
        self._clock = clock
        self._renewed = -DURATION
        self._attempted: float | None = None  # when last; None: it does not stand for election yet
        self._held = False
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._failing = ""

    def leads(self) -> bool:
        """Whether we may act at this moment: also right after the process was suspended."""
        return self._held and self._clock() - self._renewed < DEADLINE

    def unhealthy(self) -> str:
        """Why the operator should be restarted; '' where it is well."""
        silent = 0.0 if self._attempted is None else self._clock() - self._attempted
        return f"no attempt at the lease for {silent:.0f} s" if silent > 6 * DURATION else ""

    async def run(self) -> None:
        """Try to lead, and go on leading, until cancelled."""
        led = False
        while True:
            self._attempted = started = self._clock()
            try:
                async with asyncio.timeout(DEADLINE / 2):
                    self._held = await self._attempt()
                if self._held:
                    self._renewed = started
                self._failing = ""
            except Exception as error:
                reason = str(error) or type(error).__name__
                if reason != self._failing:
                    logger.warning("lease %s/%s: %s", self._namespace, self._name, reason)
                self._failing = reason
            if self.leads() != led:
                led = not led
                logger.info("%s: this operator %s", self._name, "leads" if led else "does not lead any more")
                self.changed(led)
            # Whoever leads notices in time that it does not any more, although the server does not answer.
            await asyncio.sleep(RETRY)

    async def _attempt(self) -> bool:
        try:
            stored = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
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
        keeps = before.get("holderIdentity") == self.holder
        body: Any = {
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": self._annotations(stored)},
            "spec": {
                "holderIdentity": self.holder if holder is None else holder,
                "leaseDurationSeconds": int(DURATION) if holder is None else 1,
                "acquireTime": before.get("acquireTime") if keeps else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
        try:
            if stored is None:
                await self._client.create(LEASES.from_dict(body))
            else:
                # Only over the one we read: of two that try at once, one fails.
                body["metadata"] = {**stored["metadata"], **body["metadata"], "managedFields": None}
                await self._client.replace(LEASES.from_dict(body), self._name)
        except ApiError as error:
            if error.status.code == 409:
                return False
            raise
        return True

    def _annotations(self, stored: Any) -> dict[str, str]:
        known = ((stored or {}).get("metadata") or {}).get("annotations") or {}
        return {**known, ANNOTATION_SCOPE: self._scope} if self._scope else dict(known)

    async def release(self) -> None:
        """Let somebody else take over at once; call it when nothing acts here any more."""
        if not self.leads():
            return
        self._held = False
        try:
            async with asyncio.timeout(RELEASE_LIMIT):
                stored = await self._client.get(LEASES, self._name, namespace=self._namespace)
                if (stored.get("spec") or {}).get("holderIdentity") == self.holder:
                    transitions = int(stored["spec"].get("leaseTransitions") or 0)
                    await self._write(stored, transitions, holder="")
        except (httpx.HTTPError, OSError, TimeoutError) as error:  # ApiError is one of the first
            logger.info("lease %s/%s is not released: %s", self._namespace, self._name, error)
