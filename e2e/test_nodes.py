"""Drained and failing nodes in a real cluster. The steps build on each other.

The hub has no volume here, because a hub with a volume on a node cannot move. See docs/how-to/nodes.md.
"""

import asyncio
import time

import pytest
from harness.cluster.cluster import RAW_CHAINS, Json, until
from harness.cluster.site import RELEASE, SENSORS, SITE, SYSTEM, TAINTS, Site
from harness.records.diary import Diary
from harness.records.witness import Witness

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]

DEVICES = {"n-1": "before", "n-2": "after"}  # device → zone
DRAIN_SECONDS = 120
STOP_SECONDS, STOPS, LOSSY_SECONDS = 3.0, 5, 60.0
LOST_SECONDS = 60  # from power off until all is watched, and alarmed, again


def measured(diary: Diary, name: str, value: float, unit: str, limit: float | None = None) -> str:
    """Keep a number; returns it for the progress line."""
    number = diary.measure(name, value, unit, limit)
    return number.text() if number.within else f"{number.text()}, more than {limit:g}"


def fleet(expose: Json) -> Json:
    return {
        "apiVersion": "embereye.dev/v1alpha1",
        "kind": "SensorFleet",
        "metadata": {"name": SENSORS, "namespace": SITE},
        "spec": {
            "sensors": [{"id": name, "zone": zone} for name, zone in DEVICES.items()],
            "shards": 1,
            "autoscaling": {"mode": "none"},
            "expose": expose,
        },
    }


async def shard(site: Site) -> Json:
    """The pod of the one shard; the newer one during a roll."""
    pods = await site.pods(component="sensor-shard", fleet=SENSORS)
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


async def hub(site: Site) -> Json:
    (pod,) = await site.pods(component="hub", namespace=SYSTEM)
    return pod


async def only_elsewhere(site: Site, node: str) -> None:
    """Wait until the shard runs, and on another node than this one."""

    async def pods() -> list[Json]:
        return await site.pods(component="sensor-shard", fleet=SENSORS)

    await until(pods, lambda pods: [pod["spec"].get("nodeName") != node for pod in pods] == [True], "it moved", 30)
    await site.covered("sf", SENSORS, 30)


async def emptied(site: Site, node: str) -> float:
    """Evict the shard from a node, again and again as an autoscaler does; returns the seconds that it took."""
    began = time.monotonic()

    async def left() -> list[Json]:
        pods = [
            pod
            for pod in await site.pods(component="sensor-shard", fleet=SENSORS)
            if pod["spec"].get("nodeName") == node
        ]
        for pod in pods:
            await site.evict(pod)
        return pods

    await until(left, lambda pods: not pods, f"{node} is empty", DRAIN_SECONDS)
    return time.monotonic() - began


async def test_one_shard_and_a_hub_without_a_volume(site: Site) -> None:
    with site.diary.step("installed, a fleet of one shard"):
        await site.install("hub.persistence.enabled=false")
        await site.apply_fleets(fleet(site.node_ports))
        site.witness = Witness(await site.hub(), site.diary, token=site.token)
        site.start(site.witness.run(), "witness")
        await site.start_text_devices(DEVICES)
        await site.covered("sf", SENSORS, 90)
        await until(site.witness.connected, bool, "the witness is connected", 20)
        await site.text_in("before").fire(ADC1=3600)
        await site.witness.alarmed("before", 10)


async def test_whoever_taints_a_node_to_remove_it_gets_it_empty(site: Site) -> None:
    for taint in TAINTS:
        key = taint.partition("=")[0].partition(":")[0]
        with site.diary.step(f"a node tainted {key}") as step:
            node = (await shard(site))["spec"]["nodeName"]
            await site.cluster.kubectl("taint", "node", node, taint)
            step.add_remark(
                "empty after " + measured(site.diary, f"{key}: empty", await emptied(site, node), "s", DRAIN_SECONDS)
            )
            await only_elsewhere(site, node)
            await site.cluster.kubectl("taint", "node", node, f"{key}-")


async def test_a_node_under_a_paused_fleet_is_drained(site: Site) -> None:
    with site.diary.step("a node under a paused fleet drained") as step:
        home = (await hub(site))["spec"]["nodeName"]
        if (await shard(site))["spec"]["nodeName"] == home:
            await site.cluster.kubectl("cordon", home)
            await only_elsewhere(site, home)
            await site.cluster.kubectl("uncordon", home)
        await pause(site, paused=True)
        node = (await shard(site))["spec"]["nodeName"]
        began = time.monotonic()
        drain = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_SECONDS}s")
        await site.cluster.kubectl("drain", node, *drain, limit=DRAIN_SECONDS + 10)
        step.add_remark(measured(site.diary, "paused: drained", time.monotonic() - began, "s", DRAIN_SECONDS))
        await site.cluster.kubectl("uncordon", node)
        await pause(site, paused=False)
        await only_elsewhere(site, node)


