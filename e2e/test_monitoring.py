"""The chart beside the real Prometheus Operator, and through a release's life: test, upgrade, rollback, uninstall.

Monitors and rules carry the label of that Prometheus' release.
"""

import asyncio
import re
import time

import pytest
from harness.cluster.cluster import Json, until
from harness.cluster.prometheus import LABELS, Prometheus, install_prometheus
from harness.cluster.site import (
    CAMERAS,
    CHART,
    RELEASE,
    SENSORS,
    SIMULATED_CAMERAS,
    SIMULATED_SENSORS,
    SITE,
    SYSTEM,
    VOLUME,
    Site,
)
from harness.records.witness import Witness

from embereye_operator.monitoring.alerts import ALERTS
from embereye_operator.monitoring.panels import DASHBOARDS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

OPTIONS = (
    "monitoring.enabled=true",
    "monitoring.interval=5s",
    *(f"monitoring.labels.{k}={v}" for k, v in LABELS.items()),
)


@pytest.fixture(scope="module")
def prometheus() -> dict[str, Prometheus]:
    """A holder for the Prometheus that the first test starts."""
    return {}


def _fleets() -> tuple[Json, Json]:
    """The fleets of the simulated devices."""

    def fleet(kind: str, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": SITE}
        shards = {"shards": 1, "autoscaling": {"mode": "none"}}
        return {"apiVersion": "embereye.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": {**spec, **shards}}

    cameras = [
        {"id": name, "zone": zone, "source": f"http://cameras.{SITE}.svc:8093/{name}.mjpg"}
        for name, zone in SIMULATED_CAMERAS.items()
    ]
    sensors = [{"id": name, "zone": zone} for name, zone in SIMULATED_SENSORS.items()]
    return (
        fleet("SensorFleet", SENSORS, {"sensors": sensors}),
        fleet("CameraFleet", CAMERAS, {"cameras": cameras, "detection": {"detectors": ["motion", "flame"]}}),
    )


async def covered(site: Site, limit: float = 90) -> None:
    """Wait until everything is watched."""
    for kind, name in (("sf", SENSORS), ("cf", CAMERAS)):
        await site.covered(kind, name, limit)


def history(witness: Witness) -> list[tuple[int, int, str, int]]:
    """The events of a witness: cursor, time, zone, state."""
    return [(heard.event.cursor, heard.event.time_ns, heard.event.zone, heard.event.state) for heard in witness.heard]


async def test_a_prometheus_of_the_prometheus_operators_runs(site: Site, prometheus: dict[str, Prometheus]) -> None:
    with site.diary.step("the real Prometheus Operator"):
        prometheus[""] = await install_prometheus(site.cluster)


async def test_what_the_chart_declares_is_scraped_and_its_rules_are_evaluated(
    site: Site, prometheus: dict[str, Prometheus]
) -> None:
    with site.diary.step("installed with monitoring") as step:
        await site.install(f"hub.persistence.storageClass={VOLUME}", *OPTIONS)
        await site.apply_fleets(*_fleets())
        await site.start_simulators()
        await covered(site)
        site.witness = Witness(await site.hub(), site.diary, token=site.token)
        site.start(site.witness.run(), "witness")
        began = time.monotonic()
        wanted = {"embereye-operator": 2, "embereye-hub": 1, "embereye-shard": 2}
        await until(prometheus[""].up, wanted.__eq__, f"{wanted} are scraped", 120, 2.0)
        step.add_remark(f"scraped after {time.monotonic() - began:.0f} s")

        async def rules() -> set[str]:
            groups = (await prometheus[""].get("rules"))["groups"]
            return {rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "ok"}

        await until(rules, {alert.name for alert in ALERTS}.issubset, "every alert is evaluated", 90, 2.0)


async def test_every_panel_of_every_dashboard_shows_something(site: Site, prometheus: dict[str, Prometheus]) -> None:
    with site.diary.step("dashboards' expressions") as step:
        asked = {
            query.expression
            for source in DASHBOARDS for row in source.rows for panel in row.panels for query in panel.queries
            if not panel.needs
        }  # fmt: skip

        async def empty() -> list[str]:
            expressions = []
            for expression in asked:
                everything = re.sub(r"\$(cluster|namespace|fleet|shard)\b", ".*", expression)
                if not await prometheus[""].query(everything.replace("$__rate_interval", "30s")):
                    expressions.append(expression)
            return expressions

        await until(empty, lambda expressions: not expressions, "every expression has series", 120, 5.0)
        step.add_remark(f"{len(asked)} expressions")


async def test_helm_test_proves_an_alarm_from_end_to_end(site: Site) -> None:
    with site.diary.step("helm test") as step:
        log = await site.cluster.helm("test", RELEASE, "--namespace", SYSTEM, "--logs", limit=300)
        assert "Phase:          Succeeded" in log
        assert log.count("POD LOGS:") == 1
        step.add_remark(next(line.strip() for line in log.splitlines() if "alarm at the hub" in line))
        assert await site.cluster.items("sensorfleets", "--namespace", SYSTEM) == []
        await site.witness.alarmed("embereye-self-test", 1)


async def test_an_alert_fires_on_its_fault_and_resolves(site: Site, prometheus: dict[str, Prometheus]) -> None:
    with site.diary.step("Prometheus alerts on dark sensors") as step:
        await site.cluster.kubectl("scale", "deployment/simulated-sensors", "--namespace", SITE, "--replicas=0")
        began = time.monotonic()
        await until(prometheus[""].alerts, lambda alerts: "EmberEyeDevicesDark" in alerts, "the alert fires", 240, 2.0)
        step.add_remark(f"firing after {time.monotonic() - began:.0f} s")
        await site.cluster.kubectl("scale", "deployment/simulated-sensors", "--namespace", SITE, "--replicas=1")
        await covered(site)
        await until(prometheus[""].alerts, lambda alerts: "EmberEyeDevicesDark" not in alerts, "it resolves", 120, 2.0)


async def _generations(site: Site) -> dict[str, int]:
    """Uid → generation of the fleets."""
    fleets = [await site.fleet(kind, name) for kind, name in (("sf", SENSORS), ("cf", CAMERAS))]
    return {fleet["metadata"]["uid"]: fleet["metadata"]["generation"] for fleet in fleets}


async def test_an_upgrade_and_a_rollback_keep_fleets_and_history(site: Site) -> None:
    with site.diary.step("helm upgrade and rollback"):
        fleets = await _generations(site)
        for command in (
            ["upgrade", RELEASE, str(CHART), "--reuse-values", "--set", "logFormat=json"],
            ["rollback", RELEASE],
        ):
            await site.cluster.helm(*command, "--namespace", SYSTEM, "--wait", "--timeout", "3m", limit=200)
            await until(site.witness.connected, bool, "the witness is connected", 60)
            await covered(site)
        assert await _generations(site) == fleets
        site.check_tasks()
        assert site.witness.broken_cursors() == []


async def test_uninstalling_and_installing_again_keep_fleets_and_history(site: Site) -> None:
    with site.diary.step("helm uninstall, helm install"):
        heard = history(site.witness)
        assert heard
        await site.stop("witness")
        await site.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
        remaining = [
            name
            for kind in ("sf", "cf")
            for name in [f["metadata"]["name"] for f in await site.cluster.items(kind, "--namespace", SITE)]
        ]
        assert remaining == [SENSORS, CAMERAS]
        assert await site.pods(component="sensor-shard", fleet=SENSORS)
        await site.install(f"hub.persistence.storageClass={VOLUME}", *OPTIONS)
        await covered(site)
        site.witness = Witness(await site.hub(), site.diary, "witness-again", site.token)
        site.start(site.witness.run(), "witness")
        await until(site.witness.connected, bool, "the witness is connected", 60)
        await asyncio.sleep(2)
        assert history(site.witness)[: len(heard)] == heard
