"""Faults in a cluster: of pods, nodes, networks and the API server, and changes that people make.

A fault is an asynchronous context manager over a `Release`: entering does the harm, leaving repairs it, and often waits
until the fleet is at rest. The sensor shard with most probed sensors is harmed, because they show it. Faults of nodes
never take the one with the hub's volume. `FAULTS` lists all with their expected gaps and alerts; `matrix.py` makes
them and judges the effect.
"""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from embereye_operator.api.bounds import COVERED_SECONDS, GAPS
from embereye_operator.api.fleets import parse_fleet
from harness.cluster.attacked import SHARDS, TOKENS, Release
from harness.cluster.cluster import RAW_CHAINS, Json, until
from harness.cluster.hub_faults import HUB, HUB_FAULTS, LOST_NODE, is_ready, reset_restart_delay
from harness.cluster.site import CAMERAS, MOUNTED_SECONDS, RELEASE, SENSORS, SITE, SYSTEM, TAINTS
from harness.matrix.edits import merge
from harness.matrix.fault import Fault, mended_after
from harness.matrix.rules import CUT_OFF, HUB_GONE, MOVED, NODE_GONE, OPERATOR_GONE, SHARD_GONE

API_SERVER = "/etc/kubernetes/manifests/kube-apiserver.yaml"  # kubelet runs it as long as this file exists
BACK_SECONDS = 120.0  # time limit for the API server, and for CoreDNS, to return
ISSUED_SECONDS = 240.0  # time limit for the operator to issue deleted certificates again
SLOW_LINE = "1mbit"
NAMELESS_SECONDS = 20.0
OTHER_VALUE = "hub.retention=91d"
NO_SUCH_IMAGE = "embereye:no-such-version"


async def _pods(release: Release, component: str, namespace: str = SITE) -> list[Json]:
    fleet = SENSORS if component == "sensor-shard" else ""  # a soak has a second sensor fleet
    pods = await release.site.pods(component=component, fleet=fleet, namespace=namespace)
    if not pods:
        raise RuntimeError(f"{namespace} has no pod of the component {component}")
    return pods


async def _watching(release: Release) -> list[Json]:
    """The sensor shards' pods, first the one with most probed sensors, which show the harm."""
    watchers, probed = await release.site.watchers(), [prober.device for prober in release.site.ingest]
    with_it = Counter(shard for device in probed for shard in watchers.get(device, ()))
    pods = await _pods(release, "sensor-shard")
    return sorted(pods, key=lambda pod: -with_it[pod["metadata"]["labels"]["embereye.dev/shard"]])


async def _kill(release: Release, component: str, namespace: str = SITE) -> None:
    pod = (await _pods(release, component, namespace))[0]
    await release.cluster.kill_container(pod)
    release.struck = time.monotonic()


def other_pod() -> Json:
    """A change of a fleet's spec that changes the pods of its shards: another memory limit each second."""
    return {"template": {"resources": {"limits": {"memory": f"{400 + int(time.monotonic()) % 100}Mi"}}}}


async def _patch(release: Release, spec: Json) -> None:
    fleet = release.sensor_fleet()
    parse_fleet({**fleet, "spec": merge(fleet["spec"], spec)})  # the API server drops unknown fields
    patch = json.dumps({"spec": spec})
    await release.cluster.kubectl("patch", f"sf/{SENSORS}", "--namespace", SITE, "--type=merge", "--patch", patch)


async def _rescale(release: Release) -> None:
    release.shards = SHARDS + 1 if release.shards == SHARDS else SHARDS
    await _patch(release, {"shards": release.shards})


@asynccontextmanager
async def scaled(release: Release) -> AsyncIterator[None]:
    """Change the number of shards: a planned move, for comparison."""
    await _rescale(release)
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_killed(release: Release) -> AsyncIterator[None]:
    """Kill a sensor shard, as the kernel does when memory runs out."""
    await release.cluster.kill_container((await _watching(release))[0])
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_deleted(release: Release) -> AsyncIterator[None]:
    """Delete the pod of a sensor shard."""
    pod = (await _watching(release))[0]
    await release.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", SITE, "--wait=false")
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def shard_evicted(release: Release) -> AsyncIterator[None]:
    """Evict a sensor shard's pod, as an autoscaler does that removes its node."""
    node, taint = await _node_with_a_shard(release), TAINTS[0]
    pod = next(pod for pod in await _watching(release) if pod["spec"]["nodeName"] == node)

    async def gone() -> bool:
        uids = [other["metadata"]["uid"] for other in await _pods(release, "sensor-shard")]
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
    """Let the kernel kill a sensor shard because its memory is full."""
    await release.cluster.exhaust_memory((await _watching(release))[0])
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def camera_shard_killed(release: Release) -> AsyncIterator[None]:
    """Kill the camera shard and its decoders."""
    await _kill(release, "camera-shard")
    yield
    await release.site.covered("cf", CAMERAS, COVERED_SECONDS)


