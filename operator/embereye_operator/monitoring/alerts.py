"""Every alert: what it looks for, whom it concerns, and what tells when it cannot look."""

from dataclasses import dataclass
from typing import Literal

# Where the hub of `embereye up` serves docs/runbooks, and `kubectl port-forward` brings that of a cluster. The chart
# puts its own address here.
RUNBOOKS = "http://127.0.0.1:8080/runbooks"
OPERATOR_JOB, HUB_JOB, SHARD_JOB = "embereye-operator", "embereye-hub", "embereye-shard"

# `cluster` tells the same names in several clusters apart where something evaluates or shows them together, as Thanos,
# Mimir and Grafana do. A single Prometheus has no such label.
FLEET = "cluster, namespace, kind, fleet"
SHARD = f"{FLEET}, shard, pod, instance"
PROCESS = f"{FLEET}, job, shard, pod, instance"
# Hubs of one release, and releases of one namespace, are told apart by a label of their pods that scraping passes on.
RELEASE = "cluster, namespace, job, app_kubernetes_io_instance"
HUB = "cluster, namespace, pod, instance"

# Where, as a person reads it, and how to look.
THE_FLEET = "{{ $labels.namespace }}/{{ $labels.fleet }} ({{ $labels.kind }})"
THE_SHARD = "{{ $labels.shard }}{{ if not $labels.shard }}{{ $labels.instance }}{{ end }} of {{ $labels.namespace }}"
STATUS = "kubectl embereye status -n {{ $labels.namespace }}"

BY_OPERATOR = "EmberEyeOperatorAbsent"
BY_SHARDS = "EmberEyeShardMetricsMissing"
BY_HUB = "EmberEyeHubDown"


@dataclass(frozen=True)
class Alert:
    """One alerting rule."""

    name: str
    severity: Literal["critical", "warning"]
    scope: Literal["fleet", "shard", "release"]  # what one alert is about, and with it whose namespace it carries
    expression: str
    wait: str  # how long it must hold
    summary: str
    description: str
    # The alert that fires where this one's series are missing, or why there is none.
    when_absent: str


@dataclass(frozen=True)
class Recording:
    """One recording rule."""

    name: str
    expression: str


# --- coverage as a service level ------------------------------------------------------------------------------------

OBJECTIVE = 0.999  # of all devices, over 30 days, are watched
DARK = "embereye:fleet_dark:ratio"
RECORDINGS = (
    Recording(
        DARK,
        f"1 - max by ({FLEET}) (embereye_fleet_devices_covered) / (max by ({FLEET}) (embereye_fleet_devices) > 0)",
    ),
)


def _burns(long: str, short: str, factor: float, known: str) -> str:
    """The error budget of 30 days is used `factor` times too fast, over the long window and still.

    Not of a fleet that was not there yet `known` ago: its first minute would be all that there is to average.
    """
    limit = f"{factor * (1 - OBJECTIVE):.4f}"
    return (
        f"avg_over_time({DARK}[{long}]) > {limit} and avg_over_time({DARK}[{short}]) > {limit} "
        f"and last_over_time({DARK}[{short}] offset {known})"
    )


def _fleet(metric: str) -> str:
    return f"max by ({FLEET}) ({metric})"


def _rate(metric: str, by: str = SHARD, window: str = "5m") -> str:
    return f"sum by ({by}) (rate({metric}[{window}]))"


def _p(quantile: float, histogram: str, by: str = SHARD) -> str:
    return f"histogram_quantile({quantile}, sum by (le, {by}) (rate({histogram}_bucket[5m])))"


# Series that more than one expression asks for, or whose quotes would stand inside of others.
DEGRADED = 'embereye_fleet_condition{condition="Degraded"}'
MEASURED = 'embereye_fleet_condition{condition="MetricsAvailable"}'
SENSORS_SHED = 'embereye_sensor_shed_total{reason!="compacted"}'
SENSORS_OFFERED = 'embereye_sensor_packets_total{outcome="offered"}'
SENSORS_COMPACTED = 'embereye_sensor_shed_total{reason="compacted"}'
FRAMES_SHED = 'embereye_camera_frames_shed_total{reason=~"overload|superseded"}'

