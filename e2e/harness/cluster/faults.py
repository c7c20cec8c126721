"""Faults that are made in a cluster: to pods, nodes, networks, the API server, and by people who change what runs."""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.cluster.attacked import COVERED_SECONDS, SHARDS, Release
from harness.cluster.cluster import RAW_CHAINS, Json, until
from harness.cluster.hub_faults import HUB, HUB_FAULTS, is_ready, reset_restart_delay
from harness.cluster.site import CAMERAS, MOUNTED_SECONDS, RELEASE, SENSORS, SITE, SYSTEM, TAINTS
from harness.matrix.fault import Fault, mended_after
from harness.matrix.rules import CUT_OFF, HUB_GONE, MOVED, OPERATOR_GONE, SHARD_GONE

API_SERVER = "/etc/kubernetes/manifests/kube-apiserver.yaml"  # kubelet runs it for as long as this file is there
BACK_SECONDS = 120.0  # for the API server, and for CoreDNS, once they may run again
ISSUED_SECONDS = 240.0  # for the operator to see that certificates are gone
SLOW_LINE = "1mbit"
NAMELESS_SECONDS = 20.0
NO_SUCH_IMAGE = "embereye:no-such-version"


async def _pods(release: Release, component: str, namespace: str = SITE) -> list[Json]:
    found = await release.site.pods(component=component, namespace=namespace)
    if not found:
        raise RuntimeError(f"{namespace} has no pod of the component {component}")
    return found


async def _watching(release: Release) -> list[Json]:
    """The pods of the sensors' shards, first that which most of the probed sensors are with: they show the harm."""
    watchers, probed = await release.site.watchers(), [prober.device for prober in release.site.ingest]
    with_it = Counter(shard for device in probed for shard in watchers.get(device, ()))
    pods = await _pods(release, "sensor-shard")
    return sorted(pods, key=lambda pod: -with_it[pod["metadata"]["labels"]["embereye.dev/shard"]])


async def _kill(release: Release, component: str, namespace: str = SITE) -> None:
    pod = (await _pods(release, component, namespace))[0]
    await release.cluster.kill_container(pod)
    release.struck = time.monotonic()


async def _patch(release: Release, spec: Json) -> None:
    patch = json.dumps({"spec": spec})
    await release.cluster.kubectl("patch", f"sf/{SENSORS}", "--namespace", SITE, "--type=merge", "--patch", patch)


async def _rescale(release: Release) -> None:
    release.shards = SHARDS + 1 if release.shards == SHARDS else SHARDS
    await _patch(release, {"shards": release.shards})


@asynccontextmanager
async def scaled(release: Release) -> AsyncIterator[None]:
    """A planned move, for comparison: another number of shards."""
    await _rescale(release)
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_killed(release: Release) -> AsyncIterator[None]:
    """A sensor shard is killed, as for want of memory."""
    await release.cluster.kill_container((await _watching(release))[0])
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_deleted(release: Release) -> AsyncIterator[None]:
    """Somebody deletes the pod of a sensor shard."""
    pod = (await _watching(release))[0]
    await release.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", SITE, "--wait=false")
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_evicted(release: Release) -> AsyncIterator[None]:
    """A sensor shard's pod is evicted, as by an autoscaler that takes its node away, until it is gone."""
    node, taint = await _node_with_a_shard(release), TAINTS[0]
    pod = next(pod for pod in await _watching(release) if pod["spec"]["nodeName"] == node)

    async def gone() -> bool:
        uids = [one["metadata"]["uid"] for one in await _pods(release, "sensor-shard")]
        return await release.site.evict(pod) or pod["metadata"]["uid"] not in uids

    await release.cluster.kubectl("taint", "node", node, taint)
    try:
        await until(gone, bool, "the pod has gone from its node", COVERED_SECONDS)
        release.struck = time.monotonic()
        yield
    finally:
        await release.cluster.kubectl("taint", "node", node, f"{taint.partition('=')[0]}-")
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_out_of_memory(release: Release) -> AsyncIterator[None]:
    """The kernel kills a sensor shard for want of memory."""
    await release.cluster.exhaust_memory((await _watching(release))[0])
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def camera_shard_killed(release: Release) -> AsyncIterator[None]:
    """The camera shard is killed, and its decoders with it."""
    await _kill(release, "camera-shard")
    yield
    await release.site.covered("cf", CAMERAS, COVERED_SECONDS)