@asynccontextmanager
async def hub_killed(release: Release) -> AsyncIterator[None]:
    """Kill the hub."""
    await _kill(release, "hub", SYSTEM)
    yield


@asynccontextmanager
async def operators_killed(release: Release) -> AsyncIterator[None]:
    """Kill all operators during a hand-over."""
    await _rescale(release)
    await asyncio.sleep(1.0)
    for pod in await _pods(release, "operator", SYSTEM):
        await release.cluster.kill_container(pod)
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


async def _node_with_a_shard(release: Release) -> str:
    """A node without the hub, on which a sensor shard watches devices. A shard is moved there if necessary."""
    site = release.site
    home = site.home_node
    (node,) = (name for name in await site.cluster.nodes() if name != home)

    async def nodes() -> set[str]:
        """The nodes of shards; empty while shards start or stop, because a new shard watches nothing yet."""
        label = f"app.kubernetes.io/component=sensor-shard,app.kubernetes.io/instance={SENSORS}"
        pods = await site.cluster.items("pods", "--namespace", SITE, "--selector", label)
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        moving = leaving or len(pods) != release.shards or not all(is_ready(pod) for pod in pods)
        return set() if moving else {pod["spec"].get("nodeName", "") for pod in pods}

    if node not in await until(nodes, bool, "no shard comes or goes", COVERED_SECONDS):
        await site.cluster.kubectl("cordon", home)  # the operator moves shards off a cordoned node
        try:
            await until(nodes, lambda names: node in names, f"a shard watches from {node}", COVERED_SECONDS)
        finally:
            await site.cluster.kubectl("uncordon", home)
    await release.wait_until_at_rest()
    release.struck = time.monotonic()
    return node


@asynccontextmanager
async def node_drained(release: Release) -> AsyncIterator[None]:
    """Drain a node, as for its upgrade."""
    node = await _node_with_a_shard(release)
    drain = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    await release.cluster.kubectl("drain", node, *drain, limit=130)
    yield
    await release.cluster.kubectl("uncordon", node)
    await release.wait_until_at_rest()