async def pause(site: Site, *, paused: bool) -> None:
    patch = f'{{"spec": {{"paused": {str(paused).lower()}}}}}'
    await site.cluster.kubectl("patch", f"sf/{SENSORS}", "--namespace", SITE, "--type=merge", "--patch", patch)


async def placement(site: Site) -> Json:
    """The shard's pods and nodes, and the owners of its devices."""
    stored = await site.cluster.existing("configmap", f"{SENSORS}-sensors-placement", SITE, 10)
    pods = await site.pods(component="sensor-shard", fleet=SENSORS)
    places = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in pods}
    return {"pods": places, "placement": stored["data"]}


async def test_short_stops_and_lost_packets_move_nothing(site: Site) -> None:
    pod, before = await shard(site), await placement(site)
    with site.diary.step(f"the shard stopped for {STOP_SECONDS:g} s, {STOPS} times"):
        for _ in range(STOPS):
            await site.cluster.send_signal(pod, "STOP")
            await asyncio.sleep(STOP_SECONDS)
            await site.cluster.send_signal(pod, "CONT")
            await asyncio.sleep(STOP_SECONDS)
        assert await placement(site) == before
    with site.diary.step(f"every fifth packet to its node lost for {LOSSY_SECONDS:g} s"):
        rule = (RAW_CHAINS[0], "-m", "statistic", "--mode", "random", "--probability", "0.2", "-j", "DROP")
        await site.cluster.on_node(pod["spec"]["nodeName"], "iptables", "-t", "raw", "-I", *rule)
        try:
            await asyncio.sleep(LOSSY_SECONDS)
        finally:
            await site.cluster.on_node(pod["spec"]["nodeName"], "iptables", "-t", "raw", "-D", *rule)
        await site.covered("sf", SENSORS, 30)
        assert await placement(site) == before


async def test_a_node_that_is_powered_off_is_made_up_for_within_a_minute(site: Site) -> None:
    node = (await hub(site))["spec"]["nodeName"]
    assert (await shard(site))["spec"]["nodeName"] == node, "the drain has brought both together"
    await spread_operators(site)
    with site.diary.step("the node under the hub and the only shard powered off") as step:
        await site.stop("witness")
        away_ns = await site.cluster.power_off(node)
        # The new hub has no history, so this is a new witness without a cursor.
        site.witness = Witness(await site.hub(), site.diary, "second-witness", site.token)
        site.start(site.witness.run(), "witness")
        device = site.text_in("after")
        device.values = {**device.values, "ADC1": 3600}
        heard = await site.witness.alarmed("after", 2 * LOST_SECONDS)
        alarming = (heard.time_ns - away_ns) / 1e9
        await site.covered("sf", SENSORS, LOST_SECONDS)
        covered = (time.time_ns() - away_ns) / 1e9
        step.add_remark(
            "alarming again after " + measured(site.diary, "powered off: alarm", alarming, "s", LOST_SECONDS)
        )
        step.add_remark("covered after " + measured(site.diary, "powered off: covered", covered, "s", LOST_SECONDS))
        assert (await hub(site))["spec"]["nodeName"] != node
        assert (await shard(site))["spec"]["nodeName"] != node
    assert alarming <= LOST_SECONDS
    assert covered <= LOST_SECONDS


async def spread_operators(site: Site) -> None:
    """A drain may have brought both operators together; nothing spreads them again but a new pod."""
    operators = await site.pods(component="operator", namespace=SYSTEM)
    if len({pod["spec"]["nodeName"] for pod in operators}) == 1:
        await site.cluster.kubectl("delete", "pod", operators[0]["metadata"]["name"], "--namespace", SYSTEM)
    await site.cluster.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "--namespace", SYSTEM)
    await asyncio.sleep(5)  # for one of them to lead


async def test_the_node_comes_back_and_nothing_alarms_again(site: Site) -> None:
    with site.diary.step("the node powered on"):
        for node in await site.cluster.nodes():
            await site.cluster.power_on(node)
        await site.cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")

        async def pods() -> list[Json]:
            return await site.cluster.items(
                "pods", "--all-namespaces", "--selector", "app.kubernetes.io/part-of=embereye"
            )

        await until(pods, lambda pods: len(pods) == 4, "two operators, a hub and a shard are left", 60)
        await site.covered("sf", SENSORS, 30)
        assert len(site.witness.alarms("after")) == 1


async def test_after_helm_uninstall_a_node_is_drained(site: Site) -> None:
    with site.diary.step("drained without an operator") as step:
        await site.stop("witness")
        await site.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
        node = (await shard(site))["spec"]["nodeName"]
        began = time.monotonic()
        drain = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_SECONDS}s")
        await site.cluster.kubectl("drain", node, *drain, limit=DRAIN_SECONDS + 10)
        step.add_remark(measured(site.diary, "uninstalled: drained", time.monotonic() - began, "s", DRAIN_SECONDS))
        assert await site.cluster.items("poddisruptionbudgets", "--all-namespaces") == []
