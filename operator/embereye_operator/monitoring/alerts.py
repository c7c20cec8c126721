"""All alerts: expressions, severity, texts, and the alert that fires if their series are missing.

`rules.py` translates them for Prometheus and Grafana; dashboards link to their runbooks. An alert's scope says what it
is about: a zone, fleet, shard or release. Series that are missing prove nothing, so another alert fires without them:
that of the scope, or the one that the alert names. Or the alert says why there is none. Every alert has a page in
`docs/runbooks`, or in the folder `runbooks` of its add-on.
"""

from embereye.process.addons import addon_modules
from embereye_operator.monitoring.alert import FLEET, HUB, PROCESS, RELEASE, SHARD, ZONE, Alert, Recording

# The subject of an alert for people, and the command to inspect it.
THE_ZONE = "{{ $labels.namespace }}/{{ $labels.zone }}"
THE_FLEET = "{{ $labels.namespace }}/{{ $labels.fleet }} ({{ $labels.kind }})"
THE_SHARD = "{{ $labels.shard }}{{ if not $labels.shard }}{{ $labels.instance }}{{ end }} of {{ $labels.namespace }}"
STATUS = "kubectl embereye status -n {{ $labels.namespace }}"

OPERATOR_JOB, HUB_JOB, SHARD_JOB = "embereye-operator", "embereye-hub", "embereye-shard"

OBJECTIVE = 0.999  # share of device time within 30 days that must be watched
DARK = "embereye:fleet_dark:ratio"
RECORDINGS = (
    Recording(
        DARK,
        f"1 - max by ({FLEET}) (embereye_fleet_devices_covered) / (max by ({FLEET}) (embereye_fleet_devices) > 0)",
    ),
)


