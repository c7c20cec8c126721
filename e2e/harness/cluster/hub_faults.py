"""Faults of several hubs, of their PostgreSQL, and of the NATS that carries evidence.

They need a release with two hubs, whose PostgreSQL runs in a pod and whose NATS runs outside the cluster. Both can be
killed and started again here. The hub that owns the database is found by its log. Each fault has the form of those in
`faults.py`, which adds `HUB_FAULTS` to its list.
"""

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from harness.cluster.attacked import Engines, Release
from harness.cluster.cluster import CommandError, Json, until
from harness.cluster.site import SYSTEM
from harness.matrix.fault import Fault, mended_after
from harness.matrix.rules import HUB_GONE, NODE_GONE

AWAY_SECONDS = 14.0  # outage of a server
TAKEN_SECONDS = 60.0  # time limit for another hub to take over the database


def _engines(release: Release) -> Engines:
    if release.engines is None:
        raise RuntimeError("this release has a single hub on a volume; several hubs are needed")
    return release.engines


async def _hubs(release: Release) -> list[Json]:
    """Wait until one hub owns the database. Returns the hubs' pods, the owner's first."""

    async def owned() -> list[tuple[bool, Json]]:
        pods = await release.site.pods(component="hub", namespace=SYSTEM)
        return [(await _is_owner(release, pod), pod) for pod in pods]

    hubs = await until(
        owned,
        lambda answer: [owner for owner, _ in answer].count(True) == 1,
        "one hub owns the database",
        TAKEN_SECONDS,
    )
    return [pod for _, pod in sorted(hubs, key=lambda hub: not hub[0])]


async def _is_owner(release: Release, pod: Json) -> bool:
    """True if the latest line about ownership in a hub's log says that it owns the database."""
    logs = ("logs", pod["metadata"]["name"], "--namespace", SYSTEM, "--tail=1000")
    log = await release.cluster.kubectl(*logs, check=False)
    lines = [line for line in log.splitlines() if "hub ready:" in line or "standing by for" in line]
    return bool(lines) and "hub ready:" in lines[-1]


async def reset_restart_delay(release: Release) -> None:
    """Replace the pods of killed hubs, because kubelet delays each further restart of a container for longer."""
    hubs = await release.site.pods(component="hub", namespace=SYSTEM)
    killed = {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in hubs
        if pod["status"]["containerStatuses"][0]["restartCount"]
    }
    for name in killed.values():
        await release.cluster.kubectl("delete", "pod", name, "--namespace", SYSTEM, "--timeout=60s", limit=70)

    async def replaced() -> bool:
        now = await release.site.pods(component="hub", namespace=SYSTEM)
        return len(now) == len(hubs) and all(pod["metadata"]["uid"] not in killed and is_ready(pod) for pod in now)

    await until(replaced, bool, "the pods of hubs are replaced", TAKEN_SECONDS)
    await release.well(TAKEN_SECONDS)


def is_ready(pod: Json) -> bool:
    """True if the pod's Ready condition is True."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@asynccontextmanager
async def owner_killed(release: Release) -> AsyncIterator[None]:
    """Kill the hub that owns the database; the other takes over."""
    owner, *_ = await _hubs(release)
    await release.cluster.kill_container(owner)
    release.struck = time.monotonic()
    yield


@asynccontextmanager
async def owners_node_off(release: Release) -> AsyncIterator[None]:
    """Power the node of the database's owner off, and on again."""
    async with _owners_node_lost(release, release.cluster.power_off):
        yield


@asynccontextmanager
async def owners_node_paused(release: Release) -> AsyncIterator[None]:
    """Freeze the processes of the owner's node. Its kernel answers PostgreSQL, so the owner's session remains."""
    async with _owners_node_lost(release, release.cluster.pause):
        yield


