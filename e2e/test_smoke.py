"""EmberEye in a real cluster, from `helm install` to `helm uninstall`. The steps are in order and build on each other.

What is asserted comes from the witness's and the probers' own records and from the API server's, never from what the
product says about itself.
"""

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from harness.cluster.cluster import Json, execute, until
from harness.cluster.site import (
    ADMIN_SECRET,
    CAMERAS,
    FIRE_ZONES,
    IMAGE,
    INGEST,
    OUTSIDE,
    PUSHED,
    RELEASE,
    SENSORS,
    SITE,
    SYSTEM,
    Site,
)
from harness.cluster.stranger import LISTEN, LISTENER, build_pod, build_shut_door, knock
from harness.devices import Film
from harness.records.diary import Diary, percentile
from harness.records.probers import EvidenceProber
from harness.records.witness import Witness

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]

COVERED_SECONDS = 90
SENSOR_MS, CAMERA_MS = 250, 3000  # from the wire to the witness, at the 95th percentile
GAP_SECONDS = 10
DRILL = ("node-drained", "shard-deleted", "placement-deleted")
CHILDREN = "deployments,services,configmaps,secrets,poddisruptionbudgets,pods"


def measured(diary: Diary, name: str, value: float, unit: str, limit: float | None = None) -> str:
    """Keep a number for the last test, which judges them all; returns it for the progress line."""
    number = diary.measure(name, value, unit, limit)
    return number.text() if number.within else f"{number.text()}, more than {limit:g}"


async def test_both_fleets_are_covered_soon_after_helm_install(site: Site) -> None:
    with site.diary.step("installed, both fleets covered") as step:
        film = asyncio.ensure_future(asyncio.to_thread(render_film))
        await site.install()
        await site.apply_fleets()
        await site.start_simulators()
        hub = await site.hub()
        site.witness = Witness(hub, site.diary, token=site.token)
        site.start(site.witness.run(), "witness")
        await site.start_devices(await film)
        for kind, name in (("sf", SENSORS), ("cf", CAMERAS)):
            await site.covered(kind, name, COVERED_SECONDS)
        seconds = (time.time_ns() - site.installed_ns) / 1e9
        step.add_remark(measured(site.diary, "helm install → both fleets Covered", seconds, "s", COVERED_SECONDS))
        await until(site.witness.connected, bool, "the witness is connected", 20)


async def test_a_strangers_pod_gets_to_the_ports_for_everybody_and_to_no_control_port(site: Site) -> None:
    with site.diary.step("a stranger knocks") as step:
        listener = build_pod(LISTENER, SITE, IMAGE, LISTEN)
        await site.cluster.apply(build_shut_door(SITE), listener)

        async def address(kind: str, namespace: str, *selector: str) -> str:
            pods = await site.cluster.items("pods", "--namespace", namespace, "--selector", ",".join(selector))
            running = [pod["status"]["podIP"] for pod in pods if pod["status"].get("phase") == "Running"]
            assert running, f"no pod of {kind} runs"
            return str(running[0])

        async def listening() -> bool:
            pod = await site.cluster.existing("pod", LISTENER, SITE, 30)
            return pod["status"].get("phase") == "Running"

        await until(listening, bool, "the shut door is there", 60)
        await asyncio.sleep(5)  # for the network to learn of the policy
        ours = "app.kubernetes.io/part-of=embereye"
        hub = await address("the hub", SYSTEM, ours, "app.kubernetes.io/component=hub")
        operator = await address("the operator", SYSTEM, ours, "app.kubernetes.io/component=operator")
        shard = await address("the fleet", SITE, "app.kubernetes.io/managed-by=embereye-operator", "embereye.dev/shard")
        targets = {
            "shut": f"{await address('the shut door', SITE, f'stranger={LISTENER}')}:8000",
            "hub-http": f"{hub}:8080", "hub-control": f"{hub}:50053", "operator-http": f"{operator}:8081",
            "shard-grpc": f"{shard}:50051", "shard-control": f"{shard}:50055",
        }  # fmt: skip
        reached = await knock(site.cluster, SITE, IMAGE, targets)
        await site.cluster.kubectl("delete", "pod,networkpolicy", LISTENER, "--namespace", SITE)
        assert reached["hub-http"]
        assert reached["operator-http"]
        assert reached["shard-grpc"]
        assert not reached["shut"], "the cluster's network enforces no NetworkPolicy"
        assert not reached["hub-control"]
        assert not reached["shard-control"]
        step.add_remark("only the ports of devices and people let it in")


