"""The life of operators, for commands: an operator lives while its Lease is renewed.

`absent_operators` reads the Lease that a fleet's status names. A Lease with an old renewal is only a suspect, because
the clocks of machines differ: it counts as absent if it is still unchanged after WATCH_SECONDS. `kubectl embereye` asks
it, because nobody updates the statuses of an absent operator's fleets.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye_operator.decide.ownership.staleness import RefusedStatus
from embereye_operator.decide.status import NOT_WRITTEN
from embereye_operator.runtime.kubernetes.client.answers import find
from embereye_operator.runtime.kubernetes.client.resources import CHUNK, EVENTS, LEASES
from embereye_operator.runtime.kubernetes.lease import DEADLINE, DURATION

SUSPECT_SECONDS = DURATION  # a Lease that old is watched, because the clocks of machines differ
WATCH_SECONDS = DEADLINE  # how long a suspect Lease is watched for a renewal


async def absent_operators(
    client: AsyncClient, names: Iterable[str], watch_seconds: float = WATCH_SECONDS
) -> tuple[dict[str, str], list[str]]:
    """Return why each operator of `names` (namespace/name of its Lease) is absent, and what cannot be read."""
    suspects, absent, problems = dict[str, str](), dict[str, str](), list[str]()
    for name in sorted(filter(None, set(names))):
        try:
            spec = await _read(client, name)
        except ApiError as error:
            problems.append(f"Lease {name} cannot be read, so statuses may be outdated: {error.status.message}")
            continue
        if spec is None:
            absent[name] = f"operator {name} has no Lease: it was removed"
        elif not spec.get("holderIdentity"):
            absent[name] = f"operator {name} does not run: no replica holds its Lease"
        elif (age := _age(spec)) > SUSPECT_SECONDS:
            suspects[name] = str(spec.get("renewTime"))
            absent[name] = f"operator {name} has not renewed its Lease for {age:.0f} s"
    if suspects:
        await asyncio.sleep(watch_seconds)
    for name, renewed in suspects.items():
        if (spec := await _read(client, name)) and spec.get("holderIdentity") and spec.get("renewTime") != renewed:
            del absent[name]
    return absent, problems


async def refused_statuses(
    client: AsyncClient, namespaces: Iterable[str]
) -> tuple[dict[str, RefusedStatus], list[str]]:
    """Return the latest Event about an unwritten status of each fleet, by its uid, and what cannot be read."""
    refused, problems = dict[str, RefusedStatus](), list[str]()
    for namespace in sorted(set(namespaces)):
        events: Any = client.list(EVENTS, namespace=namespace, fields={"reason": NOT_WRITTEN}, chunk_size=CHUNK)
        try:
            async for event in events:
                uid, time = event["involvedObject"].get("uid", ""), str(event.get("lastTimestamp") or "")
                if uid not in refused or refused[uid].time < time:
                    refused[uid] = RefusedStatus(str(event.get("message")), time)
        except ApiError as error:
            problems.append(
                f"Events of namespace {namespace} cannot be read, so statuses may be outdated: {error.status.message}"
            )
    return refused, problems


async def _read(client: AsyncClient, name: str) -> Any:
    """Read the Lease's spec; None if there is no such Lease."""
    namespace, _, lease = name.rpartition("/")
    stored = await find(client, LEASES, lease, namespace)
    return None if stored is None else stored.get("spec") or {}


def _age(spec: Any) -> float:
    """Seconds since the renewal by this machine's clock, in either direction; infinite if it is not known."""
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime")))
    except ValueError:
        return float("inf")
    return abs((datetime.now(UTC) - renewed).total_seconds())
