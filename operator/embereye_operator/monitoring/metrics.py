"""Registry of every exported metric: alerts and dashboards name only these; the source of docs/reference/metrics.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

OPERATOR, SENSOR, CAMERA, HUB = "operator", "sensor shard", "camera shard", "hub"
SHARDS = (SENSOR, CAMERA)
EVERYBODY = (OPERATOR, *SHARDS, HUB)
FLEET = ("namespace", "kind", "fleet")  # labels of the operator's metrics about a fleet; kind is sensors or cameras
SHARD = (*FLEET, "shard")  # added to every series of a shard during scraping
TARGET = ("job", "instance")  # added to every series by Prometheus


@dataclass(frozen=True)
class Metric:
    """A metric family. A counter's name ends in _total; a histogram's or summary's series add _bucket, _sum, _count."""

    name: str
    type: Literal["counter", "gauge", "histogram", "summary"]
    unit: str  # empty: a count, or 0 and 1
    labels: tuple[str, ...]  # set by the process
    help: str
    exporters: tuple[str, ...]
    only_where: str = ""  # the condition under which it exists, if it does not always

    @property
    def series(self) -> tuple[str, ...]:
        """Return the names of its series."""
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(self.type, ("",))
        return tuple(f"{self.name}{suffix}" for suffix in suffixes)