def render_film() -> Film:
    """Pictures of a room and of a fire in it; drawn while the cluster starts pods."""
    from embereye.sim.scenes.scene import render

    rate = 15.0
    loops = render(640, 480, 7, rate)
    return Film.of(loops, rate)


async def test_every_sensor_fire_is_alarmed_once_and_at_once(site: Site) -> None:
    with site.diary.step(f"{len(FIRE_ZONES)} sensor fires") as step:
        taken = []
        for number, zone in enumerate(FIRE_ZONES):
            device = site.text_in(zone)
            began = await (device.fire(ADC1=3600) if number % 2 else device.fire(ADC3=3500))
            heard = await site.witness.alarmed(zone, 5)
            taken.append((heard.time_ns - began) / 1e6)
            assert heard.event.why, f"{zone} is in alarm without a reason"
            assert device.id in {item.device for item in heard.event.contributions}
            await asyncio.sleep(0.1)
        site.diary.measure("sensor fire → witness, median", percentile(taken, 0.5), "ms")
        step.add_remark(
            "p95 " + measured(site.diary, "sensor fire → witness, p95", percentile(taken, 0.95), "ms", SENSOR_MS)
        )
        await asyncio.sleep(1)
        for zone in FIRE_ZONES:
            site.text_in(zone).rest()
        assert site.witness.miscounted(FIRE_ZONES) == ([], [])


async def test_every_flame_before_a_camera_is_alarmed_once_and_soon(site: Site) -> None:
    with site.diary.step(f"{len(PUSHED)} camera flames") as step:
        taken = []
        for camera in site.cameras:
            async with asyncio.timeout(10):
                began = await camera.ignite()
            heard = await site.witness.alarmed(camera.zone, 20)
            taken.append((heard.time_ns - began) / 1e6)
            assert heard.event.why, f"{camera.zone} is in alarm without a reason"
            assert camera.id in {item.device for item in heard.event.contributions}
        site.diary.measure("camera flame → witness, median", percentile(taken, 0.5), "ms")
        step.add_remark(
            "p95 " + measured(site.diary, "camera flame → witness, p95", percentile(taken, 0.95), "ms", CAMERA_MS)
        )
        await asyncio.sleep(1)
        for camera in site.cameras:
            camera.extinguish()
        assert site.witness.miscounted(PUSHED.values()) == ([], [])


