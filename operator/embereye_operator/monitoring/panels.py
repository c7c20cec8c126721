"""All dashboards as data: each panel's queries, unit, meaning and runbook.

`grafana.py` renders them, and only units and intervals here are in Grafana's notation. A query selects by the
dashboard's variables (C, F and so on) and groups by labels that stay distinct across clusters and namespaces. Each
panel names the alert whose runbook explains the problems it shows.
"""

from embereye.process.addons import addon_modules
from embereye_operator.monitoring.alert import FLEET as BY_FLEET
from embereye_operator.monitoring.alert import RELEASE
from embereye_operator.monitoring.alerts import DARK, OBJECTIVE
from embereye_operator.monitoring.panel import RATE, C, Dashboard, Panel, Query, Row, line

# The selectors of series of fleets by a dashboard's variables.
F = f'{C},namespace=~"$namespace",fleet=~"$fleet"'
SENSORS = f'{F},kind="sensors"'
CAMERAS = f'{F},kind="cameras"'
SENSOR_SHARDS = f'{SENSORS},shard=~"$shard"'
CAMERA_SHARDS = f'{CAMERAS},shard=~"$shard"'
# Shards are named after their fleet, and devices as people like: several namespaces may have the same names.
BY_SHARD = "cluster, namespace, shard"
PLACE, PROCESS = "cluster, namespace", "cluster, namespace, job, shard, instance"
FLEET_NAME, SHARD_NAME = "{{namespace}}/{{fleet}} {{kind}} {{cluster}}", "{{namespace}}/{{shard}} {{cluster}}"
DEVICE_NAME = "{{namespace}} {{device}} {{zone}} {{cluster}}"
CAMERA_NAME = "{{namespace}} {{camera}} {{zone}} {{cluster}}"


def _fleet(metric: str, selector: str = F) -> str:
    return f"max by ({BY_FLEET}) (embereye_fleet_{metric}{{{selector}}})"


def _per_shard(how: str, metric: str, selector: str, legend: str = "") -> Query:
    return Query(f"{how} by ({BY_SHARD}) ({metric}{{{selector}}})", f"{legend} {SHARD_NAME}".strip())


def _rate(metric: str, selector: str, by: str = BY_SHARD) -> str:
    return f"sum by ({by}) (rate({metric}{{{selector}}}[{RATE}]))"


def _quantiles(histogram: str, selector: str, by: str = "") -> tuple[Query, ...]:
    inner = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({inner}) (rate({histogram}_bucket{{{selector}}}[{RATE}])))",
            f"{text}{legend}",
        )
        for quantile, text in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    )


# A shard's use as a share of its capacity, which may be more or less than one core.
USED = f"({_fleet('utilization_ratio')} / {_fleet('shard_capacity_cores')})"