@asynccontextmanager
async def hub_killed(release: Release) -> AsyncIterator[None]:
    """The hub is killed."""
    await _kill(release, "hub", SYSTEM)
    yield


@asynccontextmanager
async def operators_killed(release: Release) -> AsyncIterator[None]:
    """All operators are killed during a hand-over."""
    await _rescale(release)
    await asyncio.sleep(1.0)
    for pod in await _pods(release, "operator", SYSTEM):
        await release.cluster.kill_container(pod)
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


async def _node_with_a_shard(release: Release) -> str:
    """A node that the hub is not on, where a sensor shard watches its devices."""
    site = release.site
    home = site.home_node
    (node,) = (name for name in await site.cluster.nodes() if name != home)

    async def nodes() -> set[str]:
        """Where shards are; none while some come or go: who has only just been started watches nothing yet."""
        label = "app.kubernetes.io/component=sensor-shard"
        pods = await site.cluster.items("pods", "--namespace", SITE, "--selector", label)
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        moving = leaving or len(pods) != release.shards or not all(is_ready(pod) for pod in pods)
        return set() if moving else {pod["spec"].get("nodeName", "") for pod in pods}

    if node not in await until(nodes, bool, "no shard comes or goes", COVERED_SECONDS):
        await site.cluster.kubectl("cordon", home)  # which the operator takes for a node that is to be emptied
        try:
            await until(nodes, lambda found: node in found, f"a shard watches from {node}", COVERED_SECONDS)
        finally:
            await site.cluster.kubectl("uncordon", home)
    await release.wait_until_at_rest()
    release.struck = time.monotonic()
    return node


@asynccontextmanager
async def node_drained(release: Release) -> AsyncIterator[None]:
    """A node is drained, as for its upgrade."""
    node = await _node_with_a_shard(release)
    drain = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    await release.cluster.kubectl("drain", node, *drain, limit=130)
    yield
    await release.cluster.kubectl("uncordon", node)
    await release.wait_until_at_rest()