async def test_a_killed_shard_and_a_killed_hub_lose_and_double_nothing(site: Site) -> None:
    with site.diary.step("a shard and the hub killed -9") as step:
        credentials = await site.identity(EvidenceProber.identity(SITE))
        site.evidence = EvidenceProber(await site.hub_control(), SITE, site.diary, credentials)
        site.start(site.evidence.run(), "evidence prober")
        await site.ingest_well()
        fires = ["shard-killed", "while-shard-away", "hub-killed", "while-hub-away"]

        await site.text_in("shard-killed").fire(ADC1=3600)
        since = time.monotonic()
        shard = (await site.pods(component="sensor-shard", fleet=SENSORS))[0]
        await site.cluster.kill_container(shard)
        burning = asyncio.ensure_future(site.text_in("while-shard-away").fire(ADC1=3600))
        await site.ingest_well()
        await burning
        step.add_remark("gap " + measured(site.diary, "shard killed: coverage gap", site.gap(since), "s", GAP_SECONDS))
        await site.covered("sf", SENSORS, 30)

        since = time.monotonic()
        connections, acknowledged = site.witness.connections, len(site.evidence.acknowledged)
        await site.text_in("hub-killed").fire(ADC1=3600)
        hub = (await site.pods(component="hub", namespace=SYSTEM))[0]
        killed_ns = await site.cluster.kill_container(hub)
        await site.text_in("while-hub-away").fire(ADC1=3600)

        await until(
            site.witness.connected, lambda count: count > connections, "the witness is connected again", 40, 0.1
        )
        away = (time.time_ns() - killed_ns) / 1e9
        step.add_remark("hub away " + measured(site.diary, "hub killed: no alarms for", away, "s"))
        for zone in fires:
            await site.witness.alarmed(zone, 20)
        measured(site.diary, "hub killed: coverage gap", site.gap(since), "s", GAP_SECONDS)
        await asyncio.sleep(3)
        site.evidence.finish()
        await site.ended("evidence prober", 30)
        assert len(site.evidence.acknowledged) > acknowledged + 20

        await asyncio.sleep(2)  # for what might come twice
        zones = list(site.evidence.sent.values())
        lost, doubled = site.witness.miscounted(zones)
        measured(site.diary, "evidence acknowledged", len(site.evidence.acknowledged), "items")
        site.diary.measure("evidence sent again on purpose", site.evidence.resent, "items")
        step.add_remark(f"{len(zones)} items, {len(lost)} lost, {len(doubled)} doubled")
        measured(site.diary, "acknowledged evidence lost", len(lost), "items", 0)
        measured(site.diary, "acknowledged evidence doubled", len(doubled), "items", 0)
        assert (lost, doubled) == ([], [])
        lost, doubled = site.witness.miscounted([*fires, *FIRE_ZONES, *PUSHED.values()])
        measured(site.diary, "alarms lost", len(lost), "alarms", 0)
        measured(site.diary, "alarms doubled", len(doubled), "alarms", 0)
        assert (lost, doubled) == ([], [])
        assert site.witness.broken_cursors() == []
        assert site.taken_back() == []


async def test_shards_are_scaled_up_and_down_under_load(site: Site) -> None:
    with site.diary.step("scaled 1 → 3 → 1 under load") as step:
        await site.ingest_well()
        for replicas in (3, 1):
            since = time.monotonic()
            await site.cluster.kubectl("scale", f"sf/{SENSORS}", "--namespace", SITE, f"--replicas={replicas}")
            await _wait_until_at_rest(site, replicas)
            await site.ingest_well()
            gap = site.gap(since)
            step.add_remark(
                f"to {replicas} gap " + measured(site.diary, f"scaled to {replicas}: gap", gap, "s", GAP_SECONDS)
            )
        assert site.taken_back() == []
        assert {prober.device for prober in site.ingest if prober.drains}, "nobody was ever handed over"


async def _wait_until_at_rest(site: Site, shards: int) -> None:
    """Wait until the API server's records show `shards` pods, all ready, and a placement in force everywhere."""
    await until(
        lambda: site.pods(component="sensor-shard", fleet=SENSORS),
        lambda pods: len(pods) == shards and all(_ready(pod) for pod in pods),
        f"{shards} shards",
        60,
    )
    # A recreated shard's Service has a new address; DNS answers with the old one for up to a minute.
    await site.condition("sf", SENSORS, 90, Ready=True, Progressing=False, Covered=True)


def _ready(pod: Json) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