# Two is added to a condition that should be false, and four to one that may be either, for other words.
CONDITIONS = " or ".join(
    f"max by ({BY_FLEET}, condition) (embereye_fleet_condition{{{F},condition{which}}}) + {shift}"
    for which, shift in (('!~"Degraded|Progressing"', 0), ('="Degraded"', 2), ('="Progressing"', 4))
)
FIRES = Row("Fires", (
    Panel("Zones that are not normal", "Zones in alarm or pre-alarm, and the kind of their first sign. Empty: none.",
          "short", "EmberEyeZoneInAlarm",
          line(f"max by (cluster, namespace, zone, state, sign) (embereye_hub_zone_active{{{C}}})"), "table", width=24,
          needs="a fire", words=(("notifications paused", "orange"), ("active", "red"))),
))  # fmt: skip
OVERVIEW = Dashboard(
    "fleet-overview", "EmberEye / Fleet overview", "Are all devices watched? Which zones are in alarm?",
    ("namespace", "fleet"),
    (
        FIRES,
        Row("Now", (
            Panel("Zones in alarm", "Zones with an unacknowledged alarm, of all hubs.", "short",
                  "EmberEyeZoneInAlarm", line(f'sum(embereye_hub_zones{{{C},state="alarm"}})'), "stat", 1, 1, 4),
            Panel("Zones with a pre-alarm", "Zones with a first sign of fire, of all hubs.", "short",
                  "EmberEyeZoneInPreAlarm", line(f'sum(embereye_hub_zones{{{C},state="pre_alarm"}})'), "stat",
                  1, None, 4),
            Panel("Dark devices", "Declared devices that are not watched right now.", "short",
                  "EmberEyeDevicesDark", line(f"sum({_fleet('devices')} - {_fleet('devices_covered')})"), "stat",
                  1, 1, 4),
            Panel("Devices covered", "Share of declared devices that are watched.", "percentunit",
                  "EmberEyeDevicesDark", line(f"sum({_fleet('devices_covered')}) / sum({_fleet('devices')})"),
                  "stat", 1.0, 0.999, 4),
            Panel("Shards that work", "Share of the existing shards that follow the placement in force.",
                  "percentunit", "EmberEyeFleetNotReady",
                  line(f"sum({_fleet('ready_shards')}) / sum({_fleet('shards')})"), "stat", 1.0, 0.5, 4),
            Panel("Alerts", "Firing alerts of EmberEye.", "short", "EmberEyeFleetDegraded",
                  line(f'count(ALERTS{{{C},alertname=~"EmberEye.*",alertstate="firing"}}) or vector(0)'), "stat",
                       1, 5, 4),
        )),
        Row("Fleets", (
            Panel("Dark devices by fleet", "A line above zero is a fleet with unwatched devices.", "short",
                  "EmberEyeDevicesDark", line(f"{_fleet('devices')} - {_fleet('devices_covered')}", FLEET_NAME),
                  warning=1, critical=1, width=12),
            Panel("Shards by fleet", "Shards that follow the placement in force.", "short",
                  "EmberEyeFleetNotReady", line(_fleet("ready_shards"), FLEET_NAME), width=12),
            Panel("Conditions", "The conditions of each fleet. Green is as it should be; blue passes.", "short",
                  "EmberEyeFleetDegraded", (Query(CONDITIONS),), "table", width=12,
                  words=(("no", "orange"), ("yes", "green"), ("no", "green"), ("yes", "red"), ("no", "green"),
                         ("yes", "blue"))),
            Panel("Arrivals", "Readings, packets and frames per second, over all shards of a fleet.", "cps",
                  "EmberEyeFleetAtMaximum", line(_fleet("arrivals_per_second"), FLEET_NAME), width=12),
        )),
        Row("Alarms", (
            Panel("Alarm events", "Published events per minute, by type.", "cpm", "EmberEyeHubDown",
                  line(f"sum by (type) (rate(embereye_hub_events_total{{{C}}}[{RATE}])) * 60", "{{type}}"), width=12),
            Panel("Zones by state", "All zones of all hubs.", "short", "EmberEyeHubDown",
                  line(f"sum by (state) (embereye_hub_zones{{{C}}})", "{{state}}"), width=12),
        )),
    ),
    fires=True,
)  # fmt: skip