ALERTS = (
    # --- what people installed it for
    Alert(
        "EmberEyeDevicesDark", "critical", "fleet",
        f"{_fleet('embereye_fleet_devices')} - {_fleet('embereye_fleet_devices_covered')} > 0", "1m",
        f"Devices of {THE_FLEET} are not watched",
        "Devices that were not heard or not analysed within their deadline: {{ $value }}. Their names and the reasons: "
        "kubectl embereye devices -n {{ $labels.namespace }} {{ $labels.fleet }}",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeCoverageBurnsFast", "critical", "fleet", _burns("1h", "5m", 14.4, "10m"), "2m",
        f"{THE_FLEET} loses its month's coverage within two days",
        "{{ $value | humanizePercentage }} of device time was unwatched in the last hour, of which 0.1 % a month are "
        "allowed. Devices that come and go count, too.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeCoverageBurnsSlowly", "warning", "fleet", _burns("6h", "30m", 6.0, "1h"), "15m",
        f"{THE_FLEET} loses its month's coverage within five days",
        "{{ $value | humanizePercentage }} of device time was unwatched in the last six hours, of which 0.1 % a month "
        "are allowed.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeHubDown", "critical", "release",
        f'max by ({RELEASE}) (up{{job="{HUB_JOB}"}}) == 0 or absent(up{{job="{HUB_JOB}"}})', "1m",
        "Nobody is told of fires: the hub is down",
        "Prometheus cannot scrape a hub. Shards go on watching and keep their reports, but no alarm reaches anybody "
        "until it is back.",
        "EmberEyeHubDown",
    ),
    Alert(
        "EmberEyeHubNotReached", "critical", "shard",
        f"min by ({SHARD}) (embereye_shard_hub_connected) == 0", "1m",
        f"{THE_SHARD} does not reach the hub",
        "It goes on watching and keeps its reports, which nobody is told of until the hub takes them.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeEvidenceWaiting", "critical", "shard",
        f"max by ({SHARD}) (embereye_shard_evidence_waiting_seconds) > 30", "30s",
        f"Reports of {THE_SHARD} are not taken",
        "Reports have waited for {{ $value | humanizeDuration }} without the hub acknowledging one: a fire may be "
        "among them.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeHubStoreFailing", "critical", "release",
        f"max by ({HUB}) (embereye_hub_store_failing) == 1", "30s",
        "The hub cannot write its database",
        "It turns reports away, which shards keep: no alarm is raised until it can write again. Mostly its volume is "
        "full; its log has the reason.",
        BY_HUB,
    ),
    Alert(
        "EmberEyeEvidenceLost", "critical", "shard",
        f"sum by ({SHARD}) (increase(embereye_shard_evidence_dropped_total[10m])) > 0", "0s",
        f"{THE_SHARD} gives up reports",
        "Its spool is full, and the weakest and oldest reports go: about {{ $value | humanize }} in ten minutes. The "
        "hub has not taken any for a long time.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeSpoolFilling", "warning", "shard",
        f"max by ({SHARD}) (embereye_shard_evidence_spooled) > 10000", "1m",
        f"The spool of {THE_SHARD} fills",
        "{{ $value }} reports wait for the hub; beyond 20,000 the weakest go.",
        BY_SHARDS,
    ),
    # --- the path itself
    Alert(
        "EmberEyeCanaryNotAlarmed", "critical", "fleet",
        f"max by ({FLEET}, shard) (embereye_canary_overdue) == 1", "1m",
        "A fire at {{ $labels.shard }} of {{ $labels.namespace }} might not be told: its canary was not",
        "Each shard sends a synthetic fire through its own path at every spec.canary.interval. None of them was an "
        "alarm within spec.canary.within lately: what devices of this shard tell may not be seen, or come late.",
        "EmberEyeCanaryNotTold",
    ),
    Alert(
        "EmberEyeCanaryNotTold", "warning", "fleet",
        f"(count by ({FLEET}, shard) (embereye_canary_interval_seconds > 0) unless on ({FLEET}, shard) "
        f"max by ({FLEET}, shard) (embereye_canary_overdue)) and on (cluster) "
        f'max by (cluster) (up{{job="{HUB_JOB}"}}) == 1', "5m",
        "Nobody can tell whether a fire at {{ $labels.shard }} of {{ $labels.namespace }} would be",
        "The shard is to send synthetic fires, and the hub tells nothing of them: EmberEyeCanaryNotAlarmed cannot "
        "fire. The hub is of an older version, or the shard does not reach it.",
        BY_SHARDS,
    ),
    # --- shards
    Alert(
        "EmberEyeShardDown", "critical", "shard", f'max by ({SHARD}) (up{{job="{SHARD_JOB}"}}) == 0', "2m",
        f"{THE_SHARD} does not answer",
        "Prometheus cannot scrape it. Its devices are given to others where there are any; see EmberEyeDevicesDark.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeShardMetricsMissing", "warning", "fleet",
        f"{_fleet('embereye_fleet_ready_shards')} > (count by ({FLEET}) (embereye_shard_epoch) or "
        f"0 * {_fleet('embereye_fleet_ready_shards')})", "5m",
        f"Shards of {THE_FLEET} are not scraped",
        "Shards that work: {{ $value }}. Prometheus has the metrics of fewer, so that no alert on a shard can fire. "
        "The monitor lacks the labels that this Prometheus selects by, or a network policy is in the way.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeFleetNotReady", "warning", "fleet",
        f"{_fleet('embereye_fleet_shards')} - {_fleet('embereye_fleet_ready_shards')} > 0", "5m",
        f"{THE_FLEET} lacks shards",
        "Shards that do not work under the placement in force: {{ $value }}. The Ready condition says which and why: "
        f"{STATUS}",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeFleetDegraded", "warning", "fleet",
        f"{_fleet(DEGRADED)} == 1", "5m",
        f"{THE_FLEET} is not as declared",
        f"The Degraded condition says why: {STATUS}",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeEventLoopSlow", "warning", "shard", f"{_p(0.99, 'embereye_event_loop_lag_seconds', PROCESS)} > 0.25",
        "5m",
        "A process of EmberEye stands still at times: {{ $labels.job }} {{ $labels.shard }}",
        "One time in a hundred its event loop comes {{ $value | humanizeDuration }} late. It is starved of processor "
        "time, or throttled by a CPU limit.",
        "Missing only together with everything else of the process, which EmberEyeShardMetricsMissing, "
        "EmberEyeHubDown and EmberEyeOperatorAbsent tell.",
    ),
    # --- load
    Alert(
        "EmberEyeSensorsShedding", "warning", "shard",
        f'{_rate(SENSORS_SHED)} / '
        f'({_rate(SENSORS_OFFERED)} > 0) > 0.01', "5m",
        f"{THE_SHARD} gives up readings",
        "{{ $value | humanizePercentage }} of what sensors send is not analysed: more comes than the shard can do.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeCompacting", "warning", "shard",
        f'{_rate(SENSORS_COMPACTED)} > 0', "5m",
        f"{THE_SHARD} analyses a summary of its backlog",
        "{{ $value | humanize }} readings a second are taken as minimum, maximum, last and slope. No peak is missed, "
        "but the shard has too much to do.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeCamerasShedding", "warning", "shard",
        f'{_rate(FRAMES_SHED)} / '
        f'({_rate("embereye_camera_frames_offered_total")} > 0) > 0.2', "10m",
        f"{THE_SHARD} looks at fewer frames than it should",
        "{{ $value | humanizePercentage }} of frames are given up for want of processor time. No camera falls under "
        "its least rate for it, but flicker is harder to judge.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeDecodingSaturated", "warning", "shard",
        f"max by ({SHARD}) (embereye_camera_refused) > 0", "1m",
        f"{THE_SHARD} cannot look at all of its cameras",
        "Not looked at at all, so that the others keep their least rate, and so dark: {{ $value }} of its cameras.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeFramesOld", "warning", "shard", f"{_p(0.95, 'embereye_camera_frame_delay_seconds')} > 0.5", "5m",
        f"Frames of {THE_SHARD} are looked at late",
        "One frame in twenty waits for {{ $value | humanizeDuration }} or longer between arrival and decision.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeCameraDegraded", "warning", "shard", f"max by ({SHARD}) (embereye_camera_degraded) > 0", "5m",
        f"Cameras of {THE_SHARD} are looked at with less than was asked for",
        "Cameras of which a model fails, or pictures do not suit the detectors: {{ $value }}. Which, and why: "
        "kubectl embereye devices -n {{ $labels.namespace }} {{ $labels.fleet }}. Covered, frozen "
        "and blind cameras count as dark.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeAnalysisFailing", "warning", "shard",
        f"sum by ({SHARD}) (increase(embereye_camera_analysis_failures_total[10m])) > 0", "5m",
        f"A detector of {THE_SHARD} fails",
        "Frames in ten minutes that it failed on: about {{ $value | humanize }}. The shard's log has the error: a "
        "defect worth reporting.",
        BY_SHARDS,
    ),
    Alert(
        "EmberEyeDecodersDying", "warning", "shard",
        f"sum by ({SHARD}) (increase(embereye_camera_decoders_died_total[15m])) > 3", "0s",
        f"Decoders of {THE_SHARD} die",
        "About {{ $value | humanize }} in a quarter of an hour. Each is replaced; a stream that kills them, or too "
        "little memory, is the usual reason.",
        BY_SHARDS,
    ),
    # --- scaling
    Alert(
        "EmberEyeScalingStuck", "warning", "fleet",
        f"{_fleet('embereye_fleet_required_shards')} > {_fleet('embereye_fleet_ready_shards')} "
        f"unless on ({FLEET}) ({_fleet('embereye_fleet_ready_shards')} >= {_fleet('embereye_fleet_max_shards')}) "
        f"unless on ({FLEET}) ({_fleet('embereye_fleet_paused')} == 1)", "10m",
        f"{THE_FLEET} does not get the shards that it needs",
        "Shards that it needs: {{ $value }}. Some are not created, not scheduled or not ready, or nobody scales: "
        "kubectl embereye explain -n {{ $labels.namespace }} {{ $labels.fleet }}",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeScalingFlapping", "warning", "fleet",
        f"{_fleet('changes(embereye_fleet_shards[30m])')} > 6", "0s",
        f"The number of shards of {THE_FLEET} goes up and down",
        "It changed {{ $value }} times in half an hour. Each change moves devices. A longer "
        "spec.autoscaling.scaleDown.stabilization calms it.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeFleetAtMaximum", "warning", "fleet",
        f"{_fleet('embereye_fleet_utilization_ratio')} / {_fleet('embereye_fleet_shard_capacity_cores')} > 0.9 "
        f"and on ({FLEET}) "
        f"{_fleet('embereye_fleet_required_shards')} >= on ({FLEET}) {_fleet('embereye_fleet_max_shards')}", "10m",
        f"{THE_FLEET} can grow no further",
        "Its shards use {{ $value | humanizePercentage }} of what they can on average, and there are as many as may "
        "be. Raise spec.autoscaling.maxShards, or lower frame rates.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeScalingBlind", "warning", "fleet",
        f"{_fleet(MEASURED)} == 0", "5m",
        f"{THE_FLEET} is not scaled: its load is not known",
        f"Shards do not tell their load, so that their number is held. The condition says which: {STATUS}",
        BY_OPERATOR,
    ),
    # --- operator
    Alert(
        "EmberEyeOperatorAbsent", "critical", "release",
        f'max by ({RELEASE}) (up{{job="{OPERATOR_JOB}"}}) == 0 or absent(up{{job="{OPERATOR_JOB}"}})', "2m",
        "Fleets are not looked after: the operator is absent",
        "Prometheus cannot scrape an operator. Everything goes on as it is, but nothing is replaced or scaled, and "
        "alerts on fleets, EmberEyeDevicesDark among them, cannot fire.",
        "EmberEyeOperatorAbsent",
    ),
    Alert(
        "EmberEyeNoLeader", "critical", "release",
        f"max by ({RELEASE}) (embereye_operator_leading) == 0", "1m",
        "Fleets are not looked after: no operator leads",
        "Operators run, and none holds the Lease: nothing is replaced or scaled, and alerts on fleets cannot fire.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyePassesFailing", "warning", "fleet",
        f"sum by ({FLEET}) (increase(embereye_operator_failures_total[5m])) > 3", "5m",
        f"The operator fails with {THE_FLEET}",
        "About {{ $value | humanize }} passes failed in five minutes. The operator's log has the reason.",
        BY_OPERATOR,
    ),
    Alert(
        "EmberEyeFleetNotReconciled", "warning", "fleet",
        f"min by ({FLEET}) (embereye_fleet_pass_age_seconds) > 300", "1m",
        f"The operator does not come round to {THE_FLEET}",
        "Its latest pass that succeeded was {{ $value | humanizeDuration }} ago, so that its status is as old.",
        BY_OPERATOR,
    ),
    # --- room and time
    Alert(
        "EmberEyeCertificateExpiring", "critical", "shard",
        f"min by ({PROCESS}) (embereye_certificate_expiration_timestamp_seconds - time()) < 129600", "10m",
        "The certificate of {{ $labels.job }} {{ $labels.shard }} is not renewed",
        "It expires in {{ $value | humanizeDuration }}, and ought to have been renewed hours ago. Once it has expired "
        "no new connection is made: alarms wait in the shards; where it is one for devices or people, they are out.",
        "Told only where processes prove who they are.",
    ),
    Alert(
        "EmberEyeDiskFilling", "warning", "shard",
        f"min by ({PROCESS}) (embereye_hub_disk_free_bytes / embereye_hub_disk_size_bytes) < 0.15 or "
        f"min by ({PROCESS}) (embereye_shard_disk_free_bytes / embereye_shard_disk_size_bytes) < 0.15", "5m",
        "The disk of {{ $labels.job }} {{ $labels.shard }} fills",
        "{{ $value | humanizePercentage }} are free. A hub that cannot write turns reports away.",
        "Told only where there is a disk. The process is missed by EmberEyeHubDown or EmberEyeShardMetricsMissing.",
    ),
    Alert(
        "EmberEyeClipsFailing", "warning", "shard",
        f"max by ({PROCESS}) (embereye_camera_clips_failing) == 1 or "
        f"max by ({PROCESS}) (embereye_hub_clips_failing) == 1", "5m",
        "Pictures of alarms are not kept: {{ $labels.job }} {{ $labels.shard }}",
        "No clip can be written, mostly for a full disk. Alarms are not affected.",
        "Told only where clips are kept. The process is missed by EmberEyeHubDown or EmberEyeShardMetricsMissing.",
    ),
    Alert(
        "EmberEyeWebhookFailing", "warning", "release",
        f"max by ({HUB}, webhook) (embereye_hub_webhook_failing) == 1 or "
        f"max by ({HUB}, webhook) (embereye_hub_webhook_dead_letters) > 0", "5m",
        "The webhook {{ $labels.webhook }} does not deliver",
        "Events wait, or were given up: `embereye webhooks list` says why. Alarms reach the console and the feeds all "
        "the same.",
        "Told only where webhooks are declared. A hub that is gone is missed by EmberEyeHubDown.",
    ),
    Alert(
        "EmberEyeHubBusFailing", "warning", "release",
        f"max by ({HUB}) (embereye_hub_bus_failing) == 1", "1m",
        "NATS takes no evidence of {{ $labels.pod }}",
        "Evidence is acknowledged by the database alone, as without NATS. Where that, or the hub that owns it, goes as "
        "well, shards keep what they see.",
        "Told only where hub.nats names servers. A hub that is gone is missed by EmberEyeHubDown.",
    ),
    Alert(
        "EmberEyeMqttDisconnected", "warning", "release",
        f"max by ({HUB}) (embereye_hub_mqtt_connected) == 0", "5m",
        "The MQTT broker is not told of alarms",
        "The hub cannot keep the broker up to date: its log says why. Alarms reach the console, the feeds and webhooks "
        "all the same.",
        "Told only where hub.mqtt declares a broker. A hub that is gone is missed by EmberEyeHubDown.",
    ),
    Alert(
        "EmberEyeControlDeadlinesMissed", "warning", "release",
        f"sum by ({HUB}) (rate(embereye_hub_control_missed_total[5m])) / "
        f"(sum by ({HUB}) (rate(embereye_hub_control_states_total[5m])) > 0) > 0.01", "5m",
        "Controllers of actuators miss their deadline",
        "{{ $value | humanizePercentage }} of the States of actuators were not answered in time. The Command before "
        "holds meanwhile, and safe values where none comes any more.",
        "Told only where actuators are steered. A hub that is gone is missed by EmberEyeHubDown.",
    ),
    Alert(
        "EmberEyeArchiveFailing", "warning", "shard", f"max by ({SHARD}) (embereye_sensor_archive_failing) == 1", "5m",
        f"{THE_SHARD} cannot keep raw readings",
        "The archive of spec.telemetry cannot be written. Watching and alarms are not affected.",
        "Told only where spec.telemetry.archive is true.",
    ),
    Alert(
        "EmberEyeClockSkew", "warning", "release",
        f"max by ({HUB}) (embereye_hub_shard_clocks_wrong) > 0", "5m",
        "Clocks differ from the hub's",
        "Shards whose clocks differ from the hub's by more than 2 s: {{ $value }}. Their times are corrected; those on "
        "pictures and in logs are not. The hub's log names them.",
        BY_HUB,
    ),
)  # fmt: skip
BY_NAME = {alert.name: alert for alert in ALERTS}


def expression(alert: Alert) -> str:
    """What Prometheus evaluates: of fleets and shards, only where spec.alerts.enabled does not say otherwise."""
    if alert.scope == "release":
        return alert.expression
    return f"({alert.expression}) unless on ({FLEET}) (max by ({FLEET}) (embereye_fleet_alerts_enabled) == 0)"
