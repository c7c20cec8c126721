"""Alerts, evaluated by promtool: each fires on its fault only, and resolves."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.need import PROMETHEUS

from embereye_operator.api.files import ROOT
from embereye_operator.monitoring.alerts import ALERTS, BY_NAME, RECORDINGS, expression
from embereye_operator.monitoring.metrics import TARGET, by_series
from embereye_operator.monitoring.rules import grafana_expression, grafana_rules, prometheus_rules

RULES = ROOT / "charts/embereye/files/rules/prometheus.yaml"
needs_promtool = pytest.mark.needs(PROMETHEUS)

FLEET = 'namespace="site",kind="sensors",fleet="hall"'
SENSOR = f'{FLEET},shard="hall-sensors-0",pod="hall-0",instance="10.0.0.1:9100",job="embereye-shard"'
CAMERA = (
    'namespace="site",kind="cameras",fleet="yard",shard="yard-cameras-0",pod="yard-0",instance="10.0.0.2:9100",'
    'job="embereye-shard"'
)
CAMERAS = 'namespace="site",kind="cameras",fleet="yard"'
OPERATOR = 'namespace="embereye",pod="operator-0",instance="10.0.0.3:8081",job="embereye-operator"'
STANDBY = 'namespace="embereye",pod="operator-1",instance="10.0.0.4:8081",job="embereye-operator"'
HUB = 'namespace="embereye",pod="hub-0",instance="10.0.0.5:8080",job="embereye-hub"'
ZONE = 'namespace="site",zone="battery room",sign="heat"'
BY_HUB = 'pod="hub-0",instance="10.0.0.5:8080",job="embereye-hub"'  # its samples about others

Values = Callable[[int], float | None]  # by minute; None: no sample


def gauge(value: float | None) -> Values:
    return lambda minute: value


def counter(per_minute: float) -> Values:
    return lambda minute: per_minute * minute


def histogram(name: str, labels: str, bounds: tuple[str, ...], full: int, per_minute: float = 600) -> dict[str, Values]:
    """Return a histogram with all observations between bounds[full - 1] and bounds[full]."""
    return {
        f'{name}_bucket{{{labels},le="{bound}"}}': counter(per_minute if place >= full else 0)
        for place, bound in enumerate(bounds)
    }


LAG, DELAY = "embereye_event_loop_lag_seconds", "embereye_camera_frame_delay_seconds"
LAGS, DELAYS = ("0.001", "0.25", "1.0", "+Inf"), ("0.01", "0.5", "1.0", "+Inf")


def healthy() -> dict[str, Values]:
    world: dict[str, Values] = {}
    for fleet, devices in ((FLEET, 1000), (CAMERAS, 100)):
        world |= {
            f'embereye_fleet_devices{{{fleet},pod="operator-0"}}': gauge(devices),
            f'embereye_fleet_devices_covered{{{fleet},pod="operator-0"}}': gauge(devices),
            f'embereye_fleet_shards{{{fleet},pod="operator-0"}}': gauge(1),
            f'embereye_fleet_ready_shards{{{fleet},pod="operator-0"}}': gauge(1),
            f'embereye_fleet_required_shards{{{fleet},pod="operator-0"}}': gauge(1),
            f'embereye_fleet_max_shards{{{fleet},pod="operator-0"}}': gauge(8),
            f'embereye_fleet_paused{{{fleet},pod="operator-0"}}': gauge(0),
            f'embereye_fleet_alerts_enabled{{{fleet},pod="operator-0"}}': gauge(1),
            f'embereye_fleet_utilization_ratio{{{fleet},pod="operator-0"}}': gauge(0.4),
            f'embereye_fleet_shard_capacity_cores{{{fleet},pod="operator-0"}}': gauge(1),
            f'embereye_fleet_pass_age_seconds{{{fleet},pod="operator-0"}}': gauge(2),
            f'embereye_operator_failures_total{{{fleet},pod="operator-0"}}': counter(0),
            f'embereye_fleet_condition{{{fleet},condition="Degraded",pod="operator-0"}}': gauge(0),
            f'embereye_fleet_condition{{{fleet},condition="MetricsAvailable",pod="operator-0"}}': gauge(1),
        }
    for fleet, shard in ((FLEET, "hall-sensors-0"), (CAMERAS, "yard-cameras-0")):
        world[f'embereye_canary_overdue{{{fleet},shard="{shard}",{BY_HUB}}}'] = gauge(0)
    for shard in (SENSOR, CAMERA):
        world |= {
            f"embereye_canary_interval_seconds{{{shard}}}": gauge(60),
            f"up{{{shard}}}": gauge(1),
            f"embereye_shard_epoch{{{shard}}}": gauge(7),
            f"embereye_shard_hub_connected{{{shard}}}": gauge(1),
            f"embereye_shard_evidence_waiting_seconds{{{shard}}}": gauge(0),
            f"embereye_shard_evidence_spooled{{{shard}}}": gauge(0),
            f"embereye_shard_evidence_dropped_total{{{shard}}}": counter(0),
            f"embereye_shard_disk_free_bytes{{{shard}}}": gauge(6e9),
            f"embereye_shard_disk_size_bytes{{{shard}}}": gauge(1e10),
        }
    world |= {
        f'embereye_sensor_packets_total{{{SENSOR},outcome="offered"}}': counter(60_000),
        f'embereye_sensor_shed_total{{{SENSOR},reason="overflow"}}': counter(0),
        f'embereye_sensor_shed_total{{{SENSOR},reason="compacted"}}': counter(0),
        f"embereye_sensor_archive_failing{{{SENSOR}}}": gauge(0),
        f"embereye_camera_frames_offered_total{{{CAMERA}}}": counter(90_000),
        f'embereye_camera_frames_shed_total{{{CAMERA},reason="above target rate"}}': counter(45_000),
        f'embereye_camera_frames_shed_total{{{CAMERA},reason="overload"}}': counter(0),
        f"embereye_camera_refused{{{CAMERA}}}": gauge(0),
        f"embereye_camera_degraded{{{CAMERA}}}": gauge(0),
        f"embereye_camera_analysis_failures_total{{{CAMERA}}}": counter(0),
        f"embereye_camera_decoders_died_total{{{CAMERA}}}": counter(0),
        f"embereye_camera_clips_failing{{{CAMERA}}}": gauge(0),
        f"up{{{HUB}}}": gauge(1),
        f'embereye_hub_zone_active{{{ZONE},state="alarm",{BY_HUB}}}': gauge(None),
        f'embereye_hub_zone_active{{{ZONE},state="acknowledged",{BY_HUB}}}': gauge(None),
        f'embereye_hub_zone_active{{{ZONE},state="pre_alarm",{BY_HUB}}}': gauge(None),
        f"embereye_hub_store_failing{{{HUB}}}": gauge(0),
        f"embereye_hub_database_losses{{{HUB}}}": gauge(0),
        f"embereye_hub_clips_failing{{{HUB}}}": gauge(0),
        f'embereye_hub_notify_failing{{{HUB},route="phone"}}': gauge(0),
        f'embereye_hub_notify_dead_letters{{{HUB},route="phone"}}': gauge(0),
        f'embereye_hub_notify_unconfirmed{{{HUB},route="phone"}}': gauge(0),
        f'embereye_hub_notify_calendar_stale{{{HUB},duty="watch"}}': gauge(0),
        f"embereye_hub_profiles_unconfirmed{{{HUB}}}": gauge(0),
        f"embereye_hub_statements_missing{{{HUB}}}": gauge(0),
        f'embereye_hub_walktest_overdue_devices{{namespace="site",zone="battery room",{BY_HUB}}}': gauge(0),
        f'embereye_hub_selftest_passed{{{HUB},test="gate-lamp"}}': gauge(1),
        f'embereye_hub_webhook_failing{{{HUB},webhook="pager"}}': gauge(0),
        f'embereye_hub_webhook_dead_letters{{{HUB},webhook="pager"}}': gauge(0),
        f"embereye_hub_mqtt_connected{{{HUB}}}": gauge(1),
        f"embereye_hub_bus_failing{{{HUB}}}": gauge(0),
        f'embereye_hub_dc09_receiver_failing{{{HUB},station="central",receiver="10.0.0.1:9000"}}': gauge(0),
        f'embereye_hub_dc09_waiting_seconds{{{HUB},station="central"}}': gauge(0),
        f"embereye_hub_archive_lag_seconds{{{HUB}}}": gauge(0),
        f"embereye_hub_archive_backup_overdue_seconds{{{HUB}}}": gauge(0),
        f'embereye_operator_backup_overdue_seconds{{{OPERATOR},backup="nightly"}}': gauge(0),
        f'embereye_hub_modbus_failing{{{HUB},panel="relays"}}': gauge(0),
        f'embereye_hub_control_rules_failing{{{HUB},actuator="damper"}}': gauge(0),
        f"embereye_hub_control_states_total{{{HUB}}}": counter(15_000),
        f"embereye_hub_control_missed_total{{{HUB}}}": counter(1),
        f"embereye_hub_shard_clocks_wrong{{{HUB}}}": gauge(0),
        f"embereye_hub_disk_free_bytes{{{HUB}}}": gauge(6e9),
        f"embereye_hub_disk_size_bytes{{{HUB}}}": gauge(1e10),
        f"up{{{OPERATOR}}}": gauge(1),
        f"up{{{STANDBY}}}": gauge(1),
        f"embereye_operator_leading{{{OPERATOR}}}": gauge(1),
        f"embereye_operator_leading{{{STANDBY}}}": gauge(0),
    }
    for process in (SENSOR, CAMERA, HUB, OPERATOR):
        world |= histogram(LAG, process, LAGS, 0)
        world[f"embereye_certificate_expiration_timestamp_seconds{{{process}}}"] = gauge(600_000)
    world[f'embereye_certificate_expiration_timestamp_seconds{{ports="open",{SENSOR}}}'] = gauge(600_000)
    return world | histogram(DELAY, CAMERA, DELAYS, 0)


def series(pattern: str, values: Values) -> dict[str, Values]:
    """Return `values` for every healthy series that contains `pattern`."""
    names = {name: values for name in healthy() if pattern in name}
    assert names, pattern
    return names


@dataclass(frozen=True)
class Fault:
    """A fault, and every alert that must fire on it."""

    name: str
    world: Mapping[str, Values]
    fires: frozenset[str] = field(default_factory=frozenset)
    before: int = 10  # minutes
    during: int = 25
    after: int = 45


def fault(
    alert: str, world: Mapping[str, Values], *, also: tuple[str, ...] = (), name: str = "", **times: int
) -> Fault:
    return Fault(name or alert, world, frozenset({alert, *also}), **times)


def created(minute: int) -> dict[str, Values]:
    """Return a fleet that exists from `minute` on, and whose devices are watched a minute later."""
    return series(f"fleet_devices{{{FLEET}", lambda m: None if m < minute else 1000) | series(
        f"fleet_devices_covered{{{FLEET}", lambda m: None if m < minute else 0 if m == minute else 1000
    )


def slower(values: Values, factor: float) -> Values:
    return lambda minute: factor * (values(minute) or 0)


_FAULTS = (
    fault("EmberEyeZoneInPreAlarm", series('state="pre_alarm"', gauge(1))),
    fault("EmberEyeZoneInAlarm", series('state="alarm"', gauge(1)), also=("EmberEyeAlarmUnacknowledged",)),
    fault("EmberEyeZoneInAlarm", series('state="acknowledged"', gauge(1)), name="an acknowledged fire continues"),
    fault("EmberEyeZoneInAlarm", series('state="alarm"', gauge(1)), during=3, name="a fire of less than three minutes"),
    fault("EmberEyeDevicesDark", series(f"fleet_devices_covered{{{FLEET}", gauge(999))),
    # Devices that fail at times are never dark for a minute in a row.
    fault("EmberEyeCoverageBurnsFast", series(f"fleet_devices_covered{{{FLEET}", lambda m: 900 if m % 2 else 1000),
          before=370),
    fault("EmberEyeCoverageBurnsSlowly", series(f"fleet_devices_covered{{{FLEET}", lambda m: 986 if m % 2 else 1000),
          during=390, after=60),
    fault("EmberEyeHubDown", series(f"up{{{HUB}", gauge(0)), name="the hub does not answer"),
    fault("EmberEyeHubDown", series(f"{{{HUB}", gauge(None)) | series(BY_HUB, gauge(None)),
          name="the hub is absent"),
    fault("EmberEyeHubNotReached", series(f"shard_hub_connected{{{SENSOR}", gauge(0))),
    fault("EmberEyeEvidenceWaiting", series(f"evidence_waiting_seconds{{{SENSOR}", gauge(100))),
    fault("EmberEyeHubStoreFailing", series("hub_store_failing", gauge(1))),
    fault("EmberEyeHubDatabaseDamaged", series("hub_database_losses", gauge(1))),
    fault("EmberEyeEvidenceLost", series(f"evidence_dropped_total{{{SENSOR}", counter(10))),
    fault("EmberEyeSpoolFilling", series(f"evidence_spooled{{{SENSOR}", gauge(12_000))),
    fault("EmberEyeCanaryNotAlarmed", series(f"canary_overdue{{{FLEET}", gauge(1))),
    fault("EmberEyeCanaryNotTold", series(f"canary_overdue{{{CAMERAS}", gauge(None))),
    fault("EmberEyeShardDown", series(f"up{{{SENSOR}", gauge(0))),
    fault("EmberEyeShardMetricsMissing", series(f"{{{SENSOR}", gauge(None))),
    fault("EmberEyeFleetNotReady", series(f"fleet_shards{{{FLEET}", gauge(2)), name="a shard is not ready"),
    fault("EmberEyeFleetDegraded", series(f'fleet_condition{{{FLEET},condition="Degraded"', gauge(1))),
    fault("EmberEyeEventLoopSlow", histogram(LAG, SENSOR, LAGS, 2)),
    fault("EmberEyeSensorsShedding", series('reason="overflow"', counter(6_000))),
    fault("EmberEyeCompacting", series('reason="compacted"', counter(6_000))),
    fault("EmberEyeCamerasShedding", series('reason="overload"', counter(45_000))),
    fault("EmberEyeDecodingSaturated", series("camera_refused", gauge(3))),
    fault("EmberEyeFramesOld", histogram(DELAY, CAMERA, DELAYS, 2)),
    fault("EmberEyeCameraDegraded", series("camera_degraded", gauge(2))),
    fault("EmberEyeAnalysisFailing", series("analysis_failures", counter(5))),
    fault("EmberEyeDecodersDying", series("decoders_died", counter(2))),
    fault("EmberEyeScalingStuck", series(f"required_shards{{{FLEET}", gauge(3))),
    fault("EmberEyeScalingFlapping",
          series(f"fleet_shards{{{FLEET}", lambda m: 1 + m % 2) | series(f"ready_shards{{{FLEET}", lambda m: 1 + m % 2),
          ),
    fault("EmberEyeFleetAtMaximum",
          series(f"utilization_ratio{{{FLEET}", gauge(0.95)) | series(f"max_shards{{{FLEET}", gauge(1))
          | series(f"required_shards{{{FLEET}", gauge(3))),
    fault("EmberEyeFleetAtMaximum",
          series(f"utilization_ratio{{{FLEET}", gauge(0.47)) | series(f"shard_capacity_cores{{{FLEET}", gauge(0.5))
          | series(f"max_shards{{{FLEET}", gauge(1)), name="shards that may use half a core are at their limit"),
    fault("EmberEyeScalingBlind", series(f'fleet_condition{{{FLEET},condition="MetricsAvailable"', gauge(0))),
    fault("EmberEyeOperatorAbsent", series(f"up{{{OPERATOR}", gauge(0)) | series(f"up{{{STANDBY}", gauge(0)),
          name="no operator answers"),
    fault("EmberEyeOperatorAbsent",
          series('pod="operator-0"', gauge(None)) | series('pod="operator-1"', gauge(None)), name="no operator"),
    fault("EmberEyeNoLeader", series("operator_leading", gauge(0))),
    fault("EmberEyePassesFailing", series(f"operator_failures_total{{{FLEET}", counter(4))),
    fault("EmberEyeFleetNotReconciled", series(f"pass_age_seconds{{{FLEET}", gauge(400))),
    fault("EmberEyeDiskFilling", series("hub_disk_free_bytes", gauge(1e9))),
    fault("EmberEyeDiskFilling", series(f"shard_disk_free_bytes{{{SENSOR}", gauge(1e9)), name="a shard's disk fills"),
    fault("EmberEyeCertificateExpiring", series(f"certificate_expiration_timestamp_seconds{{{SENSOR}", gauge(120_000))),
    fault("EmberEyeCertificateExpiring", series(f'seconds{{ports="open",{SENSOR}', gauge(120_000)),
          name="the certificate that devices are shown is not renewed"),
    fault("EmberEyeCertificateExpiring", series(f"certificate_expiration_timestamp_seconds{{{HUB}", gauge(120_000)),
          name="the hub's certificate is not renewed"),
    fault("EmberEyeClipsFailing", series("camera_clips_failing", gauge(1))),
    fault("EmberEyeClipsFailing", series("hub_clips_failing", gauge(1)), name="the hub cannot write clips"),
    fault("EmberEyeRouteFailing", series("notify_failing", gauge(1))),
    fault("EmberEyeRouteFailing", series("notify_dead_letters", gauge(2)), name="a route gave messages up"),
    fault("EmberEyeRouteUnconfirmed", series("notify_unconfirmed", gauge(1))),
    fault("EmberEyeDutyCalendarStale", series("notify_calendar_stale", gauge(1))),
    fault("EmberEyeProfileUnconfirmed", series("profiles_unconfirmed", gauge(1))),
    fault("EmberEyeStatementMissing", series("statements_missing", gauge(1))),
    fault("EmberEyeWalkTestOverdue", series("walktest_overdue", gauge(1))),
    fault("EmberEyeSelfTestFailed", series("selftest_passed", gauge(0))),
    fault("EmberEyeWebhookFailing", series("webhook_failing", gauge(1))),
    fault("EmberEyeWebhookFailing", series("webhook_dead_letters", gauge(2)), name="a webhook gave events up"),
    fault("EmberEyeHubBusFailing", series("hub_bus_failing", gauge(1))),
    fault("EmberEyeMqttDisconnected", series("mqtt_connected", gauge(0))),
    fault("EmberEyeStationFailing", series("dc09_receiver_failing", gauge(1))),
    fault("EmberEyeStationFailing", series("dc09_waiting", gauge(120)), name="a message to a station waits"),
    fault("EmberEyeEvidenceNotArchived", series("hub_archive_lag", gauge(900))),
    fault("EmberEyeBackupMissing", series("hub_archive_backup_overdue", gauge(7_200))),
    fault("EmberEyeFleetBackupMissing", series("operator_backup_overdue", gauge(7_200))),
    fault("EmberEyeModbusFailing", series("modbus_failing", gauge(1))),
    fault("EmberEyeActuatorRulesFailing", series("control_rules_failing", gauge(1))),
    fault("EmberEyeControlDeadlinesMissed", series("control_missed", counter(300))),
    fault("EmberEyeArchiveFailing", series("archive_failing", gauge(1))),
    fault("EmberEyeClockSkew", series("clocks_wrong", gauge(1))),
    # No faults:
    Fault("a zone is silenced, or under test",
          series('state="alarm"', gauge(0)) | series('state="pre_alarm"', gauge(0))),
    Fault("one operator of two is gone", series(f"up{{{STANDBY}", gauge(0)), before=10),
    Fault("a fleet that wants no alerts has none",
          series(f"fleet_devices_covered{{{FLEET}", gauge(0)) | series(f"hub_connected{{{SENSOR}", gauge(0))
          | series(f"alerts_enabled{{{FLEET}", gauge(0)), before=0),
    Fault("a fleet that wants no alerts has none about its processes either",
          histogram(LAG, SENSOR, LAGS, 2) | series(f"shard_disk_free_bytes{{{SENSOR}", gauge(1e9))
          | series(f"certificate_expiration_timestamp_seconds{{{SENSOR}", gauge(120_000))
          | series("camera_clips_failing", gauge(1)) | series("alerts_enabled", gauge(0)), before=0),
    Fault("a paused fleet is not scaled",
          series(f"required_shards{{{FLEET}", gauge(3)) | series(f"fleet_paused{{{FLEET}", gauge(1)), before=0),
    Fault("a fleet without canaries misses none",
          series(f"canary_overdue{{{FLEET}", gauge(None)) | series(f"canary_interval_seconds{{{SENSOR}", gauge(0))),
    Fault("a canary that comes once too late",
          series(f"canary_overdue{{{FLEET}", lambda m: 1 if m % 10 == 0 else 0)),
    Fault("a fleet that was just created", created(10), before=0, during=14),
    Fault("a fleet that was created half an hour ago", created(10), before=0, during=36),
    Fault("the maximum of shards with four cores, with spare capacity",
          series(f"utilization_ratio{{{FLEET}", gauge(2.6)) | series(f"shard_capacity_cores{{{FLEET}", gauge(4))
          | series(f"max_shards{{{FLEET}", gauge(1))),
    Fault("a roll of a minute",
          series(f"fleet_shards{{{FLEET}", lambda m: 2 if m % 10 == 0 else 1)),
)  # fmt: skip
FAULTS = [fault for fault in _FAULTS if fault.fires <= set(BY_NAME)]  # an add-on and its alert may be deleted


def test_every_alert_has_a_fault() -> None:
    assert set(BY_NAME) - {name for fault in FAULTS for name in fault.fires} == set()


def input_series(fault: Fault) -> list[dict[str, str]]:
    rows, total = [], fault.before + fault.during + fault.after
    world = healthy()
    assert set(fault.world) <= set(world), set(fault.world) - set(world)
    for name, values in world.items():
        samples, last, shift = [], 0.0, 0.0
        for minute in range(total + 1):
            in_fault = fault.before <= minute < fault.before + fault.during
            chosen = fault.world.get(name, values) if in_fault else values
            value = chosen(minute)
            if "_total{" in name or "_bucket{" in name:  # counters continue from their value
                before = chosen(minute - 1) if minute else 0.0
                step = (value or 0.0) - (before or 0.0)
                last += max(0.0, step)
                value = None if value is None else last + shift
            samples.append("_" if value is None else f"{value:g}" if value < 1e5 else str(int(value)))
        rows.append({"series": name, "values": " ".join(samples)})
    return rows


def promtool_test(fault: Fault) -> dict[str, Any]:
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fault.fires)]
    during, end = fault.before + fault.during - 1, fault.before + fault.during + fault.after
    moments = {f"{end}m": [], f"{during}m": samples}
    if fault.before:
        moments[f"{fault.before - 1}m"] = []
    return {
        "name": fault.name,
        "interval": "1m",
        "input_series": input_series(fault),
        "promql_expr_test": [
            {"expr": firing, "eval_time": moment, "exp_samples": expected} for moment, expected in moments.items()
        ],
    }


def evaluate(test: dict[str, Any], folder: Path) -> None:
    """Run a test with promtool, which needs 200 MB without garbage collection, and a fifth less CPU."""
    (folder / "rules.yaml").write_text(RULES.read_text())
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "tests.yaml").write_text(json.dumps(tests))
    command = ["promtool", "test", "rules", "tests.yaml"]
    environment = {**os.environ, "GOGC": "off"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout}{result.stderr}"


@needs_promtool
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fires_exactly_its_alerts_and_they_resolve(fault: Fault, tmp_path: Path) -> None:
    evaluate(promtool_test(fault), tmp_path)


# Alerts from `absent` alone cannot contain the name of the cluster.
UNNAMED = {"the hub is absent", "no operator"}


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [fault for fault in FAULTS if fault.fires and fault.name not in UNNAMED and fault.during < 60],
    ids=lambda fault: fault.name,
)
def test_a_healthy_cluster_hides_no_fault_of_another(fault: Fault, tmp_path: Path) -> None:
    """Evaluate several clusters with equal names and a label `cluster`, as Thanos, Mimir and Grafana do."""
    well = Fault("", {}, before=fault.before, during=fault.during, after=fault.after)
    test = promtool_test(fault)
    test["input_series"] = [
        {**row, "series": row["series"].replace("{", f'{{cluster="{name}",', 1)}
        for name, world in (("north", fault), ("south", well))
        for row in input_series(world)
    ]
    for asked in test["promql_expr_test"]:
        asked["expr"] = 'count by (alertname, cluster) (ALERTS{alertstate="firing"})'
        for sample in asked["exp_samples"]:
            sample["labels"] = sample["labels"].replace("{", '{cluster="north",')
    evaluate(test, tmp_path)


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    result = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(ALERTS) + len(RECORDINGS)} rules found" in result.stdout


def test_expressions_use_only_existing_metrics_and_labels() -> None:
    known = set(by_series()) | {"up"} | {rule.name for rule in RECORDINGS}
    for alert in ALERTS:
        named = set(re.findall(r"\b(?:embereye[a-z0-9_:]*|process_[a-z_]+|up)(?=[{\[) ]|$)", expression(alert)))
        assert named
        assert named <= known, alert.name
    assert set(TARGET) == {"job", "instance"}


def test_every_alert_names_the_alert_for_its_missing_series() -> None:
    for alert in ALERTS:
        if not alert.when_absent.startswith("EmberEye"):
            assert " " in alert.when_absent, alert.name
            continue
        twin = BY_NAME[alert.when_absent]
        absent = "absent(" in twin.expression or "count by" in twin.expression
        assert absent, f"{alert.name}: {twin.name} does not fire on missing series"


def test_every_alert_has_a_runbook_and_a_subject() -> None:
    for alert in ALERTS:
        assert re.fullmatch(r"EmberEye[A-Z][A-Za-z]+", alert.name)
        summary = re.sub(r"{{ if .*?{{ end }}", "", alert.summary)  # the replacement of a missing label
        assert len(re.sub(r"{{.*?}}", "hall-sensors-0", summary)) <= 110, alert.name
        assert alert.description.endswith((".", "}}")) or "kubectl" in alert.description, alert.name
        if alert.scope != "release":
            assert "namespace" in alert.expression or RECORDINGS[0].name in alert.expression, (
                f"{alert.name}: nobody could route it"
            )


def test_grafana_evaluates_the_expressions_of_prometheus() -> None:
    grafana = [rule for group in grafana_rules()["groups"] for rule in group["rules"]]
    actual = {rule["title"]: rule["data"][0]["model"]["expr"] for rule in grafana}
    expected = {
        rule["alert"]: rule["expr"]
        for group in prometheus_rules()["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert actual.keys() == expected.keys() == BY_NAME.keys()
    for name, text in expected.items():
        assert actual[name] == grafana_expression(BY_NAME[name])
        if not any(rule.name in text for rule in RECORDINGS):
            assert actual[name] == text
    assert len({rule["uid"] for rule in grafana}) == len(expected)
    assert all(len(rule["uid"]) <= 40 for rule in grafana)


def test_grafanas_file_is_equivalent_yaml() -> None:
    assert yaml.safe_load((ROOT / "charts/embereye/files/rules/grafana.yaml").read_text()) == grafana_rules()
