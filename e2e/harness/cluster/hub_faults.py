"""Faults of several hubs and of what they stand on: a PostgreSQL, and a NATS that evidence comes by."""

import asyncio
import functools
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.cluster.attacked import Engines, Release
from harness.cluster.cluster import Json, until
from harness.cluster.site import SYSTEM
from harness.matrix.fault import Fault, mended_after
from harness.matrix.rules import CUT_OFF, HUB_GONE, OPERATOR_GONE, SHARD_GONE

AWAY_SECONDS = 14.0  # for which a server is gone
TAKEN_SECONDS = 60.0  # for another hub to own the database


def _engines(release: Release) -> Engines:
    if release.engines is None:
        raise RuntimeError("there is one hub alone, on a volume")
    return release.engines


async def _hubs(release: Release) -> list[Json]:
    """The pods of hubs, the owner's first, once one of them owns the database."""

    async def owned() -> list[tuple[bool, Json]]:
        found = await release.site.pods(component="hub", namespace=SYSTEM)
        return [(await _owns(release, pod), pod) for pod in found]

    found = await until(
        owned, lambda told: [owns for owns, _ in told].count(True) == 1, "one hub owns the database", TAKEN_SECONDS
    )
    return [pod for _, pod in sorted(found, key=lambda one: not one[0])]


async def _owns(release: Release, pod: Json) -> bool:
    """Whether a hub owns the database, by the last that it said of that."""
    told = ("logs", pod["metadata"]["name"], "--namespace", SYSTEM, "--tail=1000")
    log = await release.cluster.kubectl(*told, check=False)
    lines = [line for line in log.splitlines() if "hub ready:" in line or "standing by for" in line]
    return bool(lines) and "hub ready:" in lines[-1]


async def rested(release: Release) -> None:
    """Replace the pods of hubs that were killed: kubelet waits longer each time before it starts one again."""
    found = await release.site.pods(component="hub", namespace=SYSTEM)
    killed = {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in found
        if pod["status"]["containerStatuses"][0]["restartCount"]
    }
    for name in killed.values():
        await release.cluster.kubectl("delete", "pod", name, "--namespace", SYSTEM, "--timeout=60s", limit=70)

    async def others() -> bool:
        now = await release.site.pods(component="hub", namespace=SYSTEM)
        return len(now) == len(found) and all(pod["metadata"]["uid"] not in killed and ready(pod) for pod in now)

    await until(others, bool, "the pods of hubs are replaced", TAKEN_SECONDS)
    await release.well(TAKEN_SECONDS)


def ready(pod: Json) -> bool:
    """Whether a pod says that it can be used."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def owner_killed(release: Release) -> AsyncIterator[None]:
    """The hub that owns the database is killed; the other one takes over."""
    owner, *_ = await _hubs(release)
    await release.cluster.kill_container(owner)
    release.struck = time.monotonic()
    yield


@asynccontextmanager
async def owners_node_off(release: Release) -> AsyncIterator[None]:
    """The node of the hub that owns the database is powered off, and on again."""
    home = release.site.home_node

    async def owner_away() -> str:
        """The owner's node, where that is not the one that no fault takes: there it is killed, and another owns."""
        owner, *_ = await _hubs(release)
        if (node := str(owner["spec"]["nodeName"])) == home:
            await release.cluster.kill_container(owner)
        return node

    node = await until(owner_away, lambda node: node != home, f"the owner is not on {home}", TAKEN_SECONDS, 5.0)
    release.struck = time.monotonic()
    await release.cluster.power_off(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def hubs_killed(release: Release) -> AsyncIterator[None]:
    """All hubs are killed."""
    await asyncio.gather(*map(release.cluster.kill_container, await _hubs(release)))
    release.struck = time.monotonic()
    yield


@asynccontextmanager
async def database_gone(release: Release) -> AsyncIterator[None]:
    """PostgreSQL crashes, with all connections, and is started again later."""
    postgres = _engines(release).postgres
    await asyncio.to_thread(postgres.stop)
    async with mended_after(AWAY_SECONDS, functools.partial(asyncio.to_thread, postgres.start)):
        yield


@asynccontextmanager
async def sessions_ended(release: Release) -> AsyncIterator[None]:
    """An administrator ends all sessions of the database: the owner loses its lock, as on a failover."""
    engines = _engines(release)
    release.struck = time.monotonic()
    await asyncio.to_thread(engines.postgres.break_connections, engines.database.rpartition("/")[2])
    yield


@asynccontextmanager
async def bus_gone(release: Release) -> AsyncIterator[None]:
    """NATS is killed (-9), and started again later."""
    nats = _engines(release).nats
    await asyncio.to_thread(nats.stop, signal.SIGKILL)
    async with mended_after(AWAY_SECONDS, functools.partial(asyncio.to_thread, nats.start)):
        yield


HUB = "a hub's process"
NODE_GONE = HUB_GONE | SHARD_GONE | OPERATOR_GONE | CUT_OFF

HUB_FAULTS: tuple[Fault[Release], ...] = (
    Fault("all hubs killed", "both hubs are killed (-9)", 1.5, hubs_killed, at_once=True, besides=HUB_GONE,
          several_hubs=True, takes=HUB, before=rested),
    Fault("owner killed", "of two hubs the one that owns the database is killed (-9)", 1.5, owner_killed, at_once=True,
          besides=HUB_GONE, several_hubs=True, takes=HUB, before=rested),
    Fault("owner's node off", "the node of the hub that owns the database is powered off for a minute", 45.0,
          owners_node_off, hold=60.0, besides=NODE_GONE | {"HubStoreFailing"}, several_hubs=True,
          takes="a node"),
    Fault("sessions ended", "an administrator ends all sessions of PostgreSQL", 1.5, sessions_ended, at_once=True,
          besides=HUB_GONE | {"HubStoreFailing"}, several_hubs=True),
    Fault("PostgreSQL gone", f"PostgreSQL crashes, and is back after {AWAY_SECONDS:g} s", 1.5, database_gone,
          hold=AWAY_SECONDS, alerts=frozenset({"HubStoreFailing"}), besides=HUB_GONE | {"EvidenceWaiting"},
          several_hubs=True),
    Fault("NATS gone", f"NATS is killed (-9), and is back after {AWAY_SECONDS:g} s", 1.5, bus_gone, hold=AWAY_SECONDS,
          alerts=frozenset({"HubBusFailing"}), besides=HUB_GONE | {"EvidenceWaiting"}, several_hubs=True),
)  # fmt: skip