@asynccontextmanager
async def _owners_node_lost(release: Release, lose: Callable[[str], Awaitable[object]]) -> AsyncIterator[None]:
    home = release.site.home_node

    async def owner_away() -> str:
        """The owner's node. On the home node, which no fault may take, kill the owner so that another takes over.

        After a node was lost, both hubs may be on the home node. Then delete the standby first, as a descheduler does.
        """
        owner, *standbys = await _hubs(release)
        if (node := str(owner["spec"]["nodeName"])) != home:
            return node
        if crowded := [pod["metadata"]["name"] for pod in standbys if pod["spec"]["nodeName"] == home]:
            await release.cluster.kubectl("delete", "pod", "--namespace", SYSTEM, *crowded)
        else:
            with contextlib.suppress(CommandError):  # another fault has killed it, and nobody has taken over yet
                await release.cluster.kill_container(owner)
        return node

    node = await until(owner_away, lambda node: node != home, f"the owner is not on {home}", TAKEN_SECONDS, 5.0)
    release.struck = time.monotonic()
    await lose(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def hubs_killed(release: Release) -> AsyncIterator[None]:
    """Kill all hubs."""
    await asyncio.gather(*map(release.cluster.kill_container, await _hubs(release)))
    release.struck = time.monotonic()
    yield


@asynccontextmanager
async def database_gone(release: Release) -> AsyncIterator[None]:
    """Crash PostgreSQL with all its connections, and start it again later."""
    postgres = _engines(release).postgres
    await postgres.stop()
    async with mended_after(AWAY_SECONDS, postgres.start):
        yield


@asynccontextmanager
async def sessions_ended(release: Release) -> AsyncIterator[None]:
    """End all sessions of the database, as a failover does: the owner loses its lock."""
    postgres = _engines(release).postgres
    release.struck = time.monotonic()
    await postgres.break_connections()
    yield


@asynccontextmanager
async def bus_gone(release: Release) -> AsyncIterator[None]:
    """Kill NATS (-9), and start it again later."""
    nats = _engines(release).nats
    await asyncio.to_thread(nats.stop, signal.SIGKILL)
    async with mended_after(AWAY_SECONDS, functools.partial(asyncio.to_thread, nats.start)):
        yield


HUB = "a hub's process"
LOST_NODE = 20.0  # the longest gap, in seconds: a loaded machine starts pods within 4 to 8 s

HUB_FAULTS: tuple[Fault[Release], ...] = (
    Fault("all hubs killed", "both hubs are killed (-9)", 1.5, hubs_killed, at_once=True, besides=HUB_GONE,
          several_hubs=True, takes=HUB, before=reset_restart_delay),
    Fault("owner killed", "of two hubs the one that owns the database is killed (-9)", 1.5, owner_killed, at_once=True,
          besides=HUB_GONE, several_hubs=True, takes=HUB, before=reset_restart_delay),
    Fault("owner's node off", "the node of the hub that owns the database is powered off for a minute", LOST_NODE,
          owners_node_off, duration=60.0, besides=NODE_GONE | {"HubStoreFailing"}, several_hubs=True,
          takes="a node"),
    Fault("owner's node paused", "the node of the hub that owns the database is paused for a minute", LOST_NODE,
          owners_node_paused, duration=60.0, besides=NODE_GONE | {"HubStoreFailing"}, several_hubs=True,
          takes="a node"),
    Fault("sessions ended", "an administrator ends all sessions of PostgreSQL", 1.5, sessions_ended, at_once=True,
          besides=HUB_GONE | {"HubStoreFailing"}, several_hubs=True),
    Fault("PostgreSQL gone", f"PostgreSQL crashes, and is back after {AWAY_SECONDS:g} s", 1.5, database_gone,
          duration=AWAY_SECONDS, alerts=frozenset({"HubStoreFailing"}), besides=HUB_GONE | {"EvidenceWaiting"},
          several_hubs=True),
    Fault("NATS gone", f"NATS is killed (-9), and is back after {AWAY_SECONDS:g} s", 1.5, bus_gone,
          duration=AWAY_SECONDS,
          alerts=frozenset({"HubBusFailing"}), besides=HUB_GONE | {"EvidenceWaiting"}, several_hubs=True),
)  # fmt: skip