SENSOR = Dashboard(
    "sensor-shard", "EmberEye / Sensor shard", "The sensors' data and its analysis, by shard.",
    ("namespace", "fleet", "sensor shard"),
    (
        Row("Coverage and load", (
            Panel("Devices owned and covered", "A shard's devices, and those of them that are watched.", "short",
                  "EmberEyeDevicesDark",
                  (_per_shard("sum", "embereye_shard_devices", SENSOR_SHARDS, "owned"),
                   _per_shard("sum", "embereye_shard_devices_covered", SENSOR_SHARDS, "covered"))),
            Panel("Processor", "Share of one core in use; a sensor shard has one event loop.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  (_per_shard("max", "embereye_shard_utilization_ratio", SENSOR_SHARDS),), warning=0.7, critical=0.9),
            Panel("Connections", "Open text connections and gRPC streams.", "short", "EmberEyeDevicesDark",
                  (_per_shard("sum", "embereye_sensor_connections", SENSOR_SHARDS, "text"),
                   _per_shard("sum", "embereye_sensor_streams", SENSOR_SHARDS, "gRPC"))),
        )),
        Row("Packets", (
            Panel("Packets", "By outcome: offered = analysed + shed + duplicate + rejected.", "cps",
                  "EmberEyeSensorsShedding", line(_rate("embereye_sensor_packets_total", SENSOR_SHARDS, "outcome"),
                                                  "{{outcome}}")),
            Panel("Shed", "Packets that were not analysed individually, by reason; compacted ones were summarised.",
                  "cps", "EmberEyeCompacting", line(_rate("embereye_sensor_shed_total", SENSOR_SHARDS, "reason"),
                                                    "{{reason}}"), needs="overload"),
            Panel("Rejected", "Unusable packets and lines, by reason.", "cps", "EmberEyeSensorsShedding",
                  (Query(_rate("embereye_sensor_rejected_total", SENSOR_SHARDS, "reason"), "{{reason}}"),
                   Query(_rate("embereye_sensor_garbage_total", SENSOR_SHARDS, "reason"), "line: {{reason}}")),
                  needs="a device that sends nonsense"),
        )),
        Row("Time", (
            Panel("Wait for the tick",
                  "Time from the first packet of a tick to its start.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_sensor_latency_seconds", f'{SENSOR_SHARDS},stage="wait"'), warning=0.1,
                  critical=0.5),
            Panel("Work of a tick", "Time for parsing and analysis of the packets since the previous tick.", "s",
                  "EmberEyeEventLoopSlow",
                  _quantiles("embereye_sensor_latency_seconds", f'{SENSOR_SHARDS},stage="analyse"'), warning=0.05,
                  critical=0.2),
            Panel("Event loop lag", "Delay of due work in the event loop.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", SENSOR_SHARDS), warning=0.1, critical=0.25),
        )),
        Row("Measurements", (
            Panel("Hottest pixels", "The ten devices with the hottest pixels. 57 °C is the usual alarm threshold.",
                  "celsius", "EmberEyeDevicesDark",
                  line(f"topk(10, max by ({PLACE}, device, zone) "
                       f"(embereye_sensor_temperature_max_celsius{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=47, critical=57),
            Panel("Gas", "The ten highest values, ppm CO₂-equivalent.", "ppm", "EmberEyeDevicesDark",
                  line(f"topk(10, max by ({PLACE}, device, zone) (embereye_sensor_gas_ppm{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=2000, critical=5000),
            Panel("Silence", "The ten devices with the longest silence.", "s", "EmberEyeDevicesDark",
                  line(f"topk(10, max by ({PLACE}, device, zone) (embereye_sensor_age_seconds{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=2, critical=5),
        )),
        Row("Reports to the hub", (
            Panel("Hub reached", "1 while the shard is connected to the hub.", "short", "EmberEyeHubNotReached",
                  (_per_shard("min", "embereye_shard_hub_connected", SENSOR_SHARDS),), "stat", 1, 0.5),
            Panel("Reports waiting",
                  "Reports not acknowledged yet; the spool has room for 20,000.", "short", "EmberEyeSpoolFilling",
                  (_per_shard("max", "embereye_shard_evidence_spooled", SENSOR_SHARDS),), warning=1000, critical=10000),
            Panel("Reports lost", "Reports dropped because the spool was full, since the shard started.", "short",
                  "EmberEyeEvidenceLost",
                  (_per_shard("max", "embereye_shard_evidence_dropped_total", SENSOR_SHARDS),), "stat", 1, 1),
        )),
    ),
)  # fmt: skip

CAMERA = Dashboard(
    "camera-shard", "EmberEye / Camera shard", "The cameras' frames, the share that is analysed, and the delay.",
    ("namespace", "fleet", "camera shard"),
    (
        Row("Coverage and load", (
            Panel("Cameras by state", "The state of their sources.", "short", "EmberEyeDevicesDark",
                  line(f"sum by (state) (embereye_camera_sources{{{CAMERA_SHARDS}}})", "{{state}}")),
            Panel("Decoders at work", "Cores used for decoding and detection, and the number of decoders.", "short",
                  "EmberEyeDecodingSaturated",
                  (Query(_rate("embereye_camera_analysis_cpu_seconds_total", CAMERA_SHARDS), f"cores {SHARD_NAME}"),
                   _per_shard("sum", "embereye_camera_decoders", CAMERA_SHARDS, "decoders"))),
            Panel("How busy",
                  "Share of time in which decoders and event loop are busy; waiting for a CPU that a neighbour "
                  "uses counts.", "percentunit", "EmberEyeCamerasShedding",
                  (_per_shard("max", "embereye_camera_decoders_busy_ratio", CAMERA_SHARDS, "decoders"),
                   _per_shard("max", "embereye_camera_loop_busy_ratio", CAMERA_SHARDS, "loop"))),
            Panel("Cameras slowed", "Cameras analysed less often than intended.", "short", "EmberEyeCamerasShedding",
                  (_per_shard("max", "embereye_camera_slowed", CAMERA_SHARDS),)),
            Panel("Cameras refused", "Cameras not analysed because decoders lack capacity.", "short",
                  "EmberEyeDecodingSaturated",
                  (_per_shard("max", "embereye_camera_refused", CAMERA_SHARDS),), "stat", 1, 1, 4),
            Panel("Suspects", "Cameras with a suspected fire.", "short", "EmberEyeHubDown",
                  line(f"sum(embereye_camera_suspects{{{CAMERA_SHARDS}}})"), "stat", 1, None, 4),
        )),
        Row("Frames", (
            Panel("Received and analysed", "Frames per second.", "cps", "EmberEyeCamerasShedding",
                  (Query(_rate("embereye_camera_frames_offered_total", CAMERA_SHARDS), f"received {SHARD_NAME}"),
                   Query(_rate("embereye_camera_frames_analysed_total", CAMERA_SHARDS), f"analysed {SHARD_NAME}"))),
            Panel("Shed", "Frames by reason. `above target rate` is intended; overload and superseded are not.",
                  "cps", "EmberEyeCamerasShedding",
                  line(_rate("embereye_camera_frames_shed_total", CAMERA_SHARDS, "reason"), "{{reason}}"),
                  needs="a camera that sends more frames than are analysed"),
            Panel("Rejected", "Frames that could not be decoded, by reason.", "cps", "EmberEyeDevicesDark",
                  line(_rate("embereye_camera_frames_rejected_total", CAMERA_SHARDS, "reason"), "{{reason}}"),
                  needs="a camera that sends broken frames"),
            Panel("Frames in the pool",
                  "Frames that wait for a decoder, and frames in work.", "short", "EmberEyeFramesOld",
                  (_per_shard("sum", "embereye_camera_frames_waiting", CAMERA_SHARDS, "waiting"),
                   _per_shard("sum", "embereye_camera_frames_in_work", CAMERA_SHARDS, "in work"))),
            Panel("Lowest rates", "The ten cameras with the lowest rate of analysed frames.", "hertz",
                  "EmberEyeCamerasShedding",
                  line(f"bottomk(10, max by ({PLACE}, camera, zone) "
                       f'(embereye_camera_rate_hertz{{{CAMERA_SHARDS},bound="in_force"}}))', CAMERA_NAME)),
            Panel("Most frames shed", "The ten cameras that lose most frames.", "cps", "EmberEyeCamerasShedding",
                  line(f"topk(10, sum by ({PLACE}, camera, zone) "
                       f"(rate(embereye_camera_device_shed_total{{{CAMERA_SHARDS}}}[{RATE}])))",
                       CAMERA_NAME)),
        )),
        Row("Time", (
            Panel("Arrival to decision", "Time from a frame's arrival to the end of detection.", "s",
                  "EmberEyeFramesOld", _quantiles("embereye_camera_frame_delay_seconds", CAMERA_SHARDS), warning=0.15,
                  critical=0.5),
            Panel("Capture to decision",
                  "Time from a frame's capture, according to its sender.", "s", "EmberEyeFramesOld",
                  _quantiles("embereye_camera_frame_age_seconds", CAMERA_SHARDS), warning=0.5, critical=1.5,
                  needs="a sender that reports capture times"),
            Panel("Event loop lag", "Delay of due work in the event loop.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", CAMERA_SHARDS), warning=0.1, critical=0.25),
        )),
        Row("Failures", (
            Panel("Cameras degraded", "Cameras with limited detection.", "short",
                  "EmberEyeCameraDegraded",
                  (_per_shard("max", "embereye_camera_degraded", CAMERA_SHARDS),), "stat", 1, 1),
            Panel("Detector failures", "Frames per second on which a detector failed.", "cps",
                  "EmberEyeAnalysisFailing", line(_rate("embereye_camera_analysis_failures_total", CAMERA_SHARDS),
                                                  SHARD_NAME), warning=0.01, critical=1),
            Panel("Decoders replaced", "Decoders replaced since the shard started.", "short", "EmberEyeDecodersDying",
                  (_per_shard("max", "embereye_camera_decoders_died_total", CAMERA_SHARDS),), "stat", 1, 5),
            Panel("Clips waiting", "Clips of alarms that the hub does not have yet.", "short", "EmberEyeClipsFailing",
                  (_per_shard("max", "embereye_camera_clips_waiting", CAMERA_SHARDS),), warning=10, critical=100),
            Panel("Model", "Cores used by the fleet's model.", "short", "EmberEyeCameraDegraded",
                  line(_rate("embereye_camera_model_cpu_seconds_total", CAMERA_SHARDS), SHARD_NAME),
                  needs="spec.detection.model"),
            Panel("Hub reached", "1 while the shard is connected to the hub.", "short", "EmberEyeHubNotReached",
                  (_per_shard("min", "embereye_shard_hub_connected", CAMERA_SHARDS),), "stat", 1, 0.5),
        )),
    ),
)  # fmt: skip

SCALING = Dashboard(
    "scaling-explained", "EmberEye / Scaling explained", "The reasons for a fleet's number of shards.",
    ("namespace", "fleet"),
    (
        Row("Outcome", (
            Panel("Required, existing, ready",
                  "The number that the scaling law requires, and the existing shards.", "short",
                  "EmberEyeScalingStuck",
                  (Query(_fleet("required_shards"), f"required {FLEET_NAME}"),
                   Query(_fleet("shards"), f"existing {FLEET_NAME}"),
                   Query(_fleet("ready_shards"), f"ready {FLEET_NAME}"),
                   Query(_fleet("min_shards"), f"fewest {FLEET_NAME}"),
                   Query(_fleet("max_shards"), f"most {FLEET_NAME}")), width=16),
            Panel("Latest change", "Time since the number of shards was changed.", "s", "EmberEyeScalingFlapping",
                  line(f"time() - {_fleet('scaled_timestamp_seconds')}", FLEET_NAME), "stat", width=8,
                  needs="a change of the number of shards"),
        )),
        Row("Inputs of the law", (
            Panel("Arrivals", "λ: items per second.", "cps", "EmberEyeFleetAtMaximum",
                  line(_fleet("arrivals_per_second"), FLEET_NAME)),
            Panel("Cost of an item", "c: CPU time, measured.", "s", "EmberEyeFleetAtMaximum",
                  line(_fleet("item_cost_seconds"), FLEET_NAME)),
            Panel("Utilization and its target", "Share of a shard's capacity, mean over the shards.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  (Query(USED, FLEET_NAME),
                   Query(_fleet("target_utilization_ratio"), f"target {FLEET_NAME}")), critical=0.9, warning=0.8),
            Panel("Backlog", "Waiting items.", "short", "EmberEyeCompacting",
                  line(_fleet("queue_depth"), FLEET_NAME)),
            Panel("Oldest item", "Waiting time of the oldest item.", "s", "EmberEyeFramesOld",
                  line(_fleet("oldest_item_seconds"), FLEET_NAME), warning=1, critical=5),
            Panel("Lead", "Time until a new shard is ready, measured.", "s", "EmberEyeScalingStuck",
                  line(_fleet("lead_seconds"), FLEET_NAME), warning=30, critical=120),
        )),
        Row("Who decides", (
            Panel("Scaling follows the load",
                  "The condition ScalingActive; 0: another autoscaler or none scales the fleet.",
                  "short", "EmberEyeScalingBlind",
                  line(_fleet("condition", f'{F},condition="ScalingActive"'), FLEET_NAME), "stat"),
            Panel("Load is known", "The condition MetricsAvailable; if it is 0, the number of shards stays.",
                  "short", "EmberEyeScalingBlind",
                  line(_fleet("condition", f'{F},condition="MetricsAvailable"'), FLEET_NAME), "stat", 1, 0.5),
            Panel("Placement epoch", "Every step is a new placement: devices move to other shards.", "short",
                  "EmberEyeScalingFlapping", line(_fleet("placement_epoch"), FLEET_NAME)),
        )),
    ),
    scaling=True,
)  # fmt: skip

ALARMS = Dashboard(
    "alarms-coverage", "EmberEye / Alarms and coverage", "The promise: every device is watched; fires raise alarms.",
    ("namespace", "fleet"),
    (
        FIRES,
        Row(f"Coverage: {OBJECTIVE:.1%} of device time", (
            Panel("Coverage, 30 days", "Share of device time that was watched, as far back as data exists.",
                  "percentunit", "EmberEyeCoverageBurnsSlowly",
                  line(f"1 - avg_over_time({DARK}{{{F}}}[30d])", FLEET_NAME), "stat", OBJECTIVE + 0.0005, OBJECTIVE),
            Panel("Error budget left, 30 days", "The remaining part of the 0.1 % of device time that may be unwatched.",
                  "percentunit", "EmberEyeCoverageBurnsSlowly",
                  line(f"1 - avg_over_time({DARK}{{{F}}}[30d]) / {1 - OBJECTIVE:.4f}", FLEET_NAME), "stat", 0.5, 0.1),
            Panel("Burn rate",
                  "Use of the budget over an hour, as a multiple of the allowed rate; 14.4 raises an alert.",
                  "short", "EmberEyeCoverageBurnsFast",
                  line(f"avg_over_time({DARK}{{{F}}}[1h]) / {1 - OBJECTIVE:.4f}", FLEET_NAME), warning=6,
                  critical=14.4),
        )),
        Row("Two independent views", (
            Panel("Dark according to the operator", "From the shards' reports to it.", "short", "EmberEyeDevicesDark",
                  line(f"{_fleet('devices')} - {_fleet('devices_covered')}", FLEET_NAME), width=12, warning=1,
                  critical=1),
            Panel("Dark according to the hub", "Devices whose fault is open, of all hubs.", "short",
                  "EmberEyeDevicesDark", line(f"sum(embereye_hub_devices_dark{{{C}}})", "dark"), width=12,
                  warning=1, critical=1),
        )),
        Row("Alarms", (
            Panel("Zones by state", "All zones of all hubs.", "short", "EmberEyeHubDown",
                  line(f"sum by (state) (embereye_hub_zones{{{C}}})", "{{state}}"), width=12),
            Panel("Events", "Events per minute, by type.", "cpm", "EmberEyeHubDown",
                  line(f"sum by (type) (rate(embereye_hub_events_total{{{C}}}[{RATE}])) * 60", "{{type}}"), width=12),
            Panel("Reports received", "Evidence from shards per second; duplicates were sent again.", "cps",
                  "EmberEyeEvidenceWaiting",
                  (Query(f"sum(rate(embereye_hub_evidence_received_total{{{C}}}[{RATE}]))", "received"),
                   Query(f"sum(rate(embereye_hub_evidence_duplicate_total{{{C}}}[{RATE}]))", "duplicate"),
                   Query(f"sum(rate(embereye_hub_evidence_refused_total{{{C}}}[{RATE}]))", "refused"))),
            Panel("Reports waiting in shards", "Time since the hub's last acknowledgement, while reports wait.", "s",
                  "EmberEyeEvidenceWaiting",
                  (_per_shard("max", "embereye_shard_evidence_waiting_seconds", F),), warning=5, critical=30),
            Panel("False alarms a day", "Alarms marked as false, per device and day of the last 30 days, and the upper "
                  "95 % limit.", "short", "EmberEyeHubDown",
                  line(f"max by (kind, bound) (embereye_hub_false_alarms_per_device_day{{{C}}})",
                        "{{kind}}, {{bound}}")),
            Panel("Subscribers", "Subscribers of alarm feeds. Without any, nobody is notified live.", "short",
                  "EmberEyeHubDown", line(f"sum(embereye_hub_subscribers{{{C}}})", "subscribers")),
        )),
        Row("Canaries: synthetic fires along each shard's path to an alarm", (
            Panel("Canaries not alarmed", "Shards whose recent synthetic fires raised no alarm in time.", "short",
                  "EmberEyeCanaryNotAlarmed",
                  line(f"count(max by ({BY_FLEET}, shard) (embereye_canary_overdue{{{F}}}) == 1) or vector(0)"),
                  "stat", 1, 1),
            Panel("Since the latest canary", "Time since a shard's synthetic fire raised an alarm in time.", "s",
                  "EmberEyeCanaryNotAlarmed",
                  line(f"time() - max by ({BY_FLEET}, shard) (embereye_canary_alarmed_timestamp_seconds{{{F}}})",
                       SHARD_NAME)),
            Panel("From first sign to alarm", "Delay of synthetic fires. A camera's includes the seconds that flames "
                  "have to persist.", "s", "EmberEyeCanaryNotAlarmed",
                  _quantiles("embereye_canary_delay_seconds", f'{C},kind=~"sensors|cameras"', "kind"),
                  needs="canaries"),
        )),
    ),
    fires=True,
)  # fmt: skip

OPERATION = Dashboard(
    "operator-hub", "EmberEye / Operator and hub", "The processes that exist only once.", ("namespace", "fleet"),
    (
        Row("Operator", (
            Panel("Operators",
                  "Operators that answer, and that lead; exactly one should lead.", "short", "EmberEyeNoLeader",
                  (Query(f'sum(up{{{C},job="embereye-operator"}})', "answer"),
                   Query(f"sum(embereye_operator_leading{{{C}}})", "lead")), "stat"),
            Panel("Passes", "Passes per second.", "cps", "EmberEyeFleetNotReconciled",
                  line(f"sum by ({BY_FLEET}) (rate(embereye_operator_passes_total{{{F}}}[{RATE}]))", FLEET_NAME)),
            Panel("Passes that failed", "Failed passes per second.", "cps", "EmberEyePassesFailing",
                  line(f"sum by ({BY_FLEET}) (rate(embereye_operator_failures_total{{{F}}}[{RATE}]))", FLEET_NAME),
                  warning=0.01, critical=0.1),
            Panel("Time of a pass", "Mean time of a pass.", "s", "EmberEyeFleetNotReconciled",
                  line(f"sum by ({BY_FLEET}) (rate(embereye_operator_pass_seconds_total{{{F}}}[{RATE}])) / "
                       f"sum by ({BY_FLEET}) (rate(embereye_operator_passes_total{{{F}}}[{RATE}]))", FLEET_NAME)),
            Panel("Latest pass", "Time since the latest successful pass.", "s", "EmberEyeFleetNotReconciled",
                  line(f"min by ({BY_FLEET}) (embereye_fleet_pass_age_seconds{{{F}}})", FLEET_NAME), warning=60,
                  critical=300),
            Panel("Event loop lag", "Delay of due work in the operator's event loop.", "s",
                  "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", f'{C},job="embereye-operator"'), warning=0.1,
                  critical=0.25),
        )),
        Row("Hub", (
            Panel("Hub", "1 if every hub answers.", "short", "EmberEyeHubDown",
                  line(f'min(max by ({RELEASE}) (up{{{C},job="embereye-hub"}}))'),
                  "stat", 1, 0.5, 4),
            Panel("Database", "1 while it cannot be written.", "short", "EmberEyeHubStoreFailing",
                  line(f"max(embereye_hub_store_failing{{{C}}})"), "stat", 1, 1, 4),
            Panel("Database losses", "Damage or loss of the database that nobody has dismissed.", "short",
                  "EmberEyeHubDatabaseDamaged",
                  line(f"max(embereye_hub_database_losses{{{C}}})"), "stat", 1, 1, 4),
            Panel("Time to make a batch durable", "Mean time; evidence is acknowledged afterwards.", "s",
                  "EmberEyeHubStoreFailing",
                  line(f"sum(rate(embereye_hub_commit_seconds_sum{{{C}}}[{RATE}])) / "
                       f"(sum(rate(embereye_hub_commit_seconds_count{{{C}}}[{RATE}])) > 0)", "mean"), warning=0.05,
                  critical=0.5,
                  needs="evidence"),
            Panel("Feed",
                  "Subscribers, and the number of events that the slowest is behind.", "short", "EmberEyeHubDown",
                  (Query(f"sum(embereye_hub_subscribers{{{C}}})", "subscribers"),
                   Query(f"max(embereye_hub_subscriber_lag_events{{{C}}})", "behind"))),
            Panel("Shards connected", "Shards that send evidence and coverage.", "short", "EmberEyeHubNotReached",
                  line(f"sum(embereye_hub_shard_streams{{{C}}})", "shards")),
            Panel("Clocks that differ", "Shards whose clocks differ by more than 2 s.", "short", "EmberEyeClockSkew",
                  line(f"sum(embereye_hub_shard_clocks_wrong{{{C}}})"), "stat", 1, 1),
            Panel("Clips", "Disk space used by clips, and by margins, which explain why there was no alarm.", "bytes",
                  "EmberEyeClipsFailing",
                  (Query(f"sum(embereye_hub_clips_bytes{{{C}}})", "clips"),
                   Query(f"sum(embereye_hub_margins_bytes{{{C}}})", "margins"))),
            Panel("Webhooks behind", "Events that a webhook has not delivered yet.", "short", "EmberEyeWebhookFailing",
                  line(f"max by (webhook) (embereye_hub_webhook_behind_events{{{C}}})", "{{webhook}}"), warning=10,
                  critical=100, needs="a webhook"),
            Panel("Dead letters", "Events that a webhook dropped.", "short", "EmberEyeWebhookFailing",
                  line(f"sum by (webhook) (embereye_hub_webhook_dead_letters{{{C}}})", "{{webhook}}"), "stat", 1, 1,
                  needs="a webhook"),
            Panel("MQTT broker", "Topics whose current state the broker has not acknowledged.", "short",
                  "EmberEyeMqttDisconnected",
                  line(f"max(embereye_hub_mqtt_behind_topics{{{C}}})", "behind"), warning=10, critical=100,
                  needs="an MQTT broker"),
            *(panel for addon in addon_modules("monitoring") for panel in getattr(addon, "PANELS", ())),
        )),
        Row("Processes", (
            Panel("Memory", "Resident memory by process.", "bytes", "EmberEyeEventLoopSlow",
                  line(f'max by ({PROCESS}) (process_resident_memory_bytes{{{C},job=~"embereye-.*"}})',
                       "{{job}} {{shard}}")),
            Panel("Threads and descriptors",
                  "Threads and open file descriptors by process.", "short", "EmberEyeEventLoopSlow",
                  (Query(f"max by ({PROCESS}) (embereye_threads{{{C}}})", "threads {{job}} {{shard}}"),
                   Query(f'max by ({PROCESS}) (process_open_fds{{{C},job=~"embereye-.*"}})',
                         "descriptors {{job}} {{shard}}"))),
            Panel("Versions", "Processes by version.", "short", "EmberEyeFleetDegraded",
                  line(f"count by (version) (embereye_build_info{{{C}}})", "{{version}}")),
        )),
    ),
)  # fmt: skip

CAPACITY = Dashboard(
    "capacity", "EmberEye / Capacity", "The cost of an item, the spare capacity, and how long it lasts.",
    ("namespace", "fleet"),
    (
        Row("Headroom", (
            Panel("Headroom", "Unused share of all shards' capacity at target utilization.",
                  "percentunit", "EmberEyeFleetAtMaximum",
                  line(f"1 - {USED} / {_fleet('target_utilization_ratio')}", FLEET_NAME),
                  "stat", 0.3, 0.1),
            Panel("Headroom with all shards", "The same with the maximum number of shards.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  line(f"1 - ({USED} * {_fleet('shards')}) / "
                       f"({_fleet('target_utilization_ratio')} * {_fleet('max_shards')})", FLEET_NAME), "stat", 0.3,
                  0.1),
            Panel("More items per second until the maximum",
                  "Spare capacity before the fleet would need more than maxShards.",
                  "cps", "EmberEyeFleetAtMaximum",
                  line(f"({_fleet('target_utilization_ratio')} * {_fleet('shard_capacity_cores')} * "
                       f"{_fleet('max_shards')} - {_fleet('utilization_ratio')} * {_fleet('shards')}) / "
                       f"({_fleet('item_cost_seconds')} > 0)", FLEET_NAME), "stat"),
        )),
        Row("Cost", (
            Panel("Cost of an item", "CPU time of a shard for one reading, packet or frame.", "s",
                  "EmberEyeFleetAtMaximum",
                  (_per_shard("max", "embereye_shard_item_cost_seconds", F),), width=12),
            Panel("Cores in use", "Cores used by all shards of a fleet.", "short", "EmberEyeFleetAtMaximum",
                  line(f"sum by ({BY_FLEET}) (embereye_shard_utilization_ratio{{{F}}})", FLEET_NAME), width=12),
        )),
        Row("Days to the limit", (
            Panel("Hub's disk is full in",
                  "Days, from the trend of the last day; clips stop growing at their limit.", "d",
                  "EmberEyeDiskFilling",
                  line(f"min(embereye_hub_disk_free_bytes{{{C}}} / "
                       f"(-deriv(embereye_hub_disk_free_bytes{{{C}}}[1d]) > 0)) / 86400",
                       "days"), "stat", 30, 7, needs="a disk that fills"),
            Panel("Free disk space", "Free share of the disks.", "percentunit", "EmberEyeDiskFilling",
                  (Query(f"min(embereye_hub_disk_free_bytes{{{C}}} / embereye_hub_disk_size_bytes{{{C}}})", "hub"),
                   Query(f"min by ({BY_SHARD}) (embereye_shard_disk_free_bytes{{{F}}} / "
                         f"embereye_shard_disk_size_bytes{{{F}}})", SHARD_NAME)), warning=0.3, critical=0.15),
            Panel("All shards are in use in", "Days, from the trend of required shards over the last week.", "d",
                  "EmberEyeFleetAtMaximum",
                  line(f"({_fleet('max_shards')} - {_fleet('required_shards')}) / on ({BY_FLEET}) "
                       f"(max by ({BY_FLEET}) (deriv(embereye_fleet_required_shards{{{F}}}[7d])) > 0) / 86400",
                       FLEET_NAME), "stat", 30, 7, needs="load that grows"),
        )),
    ),
)  # fmt: skip

DASHBOARDS = (OVERVIEW, SENSOR, CAMERA, SCALING, ALARMS, OPERATION, CAPACITY)
