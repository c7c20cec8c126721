"""Every dashboard as data: what each panel asks, in which unit, what it means and where the runbook is."""

from dataclasses import dataclass
from typing import Literal

from embereye_operator.monitoring.alerts import DARK, OBJECTIVE, RELEASE
from embereye_operator.monitoring.alerts import FLEET as BY_FLEET

# What the variables of a dashboard select: of everything, and of what is a fleet's.
C = 'cluster=~"$cluster"'
F = f'{C},namespace=~"$namespace",fleet=~"$fleet"'
SENSORS = f'{F},kind="sensors"'
CAMERAS = f'{F},kind="cameras"'
SENSOR_SHARDS = f'{SENSORS},shard=~"$shard"'
CAMERA_SHARDS = f'{CAMERAS},shard=~"$shard"'
# Shards are called after their fleet, and devices as people like: each namespace may have the same.
BY_SHARD = "cluster, namespace, shard"
PLACE, PROCESS = "cluster, namespace", "cluster, namespace, job, shard, instance"
FLEET_NAME, SHARD_NAME = "{{namespace}}/{{fleet}} {{kind}} {{cluster}}", "{{namespace}}/{{shard}} {{cluster}}"
DEVICE_NAME = "{{namespace}} {{device}} {{zone}} {{cluster}}"
CAMERA_NAME = "{{namespace}} {{camera}} {{zone}} {{cluster}}"
RATE = "$__rate_interval"