async def test_a_drill_by_kubectl_passes_and_its_report_is_signed(site: Site, tmp_path: Path) -> None:
    report, token = tmp_path / "drill.json", tmp_path / "token"
    token.write_text(site.token)
    with site.diary.step("kubectl embereye drill") as step:
        await site.ingest_well()
        (shard,) = await site.pods(component="sensor-shard", fleet=SENSORS)
        since = time.monotonic()
        drill = await execute(
            [
                sys.executable, "-m", "embereye_cli.plugin", "drill", SENSORS, *DRILL,
                "--kubeconfig", site.cluster.kubeconfig, "--namespace", SITE, "--who", "Ada",
                "--allow-node", shard["spec"]["nodeName"],
                "--console", await site.console(), "--token", f"@{token}", "--out", report,
            ],
            limit=300,
        )  # fmt: skip
        assert drill.code == 0, f"{drill.out}{drill.err}"
        assert drill.out.count("passed") >= len(DRILL), drill.out
        key = json.loads(report.read_text())["key"]
        verified = await execute([sys.executable, "-m", "embereye_cli", "drill", "verify", report, "--key", key])
        assert verified.code == 0, f"{verified.out}{verified.err}"
        await _wait_until_at_rest(site, 1)
        await site.ingest_well()
        step.add_remark("gap " + measured(site.diary, "drill: coverage gap", site.gap(since), "s", GAP_SECONDS))
        events = await site.cluster.items("events", "--namespace", SITE)
        assert {"DrillStarted", "DrillEnded"} <= {event["reason"] for event in events}


async def test_a_node_is_drained_and_comes_back(site: Site) -> None:
    with site.diary.step("a node drained") as step:
        await site.cluster.kubectl("scale", f"sf/{SENSORS}", "--namespace", SITE, "--replicas=2")
        await _wait_until_at_rest(site, 2)
        # The hub's volume is on the other node.
        node = next(name for name in sorted(await site.cluster.nodes()) if name != site.home_node)
        pods = await site.pods(component="sensor-shard", fleet=SENSORS)
        leaving = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == node]
        assert leaving, f"no shard runs on {node}: shards are not spread over nodes"
        await site.ingest_well()
        since = time.monotonic()
        await site.cluster.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s", limit=130
        )
        drained = time.monotonic() - since
        await _wait_until_at_rest(site, 2)
        await site.ingest_well()
        gap = site.gap(since)
        await site.cluster.kubectl("uncordon", node)
        site.diary.measure("kubectl drain took", drained, "s")
        step.add_remark("gap " + measured(site.diary, "node drained: coverage gap", gap, "s", GAP_SECONDS))
        moved = await site.pods(component="sensor-shard", fleet=SENSORS)
        assert all(pod["spec"]["nodeName"] != node for pod in moved)
        await site.covered("cf", CAMERAS, 30)
        assert site.taken_back() == []


async def test_edits_of_a_fleet_take_effect_without_restarts(site: Site) -> None:
    with site.diary.step("a fleet edited") as step:
        before = _runs(await site.pods(component="sensor-shard", fleet=SENSORS))
        sensors = (await site.fleet("sf", SENSORS))["spec"]["sensors"]
        await _patch(site, {"sensors": [*sensors, {"id": "n-1", "zone": "new-1"}]})
        await site.covered("sf", SENSORS, 15, wanted=False)
        await site.start_text_devices({"n-1": "new-1"})
        await site.covered("sf", SENSORS, 20)

        # 20 % is past the pre-alarm's 15 %, not past the alarm's 25 %.
        await site.text_in("edited").fire(ADC1=819)
        heard = await site.witness.wait_for(lambda heard: heard.zone == "edited", "a pre-alarm", 5)
        assert not heard.is_stored_alarm
        await asyncio.sleep(1)
        assert site.witness.alarms("edited") == []
        since = time.time_ns()
        await _patch(site, {"smoke": {"alarmPercent": 18}})
        raised = await site.witness.alarmed("edited", 20)
        seconds = (raised.time_ns - since) / 1e9
        step.add_remark(
            "threshold in force after " + measured(site.diary, "edit → threshold in force", seconds, "s", 10)
        )
        assert _runs(await site.pods(component="sensor-shard", fleet=SENSORS)) == before


def _runs(pods: list[Json]) -> dict[str, int]:
    """Uid → number of container restarts of the pods."""
    return {
        pod["metadata"]["uid"]: sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
        for pod in pods
    }