@asynccontextmanager
async def node_off(release: Release) -> AsyncIterator[None]:
    """Power a node with a shard off, and on again."""
    node = await _node_with_a_shard(release)
    await release.cluster.power_off(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def node_cut_off(release: Release) -> AsyncIterator[None]:
    """Cut a running node with a shard off from the network."""
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
    """Drop one packet in twenty to a node and its pods."""
    node = await _node_with_a_shard(release)
    rule = ("-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP")
    await release.cluster.on_node(node, "iptables", "-t", "raw", "-I", RAW_CHAINS[0], *rule)
    try:
        yield
    finally:
        await release.cluster.on_node(node, "iptables", "-t", "raw", "-D", RAW_CHAINS[0], *rule)


@asynccontextmanager
async def network_slow(release: Release) -> AsyncIterator[None]:
    """Limit a node's outgoing line to `SLOW_LINE`, so that its packets queue."""
    node = await _node_with_a_shard(release)
    queue = ("rate", SLOW_LINE, "burst", "4kb", "latency", "300ms")
    await release.cluster.on_node(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *queue)
    try:
        yield
    finally:
        await release.cluster.on_node(node, "tc", "qdisc", "delete", "dev", "eth0", "root")


@asynccontextmanager
async def node_paused(release: Release) -> AsyncIterator[None]:
    """Freeze the processes of a node with a shard. Its kernel still answers packets."""
    node = await _node_with_a_shard(release)
    await release.cluster.pause(node)
    try:
        yield
    finally:
        await release.cluster.power_on(node)
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")


@asynccontextmanager
async def api_server_down(release: Release) -> AsyncIterator[None]:
    """Stop the API server, and start it again."""
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
    """Stop the cluster's DNS, and start it again."""
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
    """Roll out a new memory limit to all shards under load."""
    await _patch(release, other_pod())
    release.struck = time.monotonic()
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def image_bad(release: Release) -> AsyncIterator[None]:
    """Declare an image that does not exist, and revert it."""
    await _patch(release, {"image": NO_SUCH_IMAGE})
    try:
        yield
    finally:
        await _patch(release, {"image": None})
        await release.wait_until_at_rest()


@asynccontextmanager
async def fleet_deleted(release: Release) -> AsyncIterator[None]:
    """Delete the fleet, and apply it again."""
    await release.cluster.kubectl("delete", f"sf/{SENSORS}", "--namespace", SITE, "--timeout=90s")
    await release.cluster.apply(release.sensor_fleet())
    yield
    await release.wait_until_at_rest()


@asynccontextmanager
async def certificates_gone(release: Release) -> AsyncIterator[None]:
    """Delete the certificates of all shards and of the hub. The operator issues new ones under load."""
    for namespace in (SITE, SYSTEM):
        listed = await release.cluster.items("secrets", "--namespace", namespace)
        names = [name for secret in listed if (name := secret["metadata"]["name"]).endswith("-identity")]
        if names:
            await release.cluster.kubectl("delete", "secret", *names, "--namespace", namespace)
    yield
    await release.site.cluster.existing("secret", f"{RELEASE}-hub-identity", SYSTEM, ISSUED_SECONDS)


@asynccontextmanager
async def config_maps_gone(release: Release) -> AsyncIterator[None]:
    """Delete the ConfigMaps of the fleets, such as their placements. The operator writes them again."""
    namespace = ("--namespace", SITE)
    ours = ("--selector", "app.kubernetes.io/managed-by=embereye-operator")
    before = {entry["metadata"]["name"] for entry in await release.cluster.items("configmaps", *namespace, *ours)}
    await release.cluster.kubectl("delete", "configmaps", *sorted(before), *namespace)
    yield

    async def missing() -> set[str]:
        return before - {
            entry["metadata"]["name"] for entry in await release.cluster.items("configmaps", *namespace, *ours)
        }

    await until(missing, lambda names: not names, "the ConfigMaps are written again", COVERED_SECONDS)
    await release.wait_until_at_rest()


@asynccontextmanager
async def tokens_gone(release: Release) -> AsyncIterator[None]:
    """Delete the Secret of the devices' tokens, and write it again."""
    await release.cluster.kubectl("delete", "secret", TOKENS, "--namespace", SITE)
    try:
        yield
    finally:
        await release.write_tokens(release.device_token)
    await release.wait_until_at_rest()


@asynccontextmanager
async def values_changed(release: Release) -> AsyncIterator[None]:
    """Upgrade the release to the same chart with another value, and back. The hubs restart for it."""
    await release.site.upgrade(*release.values(), OTHER_VALUE)
    await _wait_for_rollouts(release)
    try:
        yield
    finally:
        await release.site.upgrade(*release.values())
        await _wait_for_rollouts(release)


async def _wait_for_rollouts(release: Release) -> None:
    """Wait until all hubs and operators run as declared; `kubectl wait` would wait for pods that are leaving, too."""
    for name in (f"{RELEASE}-hub", f"{RELEASE}-operator"):
        place = (f"deployment/{name}", "--namespace", SYSTEM)
        limit = f"--timeout={COVERED_SECONDS:g}s"
        await release.cluster.kubectl("rollout", "status", *place, limit, limit=COVERED_SECONDS + 5)


@asynccontextmanager
async def credentials_rotated(release: Release) -> AsyncIterator[None]:
    """Replace the devices' token and the admin's while work continues, as docs/how-to/security.md describes."""
    before, after = release.device_token, secrets.token_urlsafe()
    await release.write_tokens(before, after)
    await until(lambda: release.admissions(after), {True}.__eq__, "the new token is accepted", MOUNTED_SECONDS)
    release.show_token(after)
    await release.site.change_admin_token()
    await release.write_tokens(after)
    yield
    await until(lambda: release.admissions(before), {False}.__eq__, "the old token is refused", MOUNTED_SECONDS)


NODE = "a node"
FLEET = "the fleet"
FAULTS: dict[str, Fault[Release]] = {
    fault.name: fault
    for fault in (
        Fault("planned move", "the number of sensor shards is changed", 1.5, scaled, at_once=True,
              besides=MOVED, takes=FLEET, planned=True),
        Fault("shard killed", "a sensor shard is killed (-9)", 10.0, shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("shard out of memory", "the kernel kills a sensor shard whose memory is full", 10.0, shard_out_of_memory,
              at_once=True, besides=SHARD_GONE),
        Fault("shard deleted", "the pod of a sensor shard is deleted", GAPS["shard deleted"], shard_deleted,
              at_once=True, besides=SHARD_GONE),
        Fault("shard evicted", "an autoscaler evicts the pod of a sensor shard from a node", GAPS["shard evicted"],
              shard_evicted, at_once=True, besides=SHARD_GONE, takes=NODE, planned=True),
        Fault("camera shard killed", "the camera shard is killed (-9)", 1.5, camera_shard_killed, at_once=True,
              besides=SHARD_GONE),
        Fault("hub killed", "the hub is killed (-9)", GAPS["hub killed"], hub_killed, at_once=True, besides=HUB_GONE,
              takes=HUB, before=reset_restart_delay),
        *HUB_FAULTS,
        Fault("operators killed", "all operators are killed (-9) during a hand-over", 1.5, operators_killed,
              at_once=True, besides=OPERATOR_GONE | MOVED, takes=FLEET),
        Fault("node drained", "a node with a shard is drained", GAPS["node drained"], node_drained, at_once=True,
              besides=SHARD_GONE | HUB_GONE | OPERATOR_GONE, takes=NODE, planned=True),
        Fault("node paused", "a node with a shard is paused for a minute", LOST_NODE, node_paused, duration=60.0,
              besides=NODE_GONE, takes=NODE),
        Fault("node off", "a node with a shard is powered off for a minute", LOST_NODE, node_off, duration=60.0,
              besides=NODE_GONE, takes=NODE),
        # A hub there does not reach NATS, either.
        Fault("node cut off", "a node with a shard is cut off from all others for a minute", LOST_NODE, node_cut_off,
              duration=60.0, besides=NODE_GONE | {"HubBusFailing"}, takes=NODE),
        Fault("network bad", "one packet in twenty to a node is lost, for 20 s", 10.0, network_bad,
              duration=20.0, besides=SHARD_GONE | HUB_GONE | CUT_OFF, takes=NODE),
        Fault("network slow", f"a node sends no more than {SLOW_LINE}/s, for 20 s", 10.0, network_slow,
              duration=20.0, besides=SHARD_GONE | HUB_GONE | CUT_OFF, takes=NODE),
        Fault("names gone", f"the cluster's DNS is down for {NAMELESS_SECONDS:g} s", 1.5, names_gone,
              duration=NAMELESS_SECONDS, besides=frozenset({"HubNotReached", "EvidenceWaiting"})),
        Fault("rolled out", "all sensor shards are replaced by others", 1.5, rolled_out, at_once=True,
              besides=frozenset({"ShardDown", "FleetNotReady"}), takes=FLEET, planned=True),
        Fault("image bad", "an image that does not exist is declared for 20 s", 1.5, image_bad,
              duration=20.0, besides=MOVED, takes=FLEET),
        Fault("fleet deleted", "the fleet is deleted, and applied again", 45.0, fleet_deleted, at_once=True,
              besides=SHARD_GONE, takes=FLEET),
        Fault("certificates gone", "the certificates of shards and hub are deleted", 1.5,
              certificates_gone, duration=10.0),
        Fault("ConfigMaps gone", "the fleets' ConfigMaps, with their placements, are deleted", GAPS["ConfigMaps gone"],
              config_maps_gone, duration=10.0, takes=FLEET),
        Fault("tokens gone", "the Secret of the devices' tokens is deleted, and written again after 20 s", 1.5,
              tokens_gone, duration=20.0, besides=frozenset({"FleetDegraded"}), takes=TOKENS),
        Fault("values changed", "helm upgrades the release to another value, and back", 1.5, values_changed,
              duration=20.0, besides=HUB_GONE | OPERATOR_GONE, takes=HUB, planned=True),
        Fault("credentials rotated", "the devices' token and the administrator's are replaced", 1.5,
              credentials_rotated, duration=10.0, takes=TOKENS, planned=True),
        # Last, and so the second of each pair: the other faults are made through the API server.
        Fault("API server down", "the API server is down for a minute", 1.5, api_server_down, duration=60.0,
              alerts=frozenset({"NoLeader"}), besides=OPERATOR_GONE | {"PassesFailing"}),
    )
}  # fmt: skip
