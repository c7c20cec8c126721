"""Bursts that are answered with pods, and the pods that go after them: by the operator itself, and by autoscalers.

Kubernetes' own autoscaler reads the operator's number through a real Prometheus and prometheus-adapter, with the rules
of docs/how-to/operator.md. KEDA asks that Prometheus directly. Slow: `make e2e ARGS="-m slow"` runs it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from harness.cluster.adapter import install_adapter
from harness.cluster.cluster import Json, until
from harness.cluster.keda import install_keda
from harness.cluster.prometheus import LABELS, MONITORING, install_prometheus
from harness.cluster.site import SITE, VOLUME, Site
from harness.devices import FloodingDevice
from harness.records.diary import Step
from harness.records.probers import IngestProber

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(590), pytest.mark.slow]

FLEET = "surge"
PROBERS = {f"q-{number}": f"quiet-{number}" for number in range(1, 7)}
FLOODS = {"b-1": "burst-1", "b-2": "burst-2", "b-3": "burst-3"}
LINES = 15_000  # a second, of all that flood
QUIET_LINES = 5.0  # a second, of each before and after
MOST = 3
QUEUE_DEPTH = 500  # items
GAP_SECONDS = 10
DARK_SECONDS = 0  # in which any device was, one of those that flood among them
LOST_SECONDS = 40  # in which an autoscaler that takes no answer for 0 would have removed shards
PROMETHEUS = f"http://door.{MONITORING}.svc:9090"
OPTIONS = (
    "monitoring.enabled=true",
    "monitoring.interval=5s",
    f"operator.prometheus={PROMETHEUS}",
    *(f"monitoring.labels.{key}={value}" for key, value in LABELS.items()),
)


@dataclass
class Surge:
    """The fleet's devices: some that are never to be dark, and some that flood."""

    probers: list[IngestProber]
    floods: list[FloodingDevice]

    def flood(self, lines: float) -> None:
        """Have the latter send so many lines a second."""
        for device in self.floods:
            device.rate = lines / len(self.floods)

    async def well(self) -> None:
        """Wait until what the former send is acknowledged."""
        await asyncio.gather(*(prober.well(30) for prober in self.probers))

    def gap(self, since: float) -> float:
        """The longest time since then in which one of them was not acknowledged."""
        return max(prober.gap(since, time.monotonic()) for prober in self.probers)


def fleet(expose: Json) -> Json:
    """A tenth of a core is all that a shard is to use: a burst is one for a busy machine, too."""
    return {
        "apiVersion": "embereye.dev/v1beta1",
        "kind": "SensorFleet",
        "metadata": {"name": FLEET, "namespace": SITE},
        "spec": {
            "sensors": [{"id": name, "zone": zone} for name, zone in {**PROBERS, **FLOODS}.items()],
            "autoscaling": {
                "minShards": 1, "maxShards": MOST, "targetUtilization": 0.1, "queueDepth": QUEUE_DEPTH, "catchUp": "5s",
                "scaleDown": {"stabilization": "10s"},
            },
            "expose": expose,
        },
    }  # fmt: skip


async def shards(site: Site) -> int:
    return len(await site.pods(component="sensor-shard", fleet=FLEET))


@pytest.fixture(scope="module")
def surge() -> list[Surge]:
    """The fleet's devices, once they run."""
    return []


@asynccontextmanager
async def burst(site: Site, surge: Surge, step: Step, name: str) -> AsyncIterator[None]:
    """Inside it there are as many shards as there may be; afterwards one, and nobody was dark meanwhile."""
    await until(lambda: shards(site), lambda count: count == 1, "one shard", 200)
    since = time.monotonic()
    surge.flood(LINES)
    try:
        await until(lambda: shards(site), lambda count: count == MOST, f"{MOST} shards", 120)
        up = site.diary.measure(f"{name}: burst → {MOST} shards", time.monotonic() - since, "s")
        await site.condition("sf", FLEET, 90, Ready=True, Progressing=False)
        yield
    finally:
        surge.flood(QUIET_LINES * len(surge.floods))
    ended = time.monotonic()
    await until(lambda: shards(site), lambda count: count == 1, "one shard again", 300)
    down = site.diary.measure(f"{name}: end of the burst → 1 shard", time.monotonic() - ended, "s")
    await site.condition("sf", FLEET, 60, Ready=True, Progressing=False, Covered=True)
    await surge.well()
    gap = site.diary.measure(f"{name}, 1 → {MOST} → 1: gap", surge.gap(since), "s", GAP_SECONDS)
    dark = site.diary.measure(f"{name}, 1 → {MOST} → 1: not Covered", site.dark("sf", FLEET, since), "s", DARK_SECONDS)
    step.add_remark(f"up after {up.text()}, down after {down.text()}, gap {gap.text()}, dark {dark.text()}")
    assert gap.within
    assert dark.within
    assert [entry for prober in surge.probers for entry in prober.taken_back] == []