METRICS = (
    Metric(
        "embereye_fleet_alerts_enabled",
        "gauge",
        "",
        FLEET,
        "1 if the fleet's alerts are enabled (spec.alerts.enabled).",
        (OPERATOR,),
    ),
    Metric(
        "embereye_fleet_arrivals_per_second",
        "gauge",
        "1/s",
        FLEET,
        "Items arriving at all shards, as used for scaling.",
        (OPERATOR,),
    ),
    Metric("embereye_fleet_condition", "gauge", "", (*FLEET, "condition"), "1 if the condition is true.", (OPERATOR,)),
    Metric("embereye_fleet_devices", "gauge", "", FLEET, "Devices declared.", (OPERATOR,)),
    Metric("embereye_fleet_devices_covered", "gauge", "", FLEET, "Devices covered.", (OPERATOR,)),
    Metric(
        "embereye_fleet_item_cost_seconds",
        "gauge",
        "CPU seconds",
        FLEET,
        "CPU time per item, as used for scaling.",
        (OPERATOR,),
    ),
    Metric(
        "embereye_fleet_lead_seconds",
        "gauge",
        "seconds",
        FLEET,
        "Time until a new shard is ready, as used for scaling.",
        (OPERATOR,),
    ),
    Metric("embereye_fleet_max_shards", "gauge", "", FLEET, "Largest number of shards for scaling.", (OPERATOR,)),
    Metric("embereye_fleet_min_shards", "gauge", "", FLEET, "Smallest number of shards for scaling.", (OPERATOR,)),
    Metric(
        "embereye_fleet_oldest_item_seconds",
        "gauge",
        "seconds",
        FLEET,
        "Age of the oldest waiting item, as used for scaling.",
        (OPERATOR,),
    ),
    Metric(
        "embereye_fleet_pass_age_seconds",
        "gauge",
        "seconds",
        FLEET,
        "Time since the latest successful pass.",
        (OPERATOR,),
    ),
    Metric("embereye_fleet_paused", "gauge", "", FLEET, "1 if the fleet is paused (spec.paused).", (OPERATOR,)),
    Metric("embereye_fleet_placement_epoch", "gauge", "", FLEET, "Epoch of the placement.", (OPERATOR,)),
    Metric(
        "embereye_fleet_queue_depth",
        "gauge",
        "",
        FLEET,
        "Items waiting in all shards, as used for scaling.",
        (OPERATOR,),
    ),
    Metric("embereye_fleet_ready_shards", "gauge", "", FLEET, "Shards that follow the current placement.", (OPERATOR,)),
    Metric("embereye_fleet_required_shards", "gauge", "", FLEET, "Shards that the scaling law requires.", (OPERATOR,)),
    Metric(
        "embereye_fleet_scaled_timestamp_seconds",
        "gauge",
        "seconds since 1970",
        FLEET,
        "Time of the latest change of the number of shards.",
        (OPERATOR,),
    ),
    Metric(
        "embereye_fleet_shard_capacity_cores",
        "gauge",
        "cores",
        FLEET,
        "Cores that one shard can use, as used for scaling.",
        (OPERATOR,),
    ),
    Metric("embereye_fleet_shards", "gauge", "", FLEET, "Shards that exist.", (OPERATOR,)),
    Metric(
        "embereye_fleet_target_utilization_ratio",
        "gauge",
        "ratio",
        FLEET,
        "Target of scaling, as a share of a shard's capacity.",
        (OPERATOR,),
    ),
    Metric(
        "embereye_fleet_utilization_ratio",
        "gauge",
        "ratio",
        FLEET,
        "Share of one core in use, mean over the shards.",
        (OPERATOR,),
    ),
    Metric("embereye_operator_failures_total", "counter", "", FLEET, "Passes that failed.", (OPERATOR,)),
    Metric("embereye_operator_leading", "gauge", "", (), "1 if this replica leads and acts.", (OPERATOR,)),
    Metric("embereye_operator_pass_seconds_total", "counter", "seconds", FLEET, "Time spent in passes.", (OPERATOR,)),
    Metric("embereye_operator_passes_total", "counter", "", FLEET, "Reconcile passes.", (OPERATOR,)),
    Metric(
        "embereye_operator_writes_total",
        "counter",
        "",
        ("kind", "changed"),
        "Patches of objects, by kind and whether they changed the object.",
        (OPERATOR,),
        "the operator writes to a cluster's API server",
    ),
    Metric(
        "embereye_canary_interval_seconds",
        "gauge",
        "seconds",
        (),
        "Seconds between two synthetic fires; 0: none.",
        SHARDS,
    ),
    Metric("embereye_canary_sent_total", "counter", "", (), "Synthetic fires started.", SHARDS),
    Metric(
        "embereye_shard_arrivals_per_second",
        "gauge",
        "1/s",
        (),
        "Arriving items: packets and readings, or frames.",
        SHARDS,
    ),
    Metric(
        "embereye_shard_degraded",
        "gauge",
        "",
        (),
        "1 while it cannot do a requested task besides watching.",
        SHARDS,
    ),
    Metric("embereye_shard_devices", "gauge", "", (), "Devices this shard owns.", SHARDS),
    Metric("embereye_shard_devices_covered", "gauge", "", (), "Owned devices that are covered.", SHARDS),
    Metric(
        "embereye_shard_devices_without_series",
        "gauge",
        "",
        (),
        "Devices beyond the first 1000 of this shard, which have no separate series.",
        SHARDS,
    ),
    Metric(
        "embereye_shard_disk_free_bytes", "gauge", "bytes", (), "Free space of the file system with the data.", SHARDS
    ),
    Metric("embereye_shard_disk_size_bytes", "gauge", "bytes", (), "Size of the file system with the data.", SHARDS),
    Metric("embereye_shard_draining", "gauge", "", (), "1 while it hands its devices over.", SHARDS),
    Metric("embereye_shard_epoch", "gauge", "", (), "Epoch of the assignment in force.", SHARDS),
    Metric("embereye_shard_evidence_delivered_total", "counter", "", (), "Reports the hub made durable.", SHARDS),
    Metric("embereye_shard_evidence_dropped_total", "counter", "", (), "Reports lost to a full spool.", SHARDS),
    Metric("embereye_shard_evidence_spooled", "gauge", "", (), "Reports not yet acknowledged.", SHARDS),
    Metric(
        "embereye_shard_evidence_waiting_seconds",
        "gauge",
        "seconds",
        (),
        "Time in which the hub has acknowledged none of the waiting reports.",
        SHARDS,
    ),
    Metric("embereye_shard_hub_connected", "gauge", "", (), "1 while the hub is reachable.", SHARDS),
    Metric(
        "embereye_shard_item_cost_seconds",
        "gauge",
        "CPU seconds",
        (),
        "CPU time of the whole process per item analysed.",
        SHARDS,
    ),
    Metric(
        "embereye_shard_oldest_item_seconds",
        "gauge",
        "seconds",
        (),
        "Age of the item that has waited longest.",
        SHARDS,
    ),
    Metric("embereye_shard_queue_depth", "gauge", "", (), "Items waiting for analysis.", SHARDS),
    Metric("embereye_shard_utilization_ratio", "gauge", "ratio", (), "Share of one core in use.", SHARDS),
    Metric(
        "embereye_sensor_age_seconds",
        "gauge",
        "seconds",
        ("device", "zone"),
        "Seconds since the device was last heard.",
        (SENSOR,),
    ),
    Metric(
        "embereye_sensor_archive_failing",
        "gauge",
        "",
        (),
        "1 while the archive cannot be written.",
        (SENSOR,),
        "spec.telemetry.archive is true",
    ),
    Metric(
        "embereye_sensor_archive_items_total",
        "counter",
        "",
        ("outcome",),
        "Readings and frames for the archive.",
        (SENSOR,),
        "spec.telemetry.archive is true",
    ),
    Metric("embereye_sensor_connections", "gauge", "", (), "Open text connections.", (SENSOR,)),
    Metric(
        "embereye_sensor_damaged_frames",
        "gauge",
        "",
        ("device", "zone"),
        "Damaged thermal pixels and frames since the shard got the device.",
        (SENSOR,),
    ),
    Metric(
        "embereye_sensor_flame_ratio",
        "gauge",
        "ratio",
        ("device", "zone"),
        "Flame, share of the converter's range.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_garbage_total", "counter", "", ("reason",), "Invalid lines.", (SENSOR,)),
    Metric("embereye_sensor_gas_ppm", "gauge", "ppm", ("device", "zone"), "Gas, ppm CO2-equivalent.", (SENSOR,)),
    Metric(
        "embereye_sensor_latency_seconds",
        "histogram",
        "seconds",
        ("stage",),
        "Time of a tick's packets: `wait` from the first one's arrival to the tick, `analyse` the tick's work.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_packets_total", "counter", "", ("outcome",), "Packets by outcome.", (SENSOR,)),
    Metric(
        "embereye_sensor_recordings_delivered_total", "counter", "", (), "Recordings delivered to the hub.", (SENSOR,)
    ),
    Metric("embereye_sensor_recordings_failing", "gauge", "", (), "1 while no recording can be written.", (SENSOR,)),
    Metric(
        "embereye_sensor_recordings_left_out_total",
        "counter",
        "",
        (),
        "Signs that were not recorded because their device had enough recordings within an hour.",
        (SENSOR,),
    ),
    Metric(
        "embereye_sensor_recordings_made_total",
        "counter",
        "",
        (),
        "Recordings of sensors' data around a sign.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_recordings_waiting", "gauge", "", (), "Recordings waiting for the hub.", (SENSOR,)),
    Metric("embereye_sensor_rejected_total", "counter", "", ("reason",), "Packets rejected, by reason.", (SENSOR,)),
    Metric("embereye_sensor_relay_dropped_total", "counter", "", (), "Messages that could not be relayed.", (SENSOR,)),
    Metric(
        "embereye_sensor_relayed_total",
        "counter",
        "",
        (),
        "Messages relayed to the shard that owns their device.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_shed_total", "counter", "", ("reason",), "Packets shed, by reason.", (SENSOR,)),
    Metric(
        "embereye_sensor_smoke_ratio",
        "gauge",
        "ratio",
        ("device", "zone"),
        "Smoke, share of the converter's range.",
        (SENSOR,),
    ),
    Metric(
        "embereye_sensor_tls_handshakes_failed_total",
        "counter",
        "",
        (),
        "Text connections whose TLS handshake failed.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_streams", "gauge", "", (), "Open gRPC streams.", (SENSOR,)),
    Metric(
        "embereye_sensor_takeovers_total",
        "counter",
        "",
        (),
        "Times that a device's lines moved to another connection.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_temperature_max_celsius", "gauge", "°C", ("device", "zone"), "Hottest pixel.", (SENSOR,)),
    Metric(
        "embereye_sensor_temperature_mean_celsius",
        "gauge",
        "°C",
        ("device", "zone"),
        "Mean over all pixels.",
        (SENSOR,),
    ),
    Metric("embereye_sensor_ticks_total", "counter", "", (), "Ticks.", (SENSOR,)),
    Metric("embereye_sensor_waiting_bytes", "gauge", "bytes", (), "Bytes waiting for a tick.", (SENSOR,)),
    Metric(
        "embereye_camera_analysis_cpu_seconds_total",
        "counter",
        "CPU seconds",
        (),
        "CPU time of decoding and detection.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_analysis_failures_total", "counter", "", (), "Frames on which a detector failed.", (CAMERA,)
    ),
    Metric(
        "embereye_camera_clips_delivered_total", "counter", "", (), "Clips and stills stored by the hub.", (CAMERA,)
    ),
    Metric(
        "embereye_camera_clips_dropped_total",
        "counter",
        "",
        (),
        "Clips and stills dropped because the disk was full.",
        (CAMERA,),
    ),
    Metric("embereye_camera_clips_failing", "gauge", "", (), "1 while no clip can be written.", (CAMERA,)),
    Metric(
        "embereye_camera_clips_frames_left_out_total",
        "counter",
        "",
        (),
        "Frames left out of clips because the disk was too slow.",
        (CAMERA,),
    ),
    Metric("embereye_camera_clips_made_total", "counter", "", (), "Clips and stills recorded.", (CAMERA,)),
    Metric(
        "embereye_camera_clips_refused_total",
        "counter",
        "",
        (),
        "Clips and stills rejected by the hub for good.",
        (CAMERA,),
    ),
    Metric("embereye_camera_clips_waiting", "gauge", "", (), "Clips waiting to be delivered to the hub.", (CAMERA,)),
    Metric("embereye_camera_decoders", "gauge", "", (), "Decoder processes.", (CAMERA,)),
    Metric(
        "embereye_camera_decoders_busy_ratio",
        "gauge",
        "ratio",
        (),
        "Share of the last half second in which the decoders worked.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_decoders_died_total",
        "counter",
        "",
        (),
        "Decoder processes that ended and were replaced.",
        (CAMERA,),
    ),
    Metric("embereye_camera_degraded", "gauge", "", (), "Cameras with limited detection.", (CAMERA,)),
    Metric(
        "embereye_camera_device_shed_total",
        "counter",
        "",
        ("camera", "zone"),
        "Frames of one camera that were shed.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_frame_age_seconds",
        "histogram",
        "seconds",
        (),
        "From a frame's capture, by its sender's clock, to the end of its analysis.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_frame_delay_seconds",
        "histogram",
        "seconds",
        (),
        "From a frame's arrival to the end of its analysis.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_frames_analysed_total",
        "counter",
        "",
        (),
        "Frames analysed, or skipped because their scene is calm.",
        (CAMERA,),
    ),
    Metric("embereye_camera_frames_in_work", "gauge", "", (), "Frames being decoded or analysed.", (CAMERA,)),
    Metric("embereye_camera_frames_offered_total", "counter", "", (), "Frames received.", (CAMERA,)),
    Metric("embereye_camera_frames_rejected_total", "counter", "", ("reason",), "Unusable frames.", (CAMERA,)),
    Metric("embereye_camera_frames_shed_total", "counter", "", ("reason",), "Frames shed, by reason.", (CAMERA,)),
    Metric(
        "embereye_camera_frames_unread_total",
        "counter",
        "",
        (),
        "Frames left with their senders under overload, estimated. They do not count as offered.",
        (CAMERA,),
    ),
    Metric("embereye_camera_frames_waiting", "gauge", "", (), "Frames that wait for a decoder.", (CAMERA,)),
    Metric(
        "embereye_camera_loop_busy_ratio",
        "gauge",
        "ratio",
        (),
        "Share of the last half second in which the event loop ran or waited for a CPU.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_model_cpu_seconds_total",
        "counter",
        "CPU seconds",
        (),
        "CPU time of the model.",
        (CAMERA,),
        "spec.detection.model is set",
    ),
    Metric(
        "embereye_camera_model_runs_total",
        "counter",
        "",
        (),
        "Pictures analysed by the fleet's own model.",
        (CAMERA,),
        "spec.detection.model is set",
    ),
    Metric("embereye_camera_push_streams", "gauge", "", (), "Open push streams.", (CAMERA,)),
    Metric(
        "embereye_camera_rate_hertz",
        "gauge",
        "1/s",
        ("bound", "camera", "zone"),
        "Frames analysed per second: `in_force` now, `target` without overload, `least` at all times.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_hardware_decoding",
        "gauge",
        "",
        ("kind",),
        "1 if videos are decoded by the requested hardware, 0 if in software.",
        (CAMERA,),
        "spec.decoding.hardware is set",
    ),
    Metric(
        "embereye_camera_record_failing",
        "gauge",
        "",
        (),
        "Cameras whose record stream fails, so that their clips use the detect stream.",
        (CAMERA,),
    ),
    Metric(
        "embereye_camera_refused", "gauge", "", (), "Cameras refused because decoding capacity is missing.", (CAMERA,)
    ),
    Metric(
        "embereye_camera_slowed",
        "gauge",
        "",
        (),
        "Cameras analysed below their target rate because the shard is overloaded.",
        (CAMERA,),
    ),
    Metric("embereye_camera_sources", "gauge", "", ("state",), "Cameras by state of their source.", (CAMERA,)),
    Metric("embereye_camera_suspects", "gauge", "", (), "Cameras that suspect fire.", (CAMERA,)),
    Metric(
        "embereye_canary_alarmed_timestamp_seconds",
        "gauge",
        "seconds since 1970",
        SHARD,
        "Time at which the latest canary became an alarm in time.",
        (HUB,),
    ),
    Metric(
        "embereye_canary_delay_seconds",
        "histogram",
        "seconds",
        ("kind",),
        "Time from a canary's first sign until its alarm was durable.",
        (HUB,),
    ),
    Metric(
        "embereye_canary_late_total", "counter", "", (), "Canaries that became alarms after their time limit.", (HUB,)
    ),
    Metric(
        "embereye_canary_overdue",
        "gauge",
        "",
        SHARD,
        "1 if no canary became an alarm in time for one interval plus its time limit.",
        (HUB,),
    ),
    Metric("embereye_canary_received_total", "counter", "", (), "Reports of canaries.", (HUB,)),
    Metric(
        "embereye_canary_shards_without_series",
        "gauge",
        "",
        (),
        "Shards beyond the first 1000, which have no separate series.",
        (HUB,),
    ),
    Metric("embereye_hub_clips", "gauge", "", (), "Clips and stills that are stored.", (HUB,)),
    Metric("embereye_hub_clips_bytes", "gauge", "bytes", (), "Bytes of all clips and stills.", (HUB,)),
    Metric("embereye_hub_clips_failing", "gauge", "", (), "1 while no clip can be written.", (HUB,)),
    Metric(
        "embereye_hub_clips_removed_total",
        "counter",
        "",
        (),
        "Clips removed because of their age or for lack of room.",
        (HUB,),
    ),
    Metric("embereye_hub_control_actuators", "gauge", "", (), "Actuators that are connected.", (HUB,)),
    Metric("embereye_hub_control_actuators_silent", "gauge", "", (), "Connected actuators that are silent.", (HUB,)),
    Metric("embereye_hub_control_commands_total", "counter", "", (), "Commands that took effect.", (HUB,)),
    Metric("embereye_hub_control_controllers", "gauge", "", (), "Controllers that steer an actuator.", (HUB,)),
    Metric(
        "embereye_hub_control_fallbacks_total",
        "counter",
        "",
        (),
        "Times that safe values replaced a controller's.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_control_missed_total",
        "counter",
        "",
        (),
        "Commands that missed their deadline.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_control_refused_total",
        "counter",
        "",
        (),
        "Control sessions that ended because of an invalid message.",
        (HUB,),
    ),
    Metric("embereye_hub_control_states_total", "counter", "", (), "States that actuators sent.", (HUB,)),
    Metric("embereye_hub_associations", "gauge", "", (), "Associations that are open.", (HUB,)),
    Metric("embereye_hub_associations_refused_total", "counter", "", (), "Associations that were refused.", (HUB,)),
    Metric(
        "embereye_hub_commit_failures_total", "counter", "", (), "Attempts to write the database that failed.", (HUB,)
    ),
    Metric(
        "embereye_hub_commit_seconds",
        "summary",
        "seconds",
        (),
        "Time from starting a batch until it is durable.",
        (HUB,),
    ),
    Metric("embereye_hub_cursor", "gauge", "", (), "Cursor of the newest event.", (HUB,)),
    Metric("embereye_hub_database_losses", "gauge", "", (), "Losses of the database in database-losses.txt.", (HUB,)),
    Metric("embereye_hub_devices", "gauge", "", (), "Devices that are declared.", (HUB,)),
    Metric("embereye_hub_devices_covered", "gauge", "", (), "Devices that are covered.", (HUB,)),
    Metric("embereye_hub_devices_dark", "gauge", "", (), "Devices that are dark: their fault is open.", (HUB,)),
    Metric(
        "embereye_hub_disk_free_bytes", "gauge", "bytes", (), "Free space of the file system with the data.", (HUB,)
    ),
    Metric("embereye_hub_disk_size_bytes", "gauge", "bytes", (), "Size of the file system with the data.", (HUB,)),
    Metric("embereye_hub_events_total", "counter", "", ("type",), "Alarm events.", (HUB,)),
    Metric("embereye_hub_evidence_duplicate_total", "counter", "", (), "Reports that were duplicates.", (HUB,)),
    Metric(
        "embereye_hub_evidence_received_total",
        "counter",
        "",
        (),
        "Reports received from shards, including duplicates.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_access_refused_total",
        "counter",
        "",
        (),
        "Requests and calls without a valid token or session.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_evidence_refused_total",
        "counter",
        "",
        (),
        "Reports refused while the database could not be written.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_evidence_unusable_total",
        "counter",
        "",
        (),
        "Reports without an id, which cannot be acknowledged.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_packets_total",
        "counter",
        "",
        ("fleet", "outcome"),
        "Messages of a fleet's devices by outcome, over all owners, past and present.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_rows_unreadable_total",
        "counter",
        "",
        (),
        "Stored rows that could not be read and were skipped.",
        (HUB,),
    ),
    Metric("embereye_hub_shard_clocks_wrong", "gauge", "", (), "Shards whose clock differs by more than 2 s.", (HUB,)),
    Metric("embereye_hub_shard_streams", "gauge", "", (), "Shards that are connected.", (HUB,)),
    Metric("embereye_hub_store_failing", "gauge", "", (), "1 while the database cannot be written.", (HUB,)),
    Metric(
        "embereye_hub_subscriber_lag_events", "gauge", "", (), "Events that the slowest subscriber is behind.", (HUB,)
    ),
    Metric("embereye_hub_subscribers", "gauge", "", (), "Subscribers of the alarm feeds.", (HUB,)),
    Metric(
        "embereye_hub_events_pushed_total",
        "counter",
        "",
        (),
        "Events pushed to subscribers that keep up, counted once for each subscriber.",
        (HUB,),
    ),
    Metric("embereye_hub_bus_failing", "gauge", "", (), "1 while the stream in NATS accepts no reports.", (HUB,)),
    Metric("embereye_hub_bus_failures_total", "counter", "", (), "Connections to NATS that failed or broke.", (HUB,)),
    Metric("embereye_hub_bus_published_total", "counter", "", (), "Reports that the stream acknowledged.", (HUB,)),
    Metric(
        "embereye_hub_bus_waiting_reports",
        "gauge",
        "",
        (),
        "Reports in the stream that this hub has not read.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_mqtt_behind_topics",
        "gauge",
        "",
        (),
        "Topics whose current state the broker has not acknowledged.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_mqtt_connected",
        "gauge",
        "",
        (),
        "1 while the hub is connected to the MQTT broker.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_mqtt_failures_total", "counter", "", (), "Connections to the broker that failed or broke.", (HUB,)
    ),
    Metric("embereye_hub_mqtt_published_total", "counter", "", (), "Messages that the broker acknowledged.", (HUB,)),
    Metric(
        "embereye_hub_webhook_attempts_total",
        "counter",
        "",
        ("webhook", "outcome"),
        "Attempts to deliver events.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_webhook_behind_events",
        "gauge",
        "",
        ("webhook",),
        "Events that the webhook has not reached yet.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_webhook_dead_letters",
        "gauge",
        "",
        ("webhook",),
        "Events that the webhook gave up and that were not sent again.",
        (HUB,),
    ),
    Metric(
        "embereye_hub_webhook_failing",
        "gauge",
        "",
        ("webhook",),
        "1 while the webhook's latest attempt failed.",
        (HUB,),
    ),
    Metric("embereye_hub_zones", "gauge", "", ("state",), "Zones.", (HUB,)),
    Metric("embereye_hub_zones_testing", "gauge", "", (), "Zones under test.", (HUB,)),
    Metric("embereye_build_info", "gauge", "", ("version",), "Always 1; the version is a label.", EVERYBODY),
    Metric(
        "embereye_certificate_expiration_timestamp_seconds",
        "gauge",
        "seconds since the Unix epoch",
        ("ports",),
        "Expiry of the process's certificate.",
        EVERYBODY,
        "control: of processes with --identity; of operators only the leader; open: of processes that serve TLS for "
        "devices or people",
    ),
    Metric(
        "embereye_event_loop_lag_seconds",
        "histogram",
        "seconds",
        (),
        "Delay with which the event loop woke its probe.",
        EVERYBODY,
    ),
    Metric(
        "embereye_grpc_malformed_total",
        "counter",
        "",
        (),
        "gRPC calls refused because a message was not valid protobuf.",
        EVERYBODY,
    ),
    Metric("embereye_threads", "gauge", "", (), "Threads of the process.", EVERYBODY),
    Metric(
        "process_cpu_seconds_total",
        "counter",
        "CPU seconds",
        (),
        "Total user and system CPU time spent in seconds.",
        EVERYBODY,
    ),
    Metric("process_max_fds", "gauge", "", (), "Maximum number of open file descriptors.", EVERYBODY),
    Metric("process_open_fds", "gauge", "", (), "Number of open file descriptors.", EVERYBODY),
    Metric("process_resident_memory_bytes", "gauge", "bytes", (), "Resident memory size in bytes.", EVERYBODY),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "seconds",
        (),
        "Start time of the process since unix epoch in seconds.",
        EVERYBODY,
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
BY_SERIES = {series: metric for metric in METRICS for series in metric.series}

LABELS = {
    "namespace": "the fleet's",
    "kind": "`sensors` or `cameras`; for `embereye_operator_writes_total`: the object's kind",
    "changed": "`true`, `false`",
    "fleet": "its name; for `embereye_hub_packets_total`: NAMESPACE/KIND/NAME",
    "shard": "its name",
    "condition": "`Ready`, `Progressing`, `Degraded`, `Covered`, `ScalingActive`, `MetricsAvailable`",
    "device": "its id, as declared",
    "camera": "its id, as declared",
    "zone": "as declared",
    "ports": "`control`: ports for EmberEye's processes; `open`: ports for devices or people",
    "reason": "a few words from a fixed set",
    "outcome": "`offered`, `analysed`, `duplicate`, `shed`, `rejected`; for the archive: `written`, `dropped`; for a "
    "webhook: `delivered`, `failed`",
    "webhook": "its name, as declared",
    "stage": "`wait`, `analyse`",
    "state": "for a zone: `normal`, `pre_alarm`, `alarm`, `acknowledged`, …; for a source: `streaming`, …",
    "type": "`state`, `fault`, `fault_cleared`, `test`, `evidence`",
    "bound": "`in_force`, `target`, `least`",
    "version": "EmberEye's version",
}


INTRODUCTION = """\
# Metrics

The operator, the hub and every shard serve these metrics at `/metrics`. [grafana.md](../how-to/grafana.md) describes
how Prometheus gets them. `make monitoring` writes this page from the registry that alerts and dashboards use.

Units are base units. A name that ends in `_total` is a counter: it only grows, until its process restarts. A histogram
has `_bucket`, `_sum` and `_count`, a summary `_sum` and `_count`.

A shard's series have no name of the shard. Scraping adds `namespace`, `kind`, `fleet` and `shard`, so that they can be
compared with the operator's series about the fleet. Only the first 1,000 devices of a shard have series with a `device`
or `camera` label; `embereye_shard_devices_without_series` counts the others.
"""


def page() -> str:
    """Return the content of docs/reference/metrics.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.rstrip()
    for title, exporters in (
        ("Fleets, by the operator", (OPERATOR,)),
        ("Every shard", SHARDS),
        ("Sensor shards", (SENSOR,)),
        ("Camera shards", (CAMERA,)),
        ("The hub", (HUB,)),
        ("Every process", EVERYBODY),
    ):
        yield ""
        yield f"## {title}"
        yield "| metric | type | unit | labels | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        yield from _rows([metric for metric in METRICS if metric.exporters == exporters])
    yield ""
    yield "## Labels"
    yield "| label | values |"
    yield "| --- | --- |"
    for label, text in LABELS.items():
        yield f"| `{label}` | {text} |"


def _rows(metrics: Sequence[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        text = metric.help + (f" Only where {metric.only_where}." if metric.only_where else "")
        yield f"| `{metric.name}` | {metric.type} | {metric.unit} | {labels} | {text} |"