def _burn_rate_above(long: str, short: str, factor: float, known: str) -> str:
    """Return an expression: the error budget of 30 days burns `factor` times too fast, over both windows.

    It ignores fleets that did not exist `known` ago, because their first minute would dominate the average.
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


# Series in several expressions, or with quotes that would be nested.
DEGRADED = 'embereye_fleet_condition{condition="Degraded"}'
MEASURED = 'embereye_fleet_condition{condition="MetricsAvailable"}'
SENSORS_SHED = 'embereye_sensor_shed_total{reason!="compacted"}'
SENSORS_OFFERED = 'embereye_sensor_packets_total{outcome="offered"}'
SENSORS_COMPACTED = 'embereye_sensor_shed_total{reason="compacted"}'
FRAMES_SHED = 'embereye_camera_frames_shed_total{reason=~"overload|superseded"}'

_ALERTS = (
    Alert(
        "EmberEyeZoneInAlarm", "critical", "zone",
        f'max by ({ZONE}) (embereye_hub_zone_active{{state=~"alarm|acknowledged"}}) == 1', "0s",
        f"Fire alarm: {{{{ $labels.sign }}}} in zone {THE_ZONE}",
        "Act by the site's alarm plan. The console shows the pictures, the measured values, and whether somebody has "
        "acknowledged the alarm.",
    ),
    Alert(
        "EmberEyeAlarmUnacknowledged", "critical", "zone",
        'max by (cluster, namespace, zone) (embereye_hub_zone_active{state="alarm"}) == 1', "3m",
        f"Nobody has acknowledged the fire alarm in zone {THE_ZONE}",
        "The zone has been in alarm for three minutes. Send somebody, then acknowledge the alarm.",
    ),
    Alert(
        "EmberEyeZoneInPreAlarm", "warning", "zone",
        f'max by ({ZONE}) (embereye_hub_zone_active{{state="pre_alarm"}}) == 1', "0s",
        f"First sign of a fire: {{{{ $labels.sign }}}} in zone {THE_ZONE}",
        "Have somebody look: at the picture in the console, or at the place itself.",
    ),
    Alert(
        "EmberEyeDevicesDark", "critical", "fleet",
        f"{_fleet('embereye_fleet_devices')} - {_fleet('embereye_fleet_devices_covered')} > 0", "1m",
        f"Devices of {THE_FLEET} are not watched",
        "Devices without data, or without analysed data, within their deadline: {{ $value }}. Their names and reasons: "
        "kubectl embereye devices -n {{ $labels.namespace }} {{ $labels.fleet }}",
    ),
    Alert(
        "EmberEyeCoverageBurnsFast", "critical", "fleet", _burn_rate_above("1h", "5m", 14.4, "10m"), "2m",
        f"{THE_FLEET} will use up its monthly error budget within two days",
        "{{ $value | humanizePercentage }} of device time was unwatched in the last hour. Allowed are 0.1 % per month. "
        "Devices that fail only at times count, too.",
    ),
    Alert(
        "EmberEyeCoverageBurnsSlowly", "warning", "fleet", _burn_rate_above("6h", "30m", 6.0, "1h"), "15m",
        f"{THE_FLEET} will use up its monthly error budget within five days",
        "{{ $value | humanizePercentage }} of device time was unwatched in the last six hours. Allowed are 0.1 % per "
        "month.",
    ),
    Alert(
        "EmberEyeHubDown", "critical", "release",
        f'max by ({RELEASE}) (up{{job="{HUB_JOB}"}}) == 0 or absent(up{{job="{HUB_JOB}"}})', "1m",
        "No notifications of fires: the hub is down",
        "Prometheus cannot scrape a hub. Shards keep watching and store their reports, but nobody is notified of "
        "alarms until the hub is back.",
    ),
    Alert(
        "EmberEyeHubNotReached", "critical", "shard",
        f"min by ({SHARD}) (embereye_shard_hub_connected) == 0", "1m",
        f"{THE_SHARD} cannot reach the hub",
        "It keeps watching and stores its reports. Nobody is notified of them until the hub accepts them.",
    ),
    Alert(
        "EmberEyeEvidenceWaiting", "critical", "shard",
        f"max by ({SHARD}) (embereye_shard_evidence_waiting_seconds) > 30", "30s",
        f"The hub does not accept reports of {THE_SHARD}",
        "Reports have waited for {{ $value | humanizeDuration }} without an acknowledgement by the hub. They may "
        "contain a fire.",
    ),
    Alert(
        "EmberEyeHubStoreFailing", "critical", "release",
        f"max by ({HUB}) (embereye_hub_store_failing) == 1", "30s",
        "The hub cannot write its database",
        "It refuses reports, which shards store: no alarm is raised until it can write again. Usually its volume is "
        "full; its log has the reason.",
    ),
    Alert(
        "EmberEyeHubDatabaseDamaged", "critical", "release",
        f"max by ({HUB}) (embereye_hub_database_losses) > 0", "0s",
        "The hub's database was damaged or lost",
        "The hub continues with what could be salvaged. Alarms, silences, tokens and history may be missing. The alert "
        "lasts until a person has removed database-losses.txt from the hub's data folder.",
    ),
    Alert(
        "EmberEyeEvidenceLost", "critical", "shard",
        f"sum by ({SHARD}) (increase(embereye_shard_evidence_dropped_total[10m])) > 0", "0s",
        f"{THE_SHARD} loses reports",
        "Its spool is full, so it drops the weakest and oldest reports: about {{ $value | humanize }} in ten minutes. "
        "The hub has accepted none for a long time.",
    ),
    Alert(
        "EmberEyeSpoolFilling", "warning", "shard",
        f"max by ({SHARD}) (embereye_shard_evidence_spooled) > 10000", "1m",
        f"The spool of {THE_SHARD} is filling up",
        "{{ $value }} reports wait for the hub; beyond 20,000 the weakest are dropped.",
    ),
    Alert(
        "EmberEyeCanaryNotAlarmed", "critical", "fleet",
        f"max by ({FLEET}, shard) (embereye_canary_overdue) == 1", "1m",
        "A fire at {{ $labels.shard }} of {{ $labels.namespace }} might raise no alarm: its canary did not",
        "Each shard sends a synthetic fire along its path to an alarm at every spec.canary.interval. Recently none of "
        "them became an alarm within spec.canary.within: alarms of this shard's devices may be missing or late.",
        "EmberEyeCanaryNotTold",
    ),
    Alert(
        "EmberEyeCanaryNotTold", "warning", "fleet",
        f"(count by ({FLEET}, shard) (embereye_canary_interval_seconds > 0) unless on ({FLEET}, shard) "
        f"max by ({FLEET}, shard) (embereye_canary_overdue)) and on (cluster) "
        f'max by (cluster) (up{{job="{HUB_JOB}"}}) == 1', "5m",
        "No canaries of {{ $labels.shard }} of {{ $labels.namespace }} are known to the hub",
        "The shard should send synthetic fires, but the hub has no record of them, so EmberEyeCanaryNotAlarmed cannot "
        "fire. The hub has an older version, or the shard cannot reach it.",
        "EmberEyeShardMetricsMissing",
    ),
    Alert(
        "EmberEyeShardDown", "critical", "shard", f'max by ({SHARD}) (up{{job="{SHARD_JOB}"}}) == 0', "2m",
        f"{THE_SHARD} does not answer",
        "Prometheus cannot scrape it. Its devices move to other shards if there are any; see EmberEyeDevicesDark.",
    ),
    Alert(
        "EmberEyeShardMetricsMissing", "warning", "fleet",
        f"{_fleet('embereye_fleet_ready_shards')} > (count by ({FLEET}) (embereye_shard_epoch) or "
        f"0 * {_fleet('embereye_fleet_ready_shards')})", "5m",
        f"Shards of {THE_FLEET} are not scraped",
        "Working shards: {{ $value }}. Prometheus has the metrics of fewer, so alerts on shards cannot fire. The "
        "monitor lacks the labels that this Prometheus selects, or a network policy blocks it.",
    ),
    Alert(
        "EmberEyeFleetNotReady", "warning", "fleet",
        f"{_fleet('embereye_fleet_shards')} - {_fleet('embereye_fleet_ready_shards')} > 0", "5m",
        f"{THE_FLEET} lacks shards",
        "Shards that do not follow the placement in force: {{ $value }}. The Ready condition has their names and "
        f"reasons: {STATUS}",
    ),
    Alert(
        "EmberEyeFleetDegraded", "warning", "fleet",
        f"{_fleet(DEGRADED)} == 1", "5m",
        f"{THE_FLEET} is not as declared",
        f"The Degraded condition has the reason: {STATUS}",
    ),
    Alert(
        "EmberEyeEventLoopSlow", "warning", "shard", f"{_p(0.99, 'embereye_event_loop_lag_seconds', PROCESS)} > 0.25",
        "5m",
        "A process of EmberEye stalls at times: {{ $labels.job }} {{ $labels.shard }}",
        "In one of a hundred cases its event loop is {{ $value | humanizeDuration }} late. It lacks CPU time, or a CPU "
        "limit throttles it.",
        "Missing only together with everything else of the process, for which EmberEyeShardMetricsMissing, "
        "EmberEyeHubDown and EmberEyeOperatorAbsent fire.",
    ),
    Alert(
        "EmberEyeSensorsShedding", "warning", "shard",
        f'{_rate(SENSORS_SHED)} / '
        f'({_rate(SENSORS_OFFERED)} > 0) > 0.01', "5m",
        f"{THE_SHARD} drops readings",
        "{{ $value | humanizePercentage }} of the sensors' data is not analysed: the shard is overloaded.",
    ),
    Alert(
        "EmberEyeCompacting", "warning", "shard",
        f'{_rate(SENSORS_COMPACTED)} > 0', "5m",
        f"{THE_SHARD} analyses a summary of its backlog",
        "{{ $value | humanize }} readings a second are analysed as minimum, maximum, last value and slope. No peak is "
        "missed, but the shard is overloaded.",
    ),
    Alert(
        "EmberEyeCamerasShedding", "warning", "shard",
        f'{_rate(FRAMES_SHED)} / '
        f'({_rate("embereye_camera_frames_offered_total")} > 0) > 0.2', "10m",
        f"{THE_SHARD} analyses fewer frames than it should",
        "{{ $value | humanizePercentage }} of frames are dropped because CPU time is missing. Every camera still gets "
        "its minimum rate, but flicker is harder to judge.",
    ),
    Alert(
        "EmberEyeDecodingSaturated", "warning", "shard",
        f"max by ({SHARD}) (embereye_camera_refused) > 0", "1m",
        f"{THE_SHARD} cannot analyse all of its cameras",
        "Cameras that are not analysed and therefore dark, so that the others get their minimum rate: {{ $value }}.",
    ),
    Alert(
        "EmberEyeFramesOld", "warning", "shard", f"{_p(0.95, 'embereye_camera_frame_delay_seconds')} > 0.5", "5m",
        f"Frames of {THE_SHARD} are analysed late",
        "One frame in twenty takes {{ $value | humanizeDuration }} or longer from arrival to decision.",
    ),
    Alert(
        "EmberEyeCameraDegraded", "warning", "shard", f"max by ({SHARD}) (embereye_camera_degraded) > 0", "5m",
        f"Detection on cameras of {THE_SHARD} is limited",
        "Cameras whose model fails, or whose pictures do not suit the detectors: {{ $value }}. Their names and "
        "reasons: kubectl embereye devices -n {{ $labels.namespace }} {{ $labels.fleet }}. Covered, frozen "
        "and blind cameras count as dark.",
    ),
    Alert(
        "EmberEyeAnalysisFailing", "warning", "shard",
        f"sum by ({SHARD}) (increase(embereye_camera_analysis_failures_total[10m])) > 0", "5m",
        f"A detector of {THE_SHARD} fails",
        "Frames in ten minutes on which it failed: about {{ $value | humanize }}. The shard's log has the error. "
        "Please report it as a defect.",
    ),
    Alert(
        "EmberEyeDecodersDying", "warning", "shard",
        f"sum by ({SHARD}) (increase(embereye_camera_decoders_died_total[15m])) > 3", "0s",
        f"Decoders of {THE_SHARD} crash",
        "About {{ $value | humanize }} in a quarter of an hour. Each is replaced. The usual reason is a stream that "
        "crashes them, or too little memory.",
    ),
    Alert(
        "EmberEyeScalingStuck", "warning", "fleet",
        f"{_fleet('embereye_fleet_required_shards')} > {_fleet('embereye_fleet_ready_shards')} "
        f"unless on ({FLEET}) ({_fleet('embereye_fleet_ready_shards')} >= {_fleet('embereye_fleet_max_shards')}) "
        f"unless on ({FLEET}) ({_fleet('embereye_fleet_paused')} == 1)", "10m",
        f"{THE_FLEET} has fewer shards than it needs",
        "Required shards: {{ $value }}. Some are not created, scheduled or ready, or nothing scales the fleet: "
        "kubectl embereye explain -n {{ $labels.namespace }} {{ $labels.fleet }}",
    ),
    Alert(
        "EmberEyeScalingFlapping", "warning", "fleet",
        f"{_fleet('changes(embereye_fleet_shards[30m])')} > 6", "0s",
        f"The number of shards of {THE_FLEET} keeps changing",
        "It changed {{ $value }} times in half an hour. Each change moves devices. A longer "
        "spec.autoscaling.scaleDown.stabilization prevents that.",
    ),
    Alert(
        "EmberEyeFleetAtMaximum", "warning", "fleet",
        f"{_fleet('embereye_fleet_utilization_ratio')} / {_fleet('embereye_fleet_shard_capacity_cores')} > 0.9 "
        f"and on ({FLEET}) "
        f"{_fleet('embereye_fleet_required_shards')} >= on ({FLEET}) {_fleet('embereye_fleet_max_shards')}", "10m",
        f"{THE_FLEET} has reached its maximum number of shards",
        "Its shards use {{ $value | humanizePercentage }} of their capacity on average, and maxShards is reached. "
        "Raise spec.autoscaling.maxShards, or lower frame rates.",
    ),
    Alert(
        "EmberEyeScalingBlind", "warning", "fleet",
        f"{_fleet(MEASURED)} == 0", "5m",
        f"{THE_FLEET} is not scaled: its load is unknown",
        f"Some shards do not report their load, so their number stays. The condition has their names: {STATUS}",
    ),
    Alert(
        "EmberEyeOperatorAbsent", "critical", "release",
        f'max by ({RELEASE}) (up{{job="{OPERATOR_JOB}"}}) == 0 or absent(up{{job="{OPERATOR_JOB}"}})', "2m",
        "Fleets are not managed: the operator is absent",
        "Prometheus cannot scrape an operator. Shards keep running, but nothing is replaced or scaled, and alerts on "
        "fleets, including EmberEyeDevicesDark, cannot fire.",
        "EmberEyeOperatorAbsent",
    ),
    Alert(
        "EmberEyeNoLeader", "critical", "release",
        f"max by ({RELEASE}) (embereye_operator_leading) == 0", "1m",
        "Fleets are not managed: no operator leads",
        "Operators run, but none has the Lease: nothing is replaced or scaled, and alerts on fleets cannot fire.",
        "EmberEyeOperatorAbsent",
    ),
    Alert(
        "EmberEyePassesFailing", "warning", "fleet",
        f"sum by ({FLEET}) (increase(embereye_operator_failures_total[5m])) > 3", "5m",
        f"Passes over {THE_FLEET} fail",
        "About {{ $value | humanize }} passes failed in five minutes. The operator's log has the reason.",
    ),
    Alert(
        "EmberEyeFleetNotReconciled", "warning", "fleet",
        f"min by ({FLEET}) (embereye_fleet_pass_age_seconds) > 300", "1m",
        f"The operator does not reconcile {THE_FLEET}",
        "Its latest successful pass was {{ $value | humanizeDuration }} ago, and its status is as old.",
    ),
    Alert(
        "EmberEyeCertificateExpiring", "critical", "shard",
        f"min by ({PROCESS}) (embereye_certificate_expiration_timestamp_seconds - time()) < 129600", "10m",
        "The certificate of {{ $labels.job }} {{ $labels.shard }} is not renewed",
        "It expires in {{ $value | humanizeDuration }}, and should have been renewed hours ago. After its expiry no "
        "new connections are possible: alarms wait in the shards, and devices or people are locked out.",
        "Only with certificates between processes.",
    ),
    Alert(
        "EmberEyeDiskFilling", "warning", "shard",
        f"min by ({PROCESS}) (embereye_hub_disk_free_bytes / embereye_hub_disk_size_bytes) < 0.15 or "
        f"min by ({PROCESS}) (embereye_shard_disk_free_bytes / embereye_shard_disk_size_bytes) < 0.15", "5m",
        "The disk of {{ $labels.job }} {{ $labels.shard }} is filling up",
        "{{ $value | humanizePercentage }} is free. A hub with a full disk refuses reports.",
        "Only with a disk. EmberEyeHubDown or EmberEyeShardMetricsMissing fire for a missing process.",
    ),
    Alert(
        "EmberEyeClipsFailing", "warning", "shard",
        f"max by ({PROCESS}) (embereye_camera_clips_failing) == 1 or "
        f"max by ({PROCESS}) (embereye_hub_clips_failing) == 1", "5m",
        "Pictures of alarms cannot be stored: {{ $labels.job }} {{ $labels.shard }}",
        "No clip can be written, usually because the disk is full. Alarms are not affected.",
        "Only with clips. EmberEyeHubDown or EmberEyeShardMetricsMissing fire for a missing process.",
    ),
    Alert(
        "EmberEyeWebhookFailing", "warning", "release",
        f"max by ({HUB}, webhook) (embereye_hub_webhook_failing) == 1 or "
        f"max by ({HUB}, webhook) (embereye_hub_webhook_dead_letters) > 0", "5m",
        "The webhook {{ $labels.webhook }} does not deliver",
        "Events wait, or were dropped: `embereye webhooks list` has the reason. Alarms still reach the console and the "
        "feeds.",
        "Only with webhooks. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeMqttDisconnected", "warning", "release",
        f"max by ({HUB}) (embereye_hub_mqtt_connected) == 0", "5m",
        "The MQTT broker gets no alarms",
        "The hub cannot update the broker: its log has the reason. Alarms still reach the console, the feeds and "
        "webhooks.",
        "Only with hub.mqtt. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeArchiveFailing", "warning", "shard", f"max by ({SHARD}) (embereye_sensor_archive_failing) == 1", "5m",
        f"{THE_SHARD} cannot store raw readings",
        "The archive of spec.telemetry cannot be written. Watching and alarms are not affected.",
        "Only with spec.telemetry.archive.",
    ),
    Alert(
        "EmberEyeClockSkew", "warning", "release",
        f"max by ({HUB}) (embereye_hub_shard_clocks_wrong) > 0", "5m",
        "Clocks differ from the hub's",
        "Shards whose clocks differ from the hub's by more than 2 s: {{ $value }}. Their times are corrected, except "
        "on pictures and in logs. The hub's log has their names.",
    ),
)  # fmt: skip
ALERTS: tuple[Alert, ...] = (*_ALERTS, *(alert for addon in addon_modules("monitoring") for alert in addon.ALERTS))
BY_NAME = {alert.name: alert for alert in ALERTS}


def expression(alert: Alert) -> str:
    """Return the expression for Prometheus: without fleets and shards that turned alerts off by spec.alerts.enabled."""
    if alert.scope in {"release", "zone"}:
        return alert.expression
    return f"({alert.expression}) unless on ({FLEET}) (max by ({FLEET}) (embereye_fleet_alerts_enabled) == 0)"