async def scaled_by(site: Site, mode: str) -> None:
    """Have the fleet scaled by another autoscaler, which works."""
    patch = json.dumps({"spec": {"autoscaling": {"mode": mode}}})
    await site.cluster.kubectl("patch", f"sf/{FLEET}", "--namespace", SITE, "--type=merge", "--patch", patch)
    await site.condition("sf", FLEET, 150, ScalingActive=True, Degraded=False)


@asynccontextmanager
async def without_prometheus(site: Site) -> AsyncIterator[None]:
    """Inside it nobody can be asked for the operator's number."""

    async def replicas(count: int) -> None:
        patch = json.dumps({"spec": {"replicas": count}})
        await site.cluster.kubectl(
            "patch", "prometheus/stack", "--namespace", MONITORING, "--type=merge", "--patch", patch
        )

    await replicas(0)
    try:
        yield
    finally:
        await replicas(1)


async def last_scale(site: Site) -> Json:
    scale: Json = (await site.fleet("sf", FLEET))["status"]["lastScale"]
    return scale


async def test_a_fleet_that_is_scaled_beside_a_real_prometheus(site: Site, surge: list[Surge]) -> None:
    with site.diary.step("installed with monitoring"):
        await install_prometheus(site.cluster)
        await site.install(f"hub.persistence.storageClass={VOLUME}", *OPTIONS)
        await site.apply_fleets(fleet(site.node_ports))
        known = await site.exposed("sf", FLEET)
        host, _, port = known["tcp"].rpartition(":")
        probers = [IngestProber(name, known["grpc"], site.diary) for name in PROBERS]
        floods = [FloodingDevice(name, zone, host, int(port), QUIET_LINES) for name, zone in FLOODS.items()]
        for prober in probers:
            site.start(prober.run(), f"quiet-{prober.device}")
        for device in floods:
            site.start(device.run(), f"flood-{device.id}")
        surge.append(Surge(probers, floods))
        await site.covered("sf", FLEET, 90)
        await surge[0].well()


async def test_the_operator_answers_a_burst_and_says_on_what_it_decided(site: Site, surge: list[Surge]) -> None:
    with site.diary.step("a burst, embedded, 1 → 3 → 1") as step:
        async with burst(site, surge[0], step, "embedded"):
            decided = await last_scale(site)
            assert (decided["from"], decided["to"]) == (MOST - 1, MOST)
            assert f"more than queueDepth {QUEUE_DEPTH}" in decided["reason"]
            assert decided["inputs"]["backlog"] > QUEUE_DEPTH
        assert (await last_scale(site))["to"] == 1


async def test_an_autoscaler_answers_a_burst_by_the_operators_number(site: Site, surge: list[Surge]) -> None:
    with site.diary.step("a burst, HorizontalPodAutoscaler, 1 → 3 → 1") as step:
        await install_adapter(site.cluster)
        await scaled_by(site, "hpa")
        async with burst(site, surge[0], step, "hpa"):
            (autoscaler,) = await site.cluster.items("horizontalpodautoscalers", "--namespace", SITE)
            assert autoscaler["status"]["desiredReplicas"] == MOST
        site.check_tasks()


async def test_keda_answers_a_burst_by_the_named_prometheus_and_holds_without_it(
    site: Site, surge: list[Surge]
) -> None:
    with site.diary.step("a burst, KEDA, 1 → 3 → 1") as step:
        await install_keda(site.cluster)
        await scaled_by(site, "keda")
        async with burst(site, surge[0], step, "keda"):
            (scaled,) = await site.cluster.items("scaledobjects", "--namespace", SITE)
            (trigger,) = scaled["spec"]["triggers"]
            assert trigger["metadata"]["serverAddress"] == PROMETHEUS
            (autoscaler,) = await site.cluster.items("horizontalpodautoscalers", "--namespace", SITE)
            assert autoscaler["metadata"]["ownerReferences"][0]["kind"] == "ScaledObject"
            async with without_prometheus(site):
                await site.condition("sf", FLEET, 120, ScalingActive=False)
                await asyncio.sleep(LOST_SECONDS)
                assert await shards(site) == MOST, "an unknown load removes no shard"
            await site.condition("sf", FLEET, 120, ScalingActive=True)
        site.check_tasks()