@asynccontextmanager
async def node_off(release: Release) -> AsyncIterator[None]:
    """A node with a shard is powered off, and on again."""
    node = await _node_with_a_shard(release)
    await release.cluster.power_off(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def node_cut_off(release: Release) -> AsyncIterator[None]:
    """A node with a shard goes on, and nobody reaches it, nor it anybody."""
    node = await _node_with_a_shard(release)
    for chain in RAW_CHAINS:
        await release.cluster.on_node(node, "iptables", "-t", "raw", "-I", chain, "-j", "DROP")
    try:
        yield
    finally:
        for chain in RAW_CHAINS:
            await release.cluster.on_node(node, "iptables", "-t", "raw", "-D", chain, "-j", "DROP")
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def network_bad(release: Release) -> AsyncIterator[None]:
    """One packet in twenty that comes to a node, or to its pods, is lost."""
    node = await _node_with_a_shard(release)
    rule = ("-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP")
    await release.cluster.on_node(node, "iptables", "-t", "raw", "-I", RAW_CHAINS[0], *rule)
    try:
        yield
    finally:
        await release.cluster.on_node(node, "iptables", "-t", "raw", "-D", RAW_CHAINS[0], *rule)


@asynccontextmanager
async def network_slow(release: Release) -> AsyncIterator[None]:
    """What a node sends waits in a queue before a line that is too slow for it."""
    node = await _node_with_a_shard(release)
    queue = ("rate", SLOW_LINE, "burst", "4kb", "latency", "300ms")
    await release.cluster.on_node(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *queue)
    try:
        yield
    finally:
        await release.cluster.on_node(node, "tc", "qdisc", "delete", "dev", "eth0", "root")


@asynccontextmanager
async def node_paused(release: Release) -> AsyncIterator[None]:
    """A node with a shard stands still with all that runs on it, and goes on; its kernel answers meanwhile."""
    node = await _node_with_a_shard(release)
    await release.cluster.pause(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def api_server_down(release: Release) -> AsyncIterator[None]:
    """There is no API server."""
    (plane,) = await release.cluster.items("nodes", "--selector", "node-role.kubernetes.io/control-plane")
    node, away = plane["metadata"]["name"], "/etc/kubernetes/kube-apiserver.yaml"

    async def answers() -> bool:
        return bool(await release.cluster.kubectl("get", "--raw", "/readyz", check=False, limit=5))

    await release.cluster.on_node(node, "mv", API_SERVER, away)
    try:
        await until(answers, lambda there: not there, "the API server is gone", 60)
        release.struck = time.monotonic()
        yield
    finally:
        await release.cluster.on_node(node, "mv", away, API_SERVER)
        await until(answers, bool, "the API server is back", BACK_SECONDS)


@asynccontextmanager
async def names_gone(release: Release) -> AsyncIterator[None]:
    """Nobody resolves names in the cluster."""
    dns = ("--namespace", "kube-system", "deployment/coredns")
    before = json.loads(await release.cluster.kubectl("get", *dns, "--output", "json"))["spec"]["replicas"]

    async def restore() -> None:
        await release.cluster.kubectl("scale", *dns, f"--replicas={before}")
        await release.cluster.kubectl("rollout", "status", *dns, f"--timeout={BACK_SECONDS:g}s", limit=BACK_SECONDS + 5)

    await release.cluster.kubectl("scale", *dns, "--replicas=0")
    async with mended_after(NAMELESS_SECONDS, restore):
        yield


@asynccontextmanager
async def rolled_out(release: Release) -> AsyncIterator[None]:
    """All shards are replaced by others that may use more memory, under load."""
    memory = f"{400 + int(time.monotonic()) % 100}Mi"
    await _patch(release, {"resources": {"limits": {"memory": memory}}})
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def image_bad(release: Release) -> AsyncIterator[None]:
    """Somebody names an image that there is not, and takes it back."""
    await _patch(release, {"image": NO_SUCH_IMAGE})
    try:
        yield
    finally:
        await _patch(release, {"image": None})
        await release.wait_until_at_rest()


@asynccontextmanager
async def fleet_deleted(release: Release) -> AsyncIterator[None]:
    """The fleet is deleted, and applied again."""
    await release.cluster.kubectl("delete", f"sf/{SENSORS}", "--namespace", SITE, "--timeout=90s")
    await release.cluster.apply(release.sensor_fleet())
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def certificates_gone(release: Release) -> AsyncIterator[None]:
    """The certificates of all shards and of the hub are deleted: the operator issues others under load."""
    for namespace in (SITE, SYSTEM):
        found = await release.cluster.items("secrets", "--namespace", namespace)
        names = [one["metadata"]["name"] for one in found if one["metadata"]["name"].endswith("-identity")]
        if names:
            await release.cluster.kubectl("delete", "secret", *names, "--namespace", namespace)
    yield
    await release.site.cluster.existing("secret", f"{RELEASE}-hub-identity", SYSTEM, ISSUED_SECONDS)


@asynccontextmanager
async def credentials_rotated(release: Release) -> AsyncIterator[None]:
    """Replace the devices' token and the admin's while work continues, as docs/how-to/security.md describes."""
    before, after = release.device_token, secrets.token_urlsafe()
    await release.write_tokens(before, after)
    await until(lambda: release.admissions(after), {True}.__eq__, "the next token is known", MOUNTED_SECONDS)
    release.show_token(after)
    await release.site.change_admin_token()
    await release.write_tokens(after)
    yield
    await until(lambda: release.admissions(before), {False}.__eq__, "the last token is no more", MOUNTED_SECONDS)


NODE = "a node"
FLEET = "the fleet"
FAULTS: dict[str, Fault[Release]] = {
    fault.name: fault
    for fault in (
        Fault("planned move", "the number of sensor shards is changed", 1.5, scaled, at_once=True,
              besides=MOVED, takes=FLEET, planned=True),
        Fault("shard killed", "a sensor shard is killed (-9)", 10.0, shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("shard out of memory", "the kernel kills a sensor shard for want of memory", 10.0, shard_out_of_memory,
              at_once=True, besides=SHARD_GONE),
        Fault("shard deleted", "the pod of a sensor shard is deleted", 10.0, shard_deleted, at_once=True,
              besides=SHARD_GONE),
        Fault("shard evicted", "an autoscaler evicts the pod of a sensor shard from a node", 1.5, shard_evicted,
              at_once=True, besides=SHARD_GONE, takes=NODE, planned=True),
        Fault("camera shard killed", "the camera shard is killed (-9)", 1.5, camera_shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("hub killed", "the hub is killed (-9)", 1.5, hub_killed, at_once=True, besides=HUB_GONE, takes=HUB,
              before=reset_restart_delay),
        *HUB_FAULTS,
        Fault("operators killed", "all operators are killed (-9) during a hand-over", 1.5, operators_killed,
              at_once=True, besides=OPERATOR_GONE | MOVED, takes=FLEET),
        Fault("node drained", "a node with a shard is drained", 1.5, node_drained, at_once=True,
              besides=SHARD_GONE | OPERATOR_GONE, takes=NODE, planned=True),
        Fault("node paused", "a node with a shard stands still for a minute, and goes on", 45.0, node_paused, hold=60.0,
              besides=SHARD_GONE | OPERATOR_GONE | CUT_OFF, takes=NODE),
        Fault("node off", "a node with a shard is powered off for a minute", 45.0, node_off, hold=60.0,
              besides=SHARD_GONE | OPERATOR_GONE | CUT_OFF, takes=NODE),
        Fault("node cut off", "a node with a shard is cut off from all others for a minute", 45.0, node_cut_off,
              hold=60.0, besides=SHARD_GONE | OPERATOR_GONE | CUT_OFF, takes=NODE),
        Fault("network bad", "one packet in twenty that comes to a node is lost, for 20 s", 10.0, network_bad,
              hold=20.0, besides=SHARD_GONE | HUB_GONE | CUT_OFF, takes=NODE),
        Fault("network slow", f"a node sends no more than {SLOW_LINE}/s, for 20 s", 10.0, network_slow,
              hold=20.0, besides=SHARD_GONE | HUB_GONE | CUT_OFF, takes=NODE),
        Fault("names gone", f"nobody resolves names for {NAMELESS_SECONDS:g} s", 1.5, names_gone,
              hold=NAMELESS_SECONDS, besides=frozenset({"HubNotReached", "EvidenceWaiting"})),
        Fault("rolled out", "all sensor shards are replaced by others", 1.5, rolled_out, at_once=True,
              besides=frozenset({"ShardDown", "FleetNotReady"}), takes=FLEET, planned=True),
        Fault("image bad", "an image that there is not is declared for 20 s, and taken back", 1.5, image_bad,
              hold=20.0, besides=MOVED, takes=FLEET),
        Fault("fleet deleted", "the fleet is deleted, and applied again", 45.0, fleet_deleted, at_once=True,
              besides=SHARD_GONE, takes=FLEET),
        Fault("certificates gone", "the certificates of shards and hub are deleted, and issued anew", 1.5,
              certificates_gone, hold=10.0),
        Fault("credentials rotated", "the devices' token and the administrator's are replaced", 1.5,
              credentials_rotated, hold=10.0, planned=True),
        # Last, and so the second of each pair: others are made by its help.
        Fault("API server down", "there is no API server for a minute", 1.5, api_server_down, hold=60.0,
              alerts=frozenset({"NoLeader"}), besides=OPERATOR_GONE | {"PassesFailing"}),
    )
}  # fmt: skip