async def _patch(site: Site, spec: Json) -> None:
    patch = json.dumps({"spec": spec})
    await site.cluster.kubectl("patch", f"sf/{SENSORS}", "--namespace", SITE, "--type=merge", "--patch", patch)


async def test_a_deleted_fleet_leaves_nothing_behind(site: Site) -> None:
    with site.diary.step("the fleets deleted"):
        zones = [*INGEST.values(), "new-1", "store-4"]  # quiet ones: an alarm outlives its fleet
        assert set(zones) <= set(await site.witness.zones())
        await site.stop(*(f"text-{name}" for name in site.texts), *(f"ingest-{name}" for name in INGEST))
        await site.stop(*(f"camera-{name}" for name in PUSHED))
        for kind, plural, name in (("sf", "sensors", SENSORS), ("cf", "cameras", CAMERAS)):
            await site.cluster.kubectl("delete", f"{kind}/{name}", "--namespace", SITE)
            selector = f"embereye.dev/fleet={plural}.{name}"
            await until(
                partial(site.cluster.items, CHILDREN, "--namespace", SITE, "--selector", selector),
                lambda children: not children,
                f"the children of {name} are gone",
                40,
            )
        await until(site.witness.zones, lambda known: not set(known) & set(zones), "its zones are gone", 20)


async def test_nothing_was_forbidden_to_the_operator(site: Site) -> None:
    with site.diary.step("the operator's rights"):
        log = await site.cluster.kubectl("logs", "--namespace", SYSTEM, f"deployment/{RELEASE}-operator", "--tail=-1")
        assert log
        forbidden = [line for line in log.splitlines() if "forbidden" in line.lower()]
        assert forbidden == []


async def test_helm_uninstall_leaves_the_crds_and_the_history(site: Site) -> None:
    with site.diary.step("helm uninstall") as step:
        site.check_tasks()
        assert site.witness.broken_cursors() == []
        await site.stop("witness", "follow-sensorfleets", "follow-camerafleets")
        await site.cluster.kubectl(
            "delete", "--namespace", SITE, "--ignore-not-found", "deployment,service", "--all", "--wait=true"
        )
        await site.cluster.kubectl(
            "delete", "--namespace", SYSTEM, "--selector", f"e2e={OUTSIDE}", "service,networkpolicy", "--wait=true"
        )
        await site.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
        remaining = {
            "<none>/CustomResourceDefinition/sensorfleets.embereye.dev",
            "<none>/CustomResourceDefinition/camerafleets.embereye.dev",
            "<none>/CustomResourceDefinition/fleetbackups.embereye.dev",
            "<none>/APIService/v1alpha1.embereye.dev",  # the API server's own, of the three above
            "<none>/APIService/v1beta1.embereye.dev",
            f"{SYSTEM}/PersistentVolumeClaim/{RELEASE}-hub",
            f"{SYSTEM}/Secret/{ADMIN_SECRET}",  # the test's
            f"{SYSTEM}/Secret/{RELEASE}-ca",
            f"{SYSTEM}/Secret/{RELEASE}-hub-identity",  # belongs to the authority
        }
        for difference, wanted in ((site.added, remaining), (site.removed, set[str]())):
            await until(difference, wanted.__eq__, f"only {sorted(wanted)} differ from before", 40, 2.0)
        step.add_remark(f"remaining: {', '.join(sorted(name.rpartition('/')[2] for name in remaining))}")
        total = (time.time_ns() - site.diary.started_ns) / 1e9
        measured(site.diary, "the whole run", total, "s", 600)


async def test_nothing_was_lost_or_doubled(site: Site) -> None:
    """Counts are judged; times are printed beside their limits, since a busy machine must not decide what lands."""
    counted = [number for number in site.diary.numbers if number.limit == 0]
    assert counted
    assert [f"{number.name}: {number.text()}" for number in counted if not number.within] == []