@dataclass(frozen=True)
class Query:
    """One expression, and how its series are called."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel; `alert` is the one whose runbook helps with what it shows."""

    title: str
    description: str
    unit: str  # as Grafana calls it
    alert: str
    queries: tuple[Query, ...]
    form: Literal["timeseries", "stat", "table"] = "timeseries"
    warning: float | None = None  # from here on yellow, red from `critical`; falling where critical < warning
    critical: float | None = None
    width: int = 8  # of 24
    # What has to happen before it shows anything.
    needs: str = ""


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; its file and uid are called after `name`."""

    name: str
    title: str
    description: str
    variables: tuple[Literal["namespace", "fleet", "sensor shard", "camera shard"], ...]
    rows: tuple[Row, ...]
    scaling: bool = False  # mark changes of the number of shards


def _fleet(metric: str, selector: str = F) -> str:
    return f"max by ({BY_FLEET}) (embereye_fleet_{metric}{{{selector}}})"


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


def _one(expression: str, legend: str = "") -> tuple[Query, ...]:
    return (Query(expression, legend),)


# A shard's share of what it can use, which may be more than one core or less.
USED = f"({_fleet('utilization_ratio')} / {_fleet('shard_capacity_cores')})"

OVERVIEW = Dashboard(
    "fleet-overview", "EmberEye / Fleet overview", "Is everything watched, and what burns?", ("namespace", "fleet"),
    (
        Row("Now", (
            Panel("Zones in alarm", "Zones whose alarm nobody has acknowledged yet, of all hubs.", "short",
                  "EmberEyeHubDown", _one(f'sum(embereye_hub_zones{{{C},state="alarm"}})'), "stat", 1, 1, 4),
            Panel("Zones with a pre-alarm", "Zones with a first sign of fire, of all hubs.", "short", "EmberEyeHubDown",
                  _one(f'sum(embereye_hub_zones{{{C},state="pre_alarm"}})'), "stat", 1, None, 4),
            Panel("Devices that are dark", "Declared devices that are not watched right now.", "short",
                  "EmberEyeDevicesDark", _one(f"sum({_fleet('devices')} - {_fleet('devices_covered')})"), "stat",
                  1, 1, 4),
            Panel("Devices covered", "Share of declared devices that are watched.", "percentunit",
                  "EmberEyeDevicesDark", _one(f"sum({_fleet('devices_covered')}) / sum({_fleet('devices')})"),
                  "stat", 1.0, 0.999, 4),
            Panel("Shards that work", "Shards that work under the placement in force, of those that exist.",
                  "percentunit", "EmberEyeFleetNotReady",
                  _one(f"sum({_fleet('ready_shards')}) / sum({_fleet('shards')})"), "stat", 1.0, 0.5, 4),
            Panel("Alerts", "EmberEye's alerts that fire.", "short", "EmberEyeFleetDegraded",
                  _one(f'count(ALERTS{{{C},alertname=~"EmberEye.*",alertstate="firing"}}) or vector(0)'), "stat",
                       1, 5, 4),
        )),
        Row("Fleets", (
            Panel("Dark devices by fleet", "A line above zero is a fleet with devices that nobody watches.", "short",
                  "EmberEyeDevicesDark", _one(f"{_fleet('devices')} - {_fleet('devices_covered')}", FLEET_NAME),
                  warning=1, critical=1, width=12),
            Panel("Shards by fleet", "Shards that work under the placement in force.", "short",
                  "EmberEyeFleetNotReady", _one(_fleet("ready_shards"), FLEET_NAME), width=12),
            Panel("Conditions", "1 where a condition is true. Ready, Covered and MetricsAvailable are to be 1, "
                  "Degraded is to be 0.", "short", "EmberEyeFleetDegraded",
                  _one(f"max by ({BY_FLEET}, condition) (embereye_fleet_condition{{{F}}})"), "table", width=12),
            Panel("What arrives", "Readings, packets and frames a second, over all shards of a fleet.", "cps",
                  "EmberEyeFleetAtMaximum", _one(_fleet("arrivals_per_second"), FLEET_NAME), width=12),
        )),
        Row("What people are told", (
            Panel("Alarm events", "Events a minute that subscribers were told, by type.", "cpm", "EmberEyeHubDown",
                  _one(f"sum by (type) (rate(embereye_hub_events_total{{{C}}}[{RATE}])) * 60", "{{type}}"), width=12),
            Panel("Zones by state", "Of all zones of all hubs.", "short", "EmberEyeHubDown",
                  _one(f"sum by (state) (embereye_hub_zones{{{C}}})", "{{state}}"), width=12),
        )),
    ),
)  # fmt: skip

SENSOR = Dashboard(
    "sensor-shard", "EmberEye / Sensor shard", "What sensors send and what becomes of it, shard by shard.",
    ("namespace", "fleet", "sensor shard"),
    (
        Row("Coverage and load", (
            Panel("Devices owned and covered", "What a shard owns, and what of it is watched.", "short",
                  "EmberEyeDevicesDark",
                  (Query(f"sum by ({BY_SHARD}) (embereye_shard_devices{{{SENSOR_SHARDS}}})", f"owned {SHARD_NAME}"),
                   Query(f"sum by ({BY_SHARD}) (embereye_shard_devices_covered{{{SENSOR_SHARDS}}})",
                         f"covered {SHARD_NAME}"))),
            Panel("Processor", "Share of one core in use; a sensor shard has one event loop.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  _one(f"max by ({BY_SHARD}) (embereye_shard_utilization_ratio{{{SENSOR_SHARDS}}})", SHARD_NAME),
                  warning=0.7, critical=0.9),
            Panel("Connections", "Open text connections and gRPC streams.", "short", "EmberEyeDevicesDark",
                  (Query(f"sum by ({BY_SHARD}) (embereye_sensor_connections{{{SENSOR_SHARDS}}})", f"text {SHARD_NAME}"),
                   Query(f"sum by ({BY_SHARD}) (embereye_sensor_streams{{{SENSOR_SHARDS}}})", f"gRPC {SHARD_NAME}"))),
        )),
        Row("What becomes of packets", (
            Panel("Packets", "By what became of them: offered = analysed + shed + duplicate + rejected.", "cps",
                  "EmberEyeSensorsShedding", _one(_rate("embereye_sensor_packets_total", SENSOR_SHARDS, "outcome"),
                                                  "{{outcome}}")),
            Panel("Given up", "Packets that were not analysed one by one, by reason; compacted ones were summarised.",
                  "cps", "EmberEyeCompacting", _one(_rate("embereye_sensor_shed_total", SENSOR_SHARDS, "reason"),
                                                    "{{reason}}"), needs="overload"),
            Panel("Refused", "Packets and lines that were of no use, by reason.", "cps", "EmberEyeSensorsShedding",
                  (Query(_rate("embereye_sensor_rejected_total", SENSOR_SHARDS, "reason"), "{{reason}}"),
                   Query(_rate("embereye_sensor_garbage_total", SENSOR_SHARDS, "reason"), "line: {{reason}}")),
                  needs="a device that sends nonsense"),
        )),
        Row("Time", (
            Panel("Wait for the tick", "From the first packet of a tick to its start.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_sensor_latency_seconds", f'{SENSOR_SHARDS},stage="wait"'), warning=0.1,
                  critical=0.5),
            Panel("Work of a tick", "Parsing and analysis of what came since the one before.", "s",
                  "EmberEyeEventLoopSlow",
                  _quantiles("embereye_sensor_latency_seconds", f'{SENSOR_SHARDS},stage="analyse"'), warning=0.05,
                  critical=0.2),
            Panel("Event loop lag", "How late the event loop comes back to what is due.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", SENSOR_SHARDS), warning=0.1, critical=0.25),
        )),
        Row("Measurements", (
            Panel("Hottest pixels", "The ten devices that see the hottest pixel. 57 °C is the usual alarm threshold.",
                  "celsius", "EmberEyeDevicesDark",
                  _one(f"topk(10, max by ({PLACE}, device, zone) "
                       f"(embereye_sensor_temperature_max_celsius{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=47, critical=57),
            Panel("Gas", "The ten highest values, ppm CO₂-equivalent.", "ppm", "EmberEyeDevicesDark",
                  _one(f"topk(10, max by ({PLACE}, device, zone) (embereye_sensor_gas_ppm{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=2000, critical=5000),
            Panel("Silence", "The ten devices that were heard the longest time ago.", "s", "EmberEyeDevicesDark",
                  _one(f"topk(10, max by ({PLACE}, device, zone) (embereye_sensor_age_seconds{{{SENSOR_SHARDS}}}))",
                       DEVICE_NAME), warning=2, critical=5),
        )),
        Row("Reports to the hub", (
            Panel("Hub reached", "1 while the shard has its stream to the hub.", "short", "EmberEyeHubNotReached",
                  _one(f"min by ({BY_SHARD}) (embereye_shard_hub_connected{{{SENSOR_SHARDS}}})", SHARD_NAME), "stat",
                  1, 0.5),
            Panel("Reports waiting", "Not acknowledged yet; 20,000 fit.", "short", "EmberEyeSpoolFilling",
                  _one(f"max by ({BY_SHARD}) (embereye_shard_evidence_spooled{{{SENSOR_SHARDS}}})", SHARD_NAME),
                  warning=1000, critical=10000),
            Panel("Reports lost", "Given up because the spool was full, since the shard started.", "short",
                  "EmberEyeEvidenceLost",
                  _one(f"max by ({BY_SHARD}) (embereye_shard_evidence_dropped_total{{{SENSOR_SHARDS}}})", SHARD_NAME),
                  "stat", 1, 1),
        )),
    ),
)  # fmt: skip

CAMERA = Dashboard(
    "camera-shard", "EmberEye / Camera shard", "What cameras deliver, how much of it is looked at, and how soon.",
    ("namespace", "fleet", "camera shard"),
    (
        Row("Coverage and load", (
            Panel("Cameras by state", "Of their source.", "short", "EmberEyeDevicesDark",
                  _one(f"sum by (state) (embereye_camera_sources{{{CAMERA_SHARDS}}})", "{{state}}")),
            Panel("Decoders at work", "Cores that decoding and detection take, and decoders there are.", "short",
                  "EmberEyeDecodingSaturated",
                  (Query(_rate("embereye_camera_analysis_cpu_seconds_total", CAMERA_SHARDS), f"cores {SHARD_NAME}"),
                   Query(f"sum by ({BY_SHARD}) (embereye_camera_decoders{{{CAMERA_SHARDS}}})",
                         f"decoders {SHARD_NAME}"))),
            Panel("How busy", "Share of their time that decoders and event loop are busy; beside a neighbour "
                  "waiting"
                  " for a processor counts.", "percentunit", "EmberEyeCamerasShedding",
                  (Query(f"max by ({BY_SHARD}) (embereye_camera_decoders_busy_ratio{{{CAMERA_SHARDS}}})",
                         f"decoders {SHARD_NAME}"),
                   Query(f"max by ({BY_SHARD}) (embereye_camera_loop_busy_ratio{{{CAMERA_SHARDS}}})",
                         f"loop {SHARD_NAME}"))),
            Panel("Cameras slowed", "Looked at less often than they are to be.", "short", "EmberEyeCamerasShedding",
                  _one(f"max by ({BY_SHARD}) (embereye_camera_slowed{{{CAMERA_SHARDS}}})", SHARD_NAME)),
            Panel("Cameras refused", "Not looked at at all for want of decoding.", "short",
                  "EmberEyeDecodingSaturated",
                  _one(f"max by ({BY_SHARD}) (embereye_camera_refused{{{CAMERA_SHARDS}}})", SHARD_NAME), "stat",
                       1, 1, 4),
            Panel("Suspects", "Cameras that suspect fire right now.", "short", "EmberEyeHubDown",
                  _one(f"sum(embereye_camera_suspects{{{CAMERA_SHARDS}}})"), "stat", 1, None, 4),
        )),
        Row("Frames", (
            Panel("Received and analysed", "Frames a second.", "cps", "EmberEyeCamerasShedding",
                  (Query(_rate("embereye_camera_frames_offered_total", CAMERA_SHARDS), f"received {SHARD_NAME}"),
                   Query(_rate("embereye_camera_frames_analysed_total", CAMERA_SHARDS), f"analysed {SHARD_NAME}"))),
            Panel("Given up", "By reason. `above target rate` is as asked for; overload and superseded are not.",
                  "cps", "EmberEyeCamerasShedding",
                  _one(_rate("embereye_camera_frames_shed_total", CAMERA_SHARDS, "reason"), "{{reason}}"),
                  needs="a camera that sends more than is looked at"),
            Panel("Of no use", "Frames that could not be decoded, by reason.", "cps", "EmberEyeDevicesDark",
                  _one(_rate("embereye_camera_frames_rejected_total", CAMERA_SHARDS, "reason"), "{{reason}}"),
                  needs="a camera that sends broken frames"),
            Panel("Frames in the pool", "Waiting for a decoder, and in work.", "short", "EmberEyeFramesOld",
                  (Query(f"sum by ({BY_SHARD}) (embereye_camera_frames_waiting{{{CAMERA_SHARDS}}})",
                         f"waiting {SHARD_NAME}"),
                   Query(f"sum by ({BY_SHARD}) (embereye_camera_frames_in_work{{{CAMERA_SHARDS}}})",
                         f"in work {SHARD_NAME}"))),
            Panel("Lowest rates", "The ten cameras that are looked at least often.", "hertz",
                  "EmberEyeCamerasShedding",
                  _one(f"bottomk(10, max by ({PLACE}, camera, zone) "
                       f'(embereye_camera_rate_hertz{{{CAMERA_SHARDS},bound="in_force"}}))', CAMERA_NAME)),
            Panel("Most frames given up", "The ten cameras that lose most.", "cps", "EmberEyeCamerasShedding",
                  _one(f"topk(10, sum by ({PLACE}, camera, zone) "
                       f"(rate(embereye_camera_device_shed_total{{{CAMERA_SHARDS}}}[{RATE}])))",
                       CAMERA_NAME)),
        )),
        Row("Time", (
            Panel("Arrival to decision", "How long frames take through decoding and detection.", "s",
                  "EmberEyeFramesOld", _quantiles("embereye_camera_frame_delay_seconds", CAMERA_SHARDS), warning=0.15,
                  critical=0.5),
            Panel("Capture to decision", "The same from the moment that the sender names.", "s", "EmberEyeFramesOld",
                  _quantiles("embereye_camera_frame_age_seconds", CAMERA_SHARDS), warning=0.5, critical=1.5,
                  needs="a sender that says when a frame was taken"),
            Panel("Event loop lag", "How late the event loop comes back to what is due.", "s", "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", CAMERA_SHARDS), warning=0.1, critical=0.25),
        )),
        Row("What fails", (
            Panel("Cameras degraded", "In which less is detected than was asked for.", "short",
                  "EmberEyeCameraDegraded",
                  _one(f"max by ({BY_SHARD}) (embereye_camera_degraded{{{CAMERA_SHARDS}}})", SHARD_NAME), "stat", 1, 1),
            Panel("Detector failures", "Frames on which a detector failed, a second.", "cps",
                  "EmberEyeAnalysisFailing", _one(_rate("embereye_camera_analysis_failures_total", CAMERA_SHARDS),
                                                  SHARD_NAME), warning=0.01, critical=1),
            Panel("Decoders replaced", "Since the shard started.", "short", "EmberEyeDecodersDying",
                  _one(f"max by ({BY_SHARD}) (embereye_camera_decoders_died_total{{{CAMERA_SHARDS}}})", SHARD_NAME),
                  "stat", 1, 5),
            Panel("Clips waiting", "Pictures of alarms that the hub has not got.", "short", "EmberEyeClipsFailing",
                  _one(f"max by ({BY_SHARD}) (embereye_camera_clips_waiting{{{CAMERA_SHARDS}}})", SHARD_NAME),
                  warning=10, critical=100),
            Panel("Model", "Cores that the fleet's own model takes.", "short", "EmberEyeCameraDegraded",
                  _one(_rate("embereye_camera_model_cpu_seconds_total", CAMERA_SHARDS), SHARD_NAME),
                  needs="spec.detection.model"),
            Panel("Hub reached", "1 while the shard has its stream to the hub.", "short", "EmberEyeHubNotReached",
                  _one(f"min by ({BY_SHARD}) (embereye_shard_hub_connected{{{CAMERA_SHARDS}}})", SHARD_NAME), "stat",
                  1, 0.5),
        )),
    ),
)  # fmt: skip

SCALING = Dashboard(
    "scaling-explained", "EmberEye / Scaling explained", "Why a fleet has as many shards as it has.",
    ("namespace", "fleet"),
    (
        Row("Outcome", (
            Panel("Required, there, ready", "What the scaling law asks for, against what there is.", "short",
                  "EmberEyeScalingStuck",
                  (Query(_fleet("required_shards"), f"required {FLEET_NAME}"),
                   Query(_fleet("shards"), f"there {FLEET_NAME}"),
                   Query(_fleet("ready_shards"), f"ready {FLEET_NAME}"),
                   Query(_fleet("min_shards"), f"fewest {FLEET_NAME}"),
                   Query(_fleet("max_shards"), f"most {FLEET_NAME}")), width=16),
            Panel("Latest change", "Since the number of shards was changed.", "s", "EmberEyeScalingFlapping",
                  _one(f"time() - {_fleet('scaled_timestamp_seconds')}", FLEET_NAME), "stat", width=8,
                  needs="a change of the number of shards"),
        )),
        Row("Inputs of the law", (
            Panel("Arrivals", "λ: items a second.", "cps", "EmberEyeFleetAtMaximum",
                  _one(_fleet("arrivals_per_second"), FLEET_NAME)),
            Panel("Cost of an item", "c: processor time, measured.", "s", "EmberEyeFleetAtMaximum",
                  _one(_fleet("item_cost_seconds"), FLEET_NAME)),
            Panel("Utilization and its target", "Of what a shard can use, mean over the shards.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  (Query(USED, FLEET_NAME),
                   Query(_fleet("target_utilization_ratio"), f"target {FLEET_NAME}")), critical=0.9, warning=0.8),
            Panel("Backlog", "Items that wait.", "short", "EmberEyeCompacting",
                  _one(_fleet("queue_depth"), FLEET_NAME)),
            Panel("Oldest item", "How long the longest waiting one has waited.", "s", "EmberEyeFramesOld",
                  _one(_fleet("oldest_item_seconds"), FLEET_NAME), warning=1, critical=5),
            Panel("Lead", "Time until a new shard is ready, measured.", "s", "EmberEyeScalingStuck",
                  _one(_fleet("lead_seconds"), FLEET_NAME), warning=30, critical=120),
        )),
        Row("Who decides", (
            Panel("Scaling follows the load", "The condition ScalingActive; 0: somebody else scales, or nobody.",
                  "short", "EmberEyeScalingBlind",
                  _one(_fleet("condition", f'{F},condition="ScalingActive"'), FLEET_NAME), "stat"),
            Panel("Load is known", "The condition MetricsAvailable; without it the number of shards is held.",
                  "short", "EmberEyeScalingBlind",
                  _one(_fleet("condition", f'{F},condition="MetricsAvailable"'), FLEET_NAME), "stat", 1, 0.5),
            Panel("Placement epoch", "Every step is a new placement: devices change hands.", "short",
                  "EmberEyeScalingFlapping", _one(_fleet("placement_epoch"), FLEET_NAME)),
        )),
    ),
    scaling=True,
)  # fmt: skip

ALARMS = Dashboard(
    "alarms-coverage", "EmberEye / Alarms and coverage", "The promise: everything is watched, and fires are told.",
    ("namespace", "fleet"),
    (
        Row(f"Coverage: {OBJECTIVE:.1%} of device time", (
            Panel("Coverage, 30 days", "Share of device time that was watched, as far back as there is data.",
                  "percentunit", "EmberEyeCoverageBurnsSlowly",
                  _one(f"1 - avg_over_time({DARK}{{{F}}}[30d])", FLEET_NAME), "stat", OBJECTIVE + 0.0005, OBJECTIVE),
            Panel("Error budget left, 30 days", "What is left of the 0.1 % of device time that may go unwatched.",
                  "percentunit", "EmberEyeCoverageBurnsSlowly",
                  _one(f"1 - avg_over_time({DARK}{{{F}}}[30d]) / {1 - OBJECTIVE:.4f}", FLEET_NAME), "stat", 0.5, 0.1),
            Panel("Burn rate", "How many times faster than allowed the budget is used, over an hour; 14.4 alerts.",
                  "short", "EmberEyeCoverageBurnsFast",
                  _one(f"avg_over_time({DARK}{{{F}}}[1h]) / {1 - OBJECTIVE:.4f}", FLEET_NAME), warning=6,
                  critical=14.4),
        )),
        Row("Two independent views", (
            Panel("Dark, says the operator", "By what shards report to it.", "short", "EmberEyeDevicesDark",
                  _one(f"{_fleet('devices')} - {_fleet('devices_covered')}", FLEET_NAME), width=12, warning=1,
                  critical=1),
            Panel("Dark, says the hub", "Devices whose fault is open, of all hubs.", "short",
                  "EmberEyeDevicesDark", _one(f"sum(embereye_hub_devices_dark{{{C}}})", "dark"), width=12,
                  warning=1, critical=1),
        )),
        Row("Alarms", (
            Panel("Zones by state", "Of all zones of all hubs.", "short", "EmberEyeHubDown",
                  _one(f"sum by (state) (embereye_hub_zones{{{C}}})", "{{state}}"), width=12),
            Panel("Events", "A minute, by type.", "cpm", "EmberEyeHubDown",
                  _one(f"sum by (type) (rate(embereye_hub_events_total{{{C}}}[{RATE}])) * 60", "{{type}}"), width=12),
            Panel("Reports received", "Evidence that shards sent, a second; duplicates are resends.", "cps",
                  "EmberEyeEvidenceWaiting",
                  (Query(f"sum(rate(embereye_hub_evidence_received_total{{{C}}}[{RATE}]))", "received"),
                   Query(f"sum(rate(embereye_hub_evidence_duplicate_total{{{C}}}[{RATE}]))", "duplicate"),
                   Query(f"sum(rate(embereye_hub_evidence_refused_total{{{C}}}[{RATE}]))", "refused"))),
            Panel("Reports waiting in shards", "Since when the hub has acknowledged none, where some wait.", "s",
                  "EmberEyeEvidenceWaiting",
                  _one(f"max by ({BY_SHARD}) (embereye_shard_evidence_waiting_seconds{{{F}}})", SHARD_NAME), warning=5,
                  critical=30),
            Panel("Subscribers", "Of alarm feeds. Where there are none, nobody is told live.", "short",
                  "EmberEyeHubDown", _one(f"sum(embereye_hub_subscribers{{{C}}})", "subscribers")),
        )),
        Row("Canaries: synthetic fires through each shard's own path", (
            Panel("Canaries not alarmed", "Shards of which no synthetic fire was an alarm in time lately.", "short",
                  "EmberEyeCanaryNotAlarmed",
                  _one(f"count(max by ({BY_FLEET}, shard) (embereye_canary_overdue{{{F}}}) == 1) or vector(0)"),
                  "stat", 1, 1),
            Panel("Since the latest canary", "How long ago a shard's synthetic fire was an alarm in time.", "s",
                  "EmberEyeCanaryNotAlarmed",
                  _one(f"time() - max by ({BY_FLEET}, shard) (embereye_canary_alarmed_timestamp_seconds{{{F}}})",
                       SHARD_NAME)),
            Panel("From first sign to alarm", "Of synthetic fires. A camera's includes the seconds in which flames "
                  "have to persist.", "s", "EmberEyeCanaryNotAlarmed",
                  _quantiles("embereye_canary_delay_seconds", f'{C},kind=~"sensors|cameras"', "kind"),
                  needs="canaries"),
        )),
    ),
)  # fmt: skip

OPERATION = Dashboard(
    "operator-hub", "EmberEye / Operator and hub", "The two that there are one of.", ("namespace", "fleet"),
    (
        Row("Operator", (
            Panel("Operators", "That answer, and that lead; exactly one leads.", "short", "EmberEyeNoLeader",
                  (Query(f'sum(up{{{C},job="embereye-operator"}})', "answer"),
                   Query(f"sum(embereye_operator_leading{{{C}}})", "lead")), "stat"),
            Panel("Passes", "Reconcile passes a second.", "cps", "EmberEyeFleetNotReconciled",
                  _one(f"sum by ({BY_FLEET}) (rate(embereye_operator_passes_total{{{F}}}[{RATE}]))", FLEET_NAME)),
            Panel("Passes that failed", "A second.", "cps", "EmberEyePassesFailing",
                  _one(f"sum by ({BY_FLEET}) (rate(embereye_operator_failures_total{{{F}}}[{RATE}]))", FLEET_NAME),
                  warning=0.01, critical=0.1),
            Panel("Time of a pass", "Mean.", "s", "EmberEyeFleetNotReconciled",
                  _one(f"sum by ({BY_FLEET}) (rate(embereye_operator_pass_seconds_total{{{F}}}[{RATE}])) / "
                       f"sum by ({BY_FLEET}) (rate(embereye_operator_passes_total{{{F}}}[{RATE}]))", FLEET_NAME)),
            Panel("Latest pass", "How long ago it succeeded.", "s", "EmberEyeFleetNotReconciled",
                  _one(f"min by ({BY_FLEET}) (embereye_fleet_pass_age_seconds{{{F}}})", FLEET_NAME), warning=60,
                  critical=300),
            Panel("Event loop lag", "How late the operator's event loop comes back to what is due.", "s",
                  "EmberEyeEventLoopSlow",
                  _quantiles("embereye_event_loop_lag_seconds", f'{C},job="embereye-operator"'), warning=0.1,
                  critical=0.25),
        )),
        Row("Hub", (
            Panel("Hub", "1 where it answers, and of several where each does.", "short", "EmberEyeHubDown",
                  _one(f'min(max by ({RELEASE}) (up{{{C},job="embereye-hub"}}))'),
                  "stat", 1, 0.5, 4),
            Panel("Database", "1 while it cannot be written.", "short", "EmberEyeHubStoreFailing",
                  _one(f"max(embereye_hub_store_failing{{{C}}})"), "stat", 1, 1, 4),
            Panel("Time to make a batch durable", "Mean; evidence is acknowledged after it.", "s",
                  "EmberEyeHubStoreFailing",
                  _one(f"sum(rate(embereye_hub_commit_seconds_sum{{{C}}}[{RATE}])) / "
                       f"(sum(rate(embereye_hub_commit_seconds_count{{{C}}}[{RATE}])) > 0)", "mean"), warning=0.05,
                  critical=0.5,
                  needs="evidence"),
            Panel("Feed", "Subscribers, and how many events the slowest is behind.", "short", "EmberEyeHubDown",
                  (Query(f"sum(embereye_hub_subscribers{{{C}}})", "subscribers"),
                   Query(f"max(embereye_hub_subscriber_lag_events{{{C}}})", "behind"))),
            Panel("Shards connected", "That send evidence and coverage.", "short", "EmberEyeHubNotReached",
                  _one(f"sum(embereye_hub_shard_streams{{{C}}})", "shards")),
            Panel("Clocks that differ", "Of shards, by more than 2 s.", "short", "EmberEyeClockSkew",
                  _one(f"sum(embereye_hub_shard_clocks_wrong{{{C}}})"), "stat", 1, 1),
            Panel("Clips", "Room that clips take.", "bytes", "EmberEyeClipsFailing",
                  _one(f"sum(embereye_hub_clips_bytes{{{C}}})", "clips")),
            Panel("Webhooks behind", "Events that a webhook has not delivered.", "short", "EmberEyeWebhookFailing",
                  _one(f"max by (webhook) (embereye_hub_webhook_behind_events{{{C}}})", "{{webhook}}"), warning=10,
                  critical=100, needs="a webhook"),
            Panel("Dead letters", "Events that a webhook gave up.", "short", "EmberEyeWebhookFailing",
                  _one(f"sum by (webhook) (embereye_hub_webhook_dead_letters{{{C}}})", "{{webhook}}"), "stat", 1, 1,
                  needs="a webhook"),
            Panel("Evidence in NATS", "Reports in the stream that the hub has not read.", "short",
                  "EmberEyeHubBusFailing", _one(f"max(embereye_hub_bus_waiting_reports{{{C}}})", "waiting"),
                  warning=100, critical=10_000, needs="hub.nats"),
            Panel("MQTT broker", "Topics whose current state the broker has not acknowledged.", "short",
                  "EmberEyeMqttDisconnected",
                  _one(f"max(embereye_hub_mqtt_behind_topics{{{C}}})", "behind"), warning=10, critical=100,
                  needs="an MQTT broker"),
            Panel("Control deadlines", "Share of actuators' States that were not answered in time.", "percentunit",
                  "EmberEyeControlDeadlinesMissed",
                  _one(f"sum(rate(embereye_hub_control_missed_total{{{C}}}[{RATE}])) / "
                       f"(sum(rate(embereye_hub_control_states_total{{{C}}}[{RATE}])) > 0)", "missed"), warning=0.001,
                  critical=0.01, needs="an actuator"),
        )),
        Row("Processes", (
            Panel("Memory", "Resident, by process.", "bytes", "EmberEyeEventLoopSlow",
                  _one(f'max by ({PROCESS}) (process_resident_memory_bytes{{{C},job=~"embereye-.*"}})',
                       "{{job}} {{shard}}")),
            Panel("Threads and descriptors", "By process.", "short", "EmberEyeEventLoopSlow",
                  (Query(f"max by ({PROCESS}) (embereye_threads{{{C}}})", "threads {{job}} {{shard}}"),
                   Query(f'max by ({PROCESS}) (process_open_fds{{{C},job=~"embereye-.*"}})',
                         "descriptors {{job}} {{shard}}"))),
            Panel("Versions", "Processes by version.", "short", "EmberEyeFleetDegraded",
                  _one(f"count by (version) (embereye_build_info{{{C}}})", "{{version}}")),
        )),
    ),
)  # fmt: skip

CAPACITY = Dashboard(
    "capacity", "EmberEye / Capacity", "What an item costs, how much room there is, and for how long it lasts.",
    ("namespace", "fleet"),
    (
        Row("Headroom", (
            Panel("Headroom", "Share of what all shards could do, at target utilization, that is not used.",
                  "percentunit", "EmberEyeFleetAtMaximum",
                  _one(f"1 - {USED} / {_fleet('target_utilization_ratio')}", FLEET_NAME),
                  "stat", 0.3, 0.1),
            Panel("Headroom with all shards", "The same where the fleet had grown to its maximum.", "percentunit",
                  "EmberEyeFleetAtMaximum",
                  _one(f"1 - ({USED} * {_fleet('shards')}) / "
                       f"({_fleet('target_utilization_ratio')} * {_fleet('max_shards')})", FLEET_NAME), "stat", 0.3,
                  0.1),
            Panel("More items a second until the maximum", "Before the fleet needs more shards than it may have.",
                  "cps", "EmberEyeFleetAtMaximum",
                  _one(f"({_fleet('target_utilization_ratio')} * {_fleet('shard_capacity_cores')} * "
                       f"{_fleet('max_shards')} - {_fleet('utilization_ratio')} * {_fleet('shards')}) / "
                       f"({_fleet('item_cost_seconds')} > 0)", FLEET_NAME), "stat"),
        )),
        Row("Cost", (
            Panel("Cost of an item", "Processor time of a shard for one reading, packet or frame.", "s",
                  "EmberEyeFleetAtMaximum",
                  _one(f"max by ({BY_SHARD}) (embereye_shard_item_cost_seconds{{{F}}})", SHARD_NAME), width=12),
            Panel("Cores in use", "Of all shards of a fleet.", "short", "EmberEyeFleetAtMaximum",
                  _one(f"sum by ({BY_FLEET}) (embereye_shard_utilization_ratio{{{F}}})", FLEET_NAME), width=12),
        )),
        Row("Days to the limit", (
            Panel("Hub's disk is full in", "By the trend of the last day; clips stop growing at their own limit.", "d",
                  "EmberEyeDiskFilling",
                  _one(f"min(embereye_hub_disk_free_bytes{{{C}}} / "
                       f"(-deriv(embereye_hub_disk_free_bytes{{{C}}}[1d]) > 0)) / 86400",
                       "days"), "stat", 30, 7, needs="a disk that fills"),
            Panel("Room on disks", "Share that is free.", "percentunit", "EmberEyeDiskFilling",
                  (Query(f"min(embereye_hub_disk_free_bytes{{{C}}} / embereye_hub_disk_size_bytes{{{C}}})", "hub"),
                   Query(f"min by ({BY_SHARD}) (embereye_shard_disk_free_bytes{{{F}}} / "
                         f"embereye_shard_disk_size_bytes{{{F}}})", SHARD_NAME)), warning=0.3, critical=0.15),
            Panel("All shards are in use in", "Days, by the trend of required shards over the last week.", "d",
                  "EmberEyeFleetAtMaximum",
                  _one(f"({_fleet('max_shards')} - {_fleet('required_shards')}) / on ({BY_FLEET}) "
                       f"(max by ({BY_FLEET}) (deriv(embereye_fleet_required_shards{{{F}}}[7d])) > 0) / 86400",
                       FLEET_NAME), "stat", 30, 7, needs="load that grows"),
        )),
    ),
)  # fmt: skip

DASHBOARDS = (OVERVIEW, SENSOR, CAMERA, SCALING, ALARMS, OPERATION, CAPACITY)
