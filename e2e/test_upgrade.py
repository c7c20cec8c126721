"""A release of the version before, with pods that run, is upgraded as people do it: nobody is dark, nothing is lost.

Slow, and skipped where there is no version before: `make e2e ARGS="-m slow"` with a tag, or with EMBEREYE_PREVIOUS.
"""

import asyncio
import time

import pytest
from harness.cluster.cluster import Json, until
from harness.cluster.previous import PREVIOUS, TAG, previous_release
from harness.cluster.site import IMAGE, SENSORS, SITE, SYSTEM, VOLUME, Site
from harness.devices import TextDevice
from harness.records.probers import IngestProber
from harness.records.witness import Witness

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200), pytest.mark.slow, pytest.mark.needs(PREVIOUS),
]  # fmt: skip

GAP_SECONDS = 10
SHARDS = 2
PROBERS = {f"g-{number}": f"probe-{number}" for number in range(1, 7)}
TEXTS = {"t-1": "before", "t-2": "meanwhile", "t-3": "after"}  # device → the zone that burns then
OPTIONS = (f"hub.persistence.storageClass={VOLUME}",)


def fleet(expose: Json) -> Json:
    """A fleet in the form of the previous version."""
    return {
        "apiVersion": "embereye.dev/v1alpha1",
        "kind": "SensorFleet",
        "metadata": {"name": SENSORS, "namespace": SITE},
        "spec": {
            "sensors": [{"id": name, "zone": zone} for name, zone in {**PROBERS, **TEXTS}.items()],
            "shards": SHARDS, "autoscaling": {"mode": "none"}, "expose": expose,
        },
    }  # fmt: skip


async def images(site: Site) -> list[str]:
    """The images of the running shards."""
    return [pod["spec"]["containers"][0]["image"] for pod in await site.pods(component="sensor-shard", fleet=SENSORS)]


async def assert_fire_alarms(site: Site, devices: dict[str, TextDevice], zone: str) -> None:
    """Light a fire in `zone`, wait for its alarm, and put it out."""
    device = next(device for device in devices.values() if device.zone == zone)
    await device.fire(ADC1=3600)
    await site.witness.alarmed(zone, 30)
    device.rest()


async def test_running_pods_of_the_previous_version_are_upgraded_without_any_loss(site: Site) -> None:
    async with previous_release() as previous:
        with site.diary.step(f"the release before, {previous.commit}"):
            await site.install(*OPTIONS, *previous.values, chart=previous.chart)
            await site.apply_fleets(fleet(site.node_ports))
            site.witness = Witness(await site.hub(), site.diary, token=site.token)
            site.start(site.witness.run(), "witness")
            known = await site.exposed("sf", SENSORS)
            host, _, port = known["tcp"].rpartition(":")
            probers = [IngestProber(name, known["grpc"], site.diary) for name in PROBERS]
            devices = {name: TextDevice(name, zone, host, int(port)) for name, zone in TEXTS.items()}
            for prober in probers:
                site.start(prober.run(), f"ingest-{prober.device}")
            for device in devices.values():
                site.start(device.run(), f"text-{device.id}")
            await site.covered("sf", SENSORS, 120)
            await until(site.witness.connected, bool, "the witness is connected", 30)
            await asyncio.gather(*(prober.well(30) for prober in probers))
            assert set(await images(site)) == {f"embereye:{TAG}"}
            await assert_fire_alarms(site, devices, "before")

    with site.diary.step("helm upgrade") as step:
        before = (await site.fleet("sf", SENSORS))["metadata"]
        since = time.monotonic()
        await site.upgrade(*OPTIONS)

        async def new() -> list[bool]:
            return [image == IMAGE for image in await images(site)]

        # Shards of both versions are at work.
        await until(new, lambda changed: True in changed and False in changed, "the first shard is changed", 240)
        await assert_fire_alarms(site, devices, "meanwhile")
        await until(new, lambda changed: all(changed) and len(changed) == SHARDS, "all shards are changed", 240)
        duration = site.diary.measure("helm upgrade → every shard changed", time.monotonic() - since, "s")
        await site.condition("sf", SENSORS, 90, Ready=True, Progressing=False, Covered=True, Degraded=False)
        await assert_fire_alarms(site, devices, "after")
        await asyncio.gather(*(prober.well(30) for prober in probers))
        gap = site.diary.measure(
            "helm upgrade: gap", max(p.gap(since, time.monotonic()) for p in probers), "s", GAP_SECONDS
        )
        dark = site.diary.measure("helm upgrade: not Covered", site.dark("sf", SENSORS, since), "s")
        step.add_remark(f"changed after {duration.text()}, gap {gap.text()}, dark {dark.text()}")
        after = (await site.fleet("sf", SENSORS))["metadata"]
        assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])
        assert gap.within
        assert [entry for prober in probers for entry in prober.taken_back] == []
        assert site.witness.miscounted(TEXTS.values()) == ([], [])
        assert site.witness.broken_cursors() == []
        pods = await site.cluster.items("pods", "--namespace", SYSTEM)
        assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {IMAGE}
        site.check_tasks()
