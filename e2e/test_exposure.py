"""Devices outside the pod network, and fleets of two shards: by node ports, and by a real load balancer.

Text lines, gRPC and RTP come in by the addresses in the fleets' status, and by no others.
Slow: `make e2e ARGS="-m slow"` runs it.
"""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import pytest
from harness.cluster.balancer import install_balancer
from harness.cluster.cluster import Json, until
from harness.cluster.site import SITE, Site
from harness.devices import TextDevice
from harness.records.diary import percentile
from harness.records.probers import IngestProber
from harness.records.witness import Witness

from embereye.sim.cameras.rtp import send_rtp
from embereye.sim.scenes.films import CameraSpec, prepare

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420), pytest.mark.slow]

TYPES = ("NodePort", "LoadBalancer")
GAP_SECONDS = 10
ALARM_MS = 250  # from a line on the wire to the witness, at the 95th percentile
RTP_PORT = 5004  # of the first camera, in the shards' pods
CHILDREN = "deployments,services,configmaps,secrets,poddisruptionbudgets,pods"


@dataclass
class Outside:
    """The devices outside of one way in; id → zone."""

    type: str
    grpc: dict[str, str] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    rtp: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        way = self.type[0].lower()
        for devices, letter, count in ((self.grpc, "g", 6), (self.text, "t", 6), (self.rtp, "v", 2)):
            devices |= {f"{way}{letter}-{number}": f"{way}{letter}-zone-{number}" for number in range(1, count + 1)}
        self.sensors, self.cameras = f"gate-{way}", f"lane-{way}"

    def fleets(self, entrance: str) -> tuple[Json, Json]:
        """Both fleets, of two shards each."""
        sensors = [{"id": name, "zone": zone} for name, zone in {**self.grpc, **self.text}.items()]
        cameras = [
            {"id": name, "zone": zone, "source": f"rtp://:{RTP_PORT + 2 * number}"}
            for number, (name, zone) in enumerate(self.rtp.items())
        ]
        expose: Json = {"type": self.type}
        if self.type == "NodePort":
            expose["advertisedHost"] = entrance
        common: Json = {"shards": 2, "autoscaling": {"mode": "none"}, "expose": expose}

        def fleet(kind: str, name: str, spec: Json) -> Json:
            metadata = {"name": name, "namespace": SITE}
            return {"apiVersion": "embereye.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}

        detection = {"detectors": ["motion", "flame"]}
        return (
            fleet("SensorFleet", self.sensors, {"sensors": sensors, **common}),
            fleet("CameraFleet", self.cameras, {"cameras": cameras, "detection": detection, **common}),
        )


async def test_a_release_and_a_load_balancer_run(site: Site) -> None:
    with site.diary.step("installed beside MetalLB"):
        await install_balancer(site.cluster)
        await site.install()
        site.witness = Witness(await site.hub(), site.diary, token=site.token)
        site.start(site.witness.run(), "witness")
        await until(site.witness.connected, bool, "the witness is connected", 60)


@pytest.mark.parametrize("type_", TYPES)
async def test_devices_outside_reach_fleets_of_two_shards(site: Site, type_: str) -> None:
    with site.diary.step(f"two fleets of two shards by {type_}") as step:
        outside = Outside(type_)
        await site.apply_fleets(*outside.fleets(site.entrance))
        for kind, name in (("sf", outside.sensors), ("cf", outside.cameras)):
            await site.condition(kind, name, 90, Ready=True, Progressing=False, Exposed=True)
        probers, texts = await start_devices(site, outside)
        for kind, name in (("sf", outside.sensors), ("cf", outside.cameras)):
            await site.covered(kind, name, 60)
        await asyncio.gather(*(prober.well(30) for prober in probers))

        taken = []
        for device in texts:
            began = await device.fire(ADC1=3600)
            heard = await site.witness.alarmed(device.zone, 5)
            taken.append((heard.time_ns - began) / 1e6)
            await asyncio.sleep(0.1)
        alarm = site.diary.measure(f"{type_}: fire → witness, p95", percentile(taken, 0.95), "ms", ALARM_MS)
        step.add_remark(f"alarm p95 {alarm.text()}")

        known = await site.advertised("sf", outside.sensors)
        for shards in (1, 2):
            since = time.monotonic()
            await site.cluster.kubectl(
                "scale", f"sf/{outside.sensors}", f"cf/{outside.cameras}", "--namespace", SITE, f"--replicas={shards}"
            )
            for kind, name in (("sf", outside.sensors), ("cf", outside.cameras)):
                await site.condition(kind, name, 90, Ready=True, Progressing=False, Covered=True, Exposed=True)
            await asyncio.gather(*(prober.well(30) for prober in probers))
            longest = max(prober.gap(since, time.monotonic()) for prober in probers)
            gap = site.diary.measure(f"{type_}: scaled to {shards}: gap", longest, "s", GAP_SECONDS)
            step.add_remark(f"to {shards} gap {gap.text()}")
            known |= await site.advertised("sf", outside.sensors)

        # Nothing is between these devices and the cluster: they followed every redirect.
        targets = {target for prober in probers for target in prober.targets}
        assert targets, "no device was ever redirected"
        assert targets <= known
        assert [entry for prober in probers for entry in prober.taken_back] == []
        assert site.witness.miscounted(list(outside.text.values())) == ([], [])
        await remove(site, outside)


async def start_devices(site: Site, outside: Outside) -> tuple[list[IngestProber], list[TextDevice]]:
    """Everything that speaks to the two fleets, by the addresses that their status has."""
    sensors = await site.exposed("sf", outside.sensors)
    probers = [IngestProber(name, sensors["grpc"], site.diary) for name in outside.grpc]
    host, _, port = sensors["tcp"].rpartition(":")
    texts = [TextDevice(name, zone, host, int(port)) for name, zone in outside.text.items()]
    for prober in probers:
        site.start(prober.run(), f"outside-{prober.device}")
    for device in texts:
        site.start(device.run(), f"outside-{device.id}")
    for name, zone in outside.rtp.items():
        host, _, port = (await site.exposed("cf", outside.cameras, device=name))["rtp"].rpartition(":")
        film = await prepare([CameraSpec(name, zone)], fps=10.0, size=(320, 240), seed=7, fires=[])
        site.start(send_rtp(film, host, int(port), asyncio.Event()), f"outside-{name}")
    return probers, texts


async def remove(site: Site, outside: Outside) -> None:
    await site.stop(*(f"outside-{name}" for name in (*outside.grpc, *outside.text, *outside.rtp)))
    for kind, plural, name in (("sf", "sensors", outside.sensors), ("cf", "cameras", outside.cameras)):
        await site.cluster.kubectl("delete", f"{kind}/{name}", "--namespace", SITE)
        await until(
            partial(
                site.cluster.items, CHILDREN, "--namespace", SITE, "--selector", f"embereye.dev/fleet={plural}.{name}"
            ),
            lambda children: not children,
            f"the children of {name} are gone",
            90,
        )
    site.check_tasks()
