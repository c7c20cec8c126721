"""The assignments of shards: devices, peers and settings; and the rule for when the epoch grows.

`build_assignments` translates a fleet's manifest into the wire messages that shards get, in the placement ConfigMap and
by direct call. A device in hand-over is in the lists of two shards. All assignments of a fleet share one epoch.
`next_epoch` compares the new ones with the stored ones, and raises the epoch only if one differs or a device moved;
shards and the hub refuse an older epoch. Fields are never left to defaults of a shard, which refuses incomplete
settings.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from google.protobuf import json_format

from embereye.camera.sources.declared import redact
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import (
    AccessRules,
    Assignment,
    CameraSettings,
    Canary,
    Candidate,
    ClientCertificates,
    Commands,
    GasThresholds,
    HeatThresholds,
    Model,
    ModelClass,
    Peer,
    PercentThresholds,
    SensorSettings,
    SmokeScene,
)
from embereye.v1.types_pb2 import Area, Device, DigitalFlame, Kind, Mask, Radiometry
from embereye.v1.types_pb2 import SensorCalibration as Calibration
from embereye.wire.readings.source import SensorSource, encode_source
from embereye_operator.api.cameras import Camera, CameraFleetSpec, PictureMask
from embereye_operator.api.candidates import SensorDetection, with_thresholds
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.models import DetectionModel
from embereye_operator.api.sensors import (
    HEARTBEATS,
    TEMPLATE_HEARTBEATS,
    FlamePercent,
    Sensor,
    SensorCalibration,
    SensorFleetSpec,
    SmokePercent,
)
from embereye_operator.api.shared import DeviceAccess, Heat, MeasuringArea

MISSED_POLLS = 3  # readings of an http:// source that may fail before it is dark


def _value(enum: Any, name: str | None) -> Any:
    """Return the value of `enum` that a manifest calls `name`; the value 0 for None, and for "none"."""
    if name in {None, "none"}:
        return enum.values()[0]
    return enum.Value("_".join(re.findall("[A-Z]*[a-z0-9]+", f"{enum.DESCRIPTOR.name}_{name}")).upper())


def build_device(device: Sensor | Camera, fleet: Fleet) -> Device:
    """Build the wire form of a declared device, with the fleet's values as defaults."""
    out = Device(id=device.id, zone=device.zone, location=device.location, areas=map(_area, device.areas))
    if isinstance(device, Camera) and isinstance(fleet.spec, CameraFleetSpec):
        rate, limits = fleet.spec.fps, device.fps
        out.source = device.source
        if device.streams:
            out.detect_stream, out.record_stream = device.streams.detect, device.streams.record
        out.fps_target = (limits and limits.target) or max(rate.target, (limits and limits.min) or 0)
        out.fps_min = (limits and limits.min) or min(rate.min, out.fps_target)
        out.detectors.extend(device.detectors)
        out.masks.extend(map(_mask, device.masks))
        out.privacy_masks.extend(map(_mask, device.privacy_masks))
        out.view = device.view
        if device.radiometry:
            out.radiometry.CopyFrom(Radiometry(scale=device.radiometry.scale, offset=device.radiometry.offset))
        out.credentials = device.credentials_ref.name if device.credentials_ref else ""
    if isinstance(device, Sensor) and device.calibration is not None:
        out.calibration.CopyFrom(_calibration(device.calibration))
    if isinstance(device, Sensor) and device.source and isinstance(fleet.spec, SensorFleetSpec):
        broker = fleet.spec.mqtt
        out.source = encode_source(_sensor_source(device, broker.broker if broker else "mqtt:/"))
        if broker and broker.credentials_ref and device.source.startswith("mqtt:"):
            out.credentials = broker.credentials_ref.name
        elif device.credentials_ref:
            out.credentials = device.credentials_ref.name
    return out


def _area(area: MeasuringArea) -> Area:
    return Area(name=area.name, kind=_value(Area.Kind, area.kind), limit=area.limit, outline=_mask(area))


def _mask(region: PictureMask | MeasuringArea) -> Mask:
    return Mask(x=[point.left for point in region.points], y=[point.top for point in region.points])


def _sensor_source(sensor: Sensor, broker: str) -> SensorSource:
    template = sensor.template or "plain"
    heartbeat = sensor.heartbeat or TEMPLATE_HEARTBEATS[template]
    source = sensor.source or ""
    if source.startswith("modbus:"):
        server, _, unit = source.rpartition("/")
        return SensorSource(server, unit, template, sensor.fields, HEARTBEATS[heartbeat])
    if source == "push":
        return SensorSource("push://fleet", sensor.id, template, sensor.fields, HEARTBEATS[heartbeat])
    if source.startswith(("http:", "https:", "sound:")):
        url = urlsplit(source.replace("sound:", "sound+", 1))
        place = urlunsplit(("", "", url.path or "/", url.query, ""))
        interval = sensor.interval or 0
        allowed = HEARTBEATS[heartbeat] or MISSED_POLLS * interval
        return SensorSource(f"{url.scheme}://{url.netloc}", place, template, sensor.fields, allowed, interval)
    topic = source.partition(":")[2]
    return SensorSource(broker, topic, template, sensor.fields, HEARTBEATS[heartbeat])


def _calibration(declared: SensorCalibration) -> Calibration:
    return Calibration(
        emissivity=declared.emissivity or 0,
        converter_bits=declared.converter_bits or 0,
        load_kohm=declared.load_kilohm or 0,
        r0_kohm=declared.clean_air_kilohm or 0,
        supply_ratio=declared.supply_ratio or 0,
        digital_flame=_value(DigitalFlame, declared.digital_flame),
    )


def build_settings(spec: SensorFleetSpec | CameraFleetSpec) -> SensorSettings | CameraSettings:
    """Build the fleet's settings for its shards, complete with defaults, because shards refuse incomplete ones."""
    if (candidate := spec.detection.candidate) and candidate.promote:
        return _settings_of_candidate(spec)
    return build_camera_settings(spec) if isinstance(spec, CameraFleetSpec) else build_sensor_settings(spec)


def _settings_of_candidate(spec: SensorFleetSpec | CameraFleetSpec) -> SensorSettings | CameraSettings:
    settings = build_settings(as_candidate(spec))
    if isinstance(spec, CameraFleetSpec) and (candidate := spec.detection.candidate) and candidate.model:
        assert isinstance(settings, CameraSettings)
        settings.model.of_candidate = True
    return settings


def as_candidate(spec: SensorFleetSpec | CameraFleetSpec) -> SensorFleetSpec | CameraFleetSpec:
    """Return `spec` with the settings of its candidate in force."""
    if isinstance(spec, CameraFleetSpec):
        if (camera := spec.detection.candidate) is None:
            return spec
        detection = replace(
            spec.detection,
            **with_thresholds(spec.detection, camera.thresholds),
            model=camera.model or spec.detection.model,
            candidate=None,
        )
        return replace(spec, detection=detection)
    if (sensor := spec.detection.candidate) is None:
        return spec
    return replace(spec, **with_thresholds(spec, sensor.thresholds), detection=SensorDetection())


def build_candidate(spec: SensorFleetSpec | CameraFleetSpec) -> Candidate | None:
    """Build the settings of the fleet's candidate; None if there is none, or if it is in force."""
    declared = spec.detection.candidate
    if declared is None or declared.promote:
        return None
    settings, in_force = _settings_of_candidate(spec), build_settings(spec)
    both = [part.SerializeToString(deterministic=True) for part in (settings, in_force)]
    return Candidate(name=declared.name, id=hashlib.sha256(b"|".join(both)).hexdigest()[:12], **_named(settings))


def build_camera_settings(spec: CameraFleetSpec) -> CameraSettings:
    """Build a camera fleet's settings; `CameraFleetSpec()` gives the defaults."""
    return CameraSettings(
        deadline_ns=spec.deadline,
        flame_threshold=spec.detection.flame.threshold,
        smoke_threshold=spec.detection.smoke.threshold,
        smoke_scene=_value(SmokeScene, spec.detection.smoke.scene),
        key_frames_while_calm=spec.decoding.while_calm == "keyFrames",
        detectors=spec.detection.detectors,
        evidence_before_ns=spec.evidence.before,
        evidence_after_ns=spec.evidence.after,
        evidence_retention_ns=spec.evidence.retention,
        heat=_heat(spec.detection.heat),
        access=_access(spec.access) if spec.access else None,
        model=_model(spec.detection.model) if spec.detection.model else None,
    )


def build_sensor_settings(spec: SensorFleetSpec) -> SensorSettings:
    """Build a sensor fleet's settings; `SensorFleetSpec()` gives the defaults."""
    return SensorSettings(
        deadline_ns=spec.deadline,
        window_ns=spec.batching.window,
        max_items=spec.batching.max_items,
        queue_capacity=spec.queue.capacity,
        overflow=_value(SensorSettings.Overflow, spec.queue.overflow),
        heat=_heat(spec.thermal),
        gas=GasThresholds(
            pre_alarm_ppm=spec.gas.pre_alarm_ppm,
            alarm_ppm=spec.gas.alarm_ppm,
            load_kohm=spec.gas.load_kilohm,
            r0_kohm=spec.gas.clean_air_kilohm,
            supply_ratio=spec.gas.supply_ratio,
            curve_scale=spec.gas.curve.scale,
            curve_exponent=spec.gas.curve.exponent,
        ),
        smoke=_percent(spec.smoke),
        flame=_percent(spec.flame),
        emissivity=spec.thermal.emissivity,
        converter_bits=spec.converter.bits,
        digital_flame=_value(DigitalFlame, spec.flame.digital),
        commands=Commands(
            start=spec.commands.start, calibration=spec.commands.calibration, request=spec.commands.request
        ),
        access=_access(spec.access) if spec.access else None,
    )


def _access(declared: DeviceAccess) -> AccessRules:
    tokens = declared.tokens_ref.name if declared.tokens_ref else ""
    certificates = None
    if declared.tls and (clients := declared.tls.clients):
        certificates = ClientCertificates(
            field=_value(ClientCertificates.Field, clients.field), match=clients.match, gateways=clients.gateways
        )
    return AccessRules(open=declared.open, tokens=tokens, networks=declared.networks, certificates=certificates)


def _model(declared: DetectionModel) -> Model:
    place = declared.config_map_ref.key if declared.config_map_ref else ""
    if declared.volume_ref:
        place = declared.volume_ref.path
    return Model(
        path=declared.path or "",
        mounted=place,
        runtime=_value(Model.Runtime, declared.runtime),
        width=declared.input.width,
        height=declared.input.height,
        stretch=declared.input.fit == "stretch",
        bgr=declared.input.color == "BGR",
        scale=declared.input.scale,
        mean=declared.input.mean,
        std=declared.input.std,
        decoder=_value(Model.Decoder, declared.decoder),
        activation=_value(Model.Activation, declared.activation),
        classes=[
            ModelClass(index=entry.index, kind=_value(Kind, entry.kind), threshold=entry.threshold)
            for entry in declared.classes
        ],
        overlap=declared.overlap,
        every_ns=declared.every,
        idle_ns=declared.idle,
        budget_ns=declared.budget,
        alarm_ns=declared.alarm_after,
    )


def _heat(limits: Heat) -> HeatThresholds:
    return HeatThresholds(
        pre_alarm_c=limits.pre_alarm_celsius,
        alarm_c=limits.alarm_celsius,
        critical_c=limits.critical_celsius,
        rise_c_per_min=limits.rise_celsius_per_minute,
        rise_allowance_c=limits.rise_allowance_celsius,
    )


def _percent(thresholds: SmokePercent | FlamePercent) -> PercentThresholds:
    return PercentThresholds(pre_alarm=thresholds.pre_alarm_percent, alarm=thresholds.alarm_percent)


def build_assignments(
    fleet: Fleet,
    devices: Sequence[Device],
    placement: Mapping[str, str],
    *,
    members: Mapping[str, Peer],
    others: Sequence[str],
    epoch: int,
    holders: Mapping[str, str] | None = None,
    hub: str = "",
) -> dict[str, Assignment]:
    """Build the assignment of every shard, by name.

    `members` are the shards that can own devices, with their addresses. `others` exist without owning devices, because
    they are starting or leaving; they learn only where each device is. For devices in hand-over, `holders` names the
    shard that watches until the new owner does: it has the device in its own list *and* elsewhere. `hub` is the hub's
    IP address, if known. `located` adds the owners of other shards' devices, which is long and equal for all.
    """
    holders = holders or {}
    settings, candidate = build_settings(fleet.spec), build_candidate(fleet.spec)
    devices_of: dict[str | None, list[Device]] = defaultdict(list)
    for device in devices:
        for holder in {placement.get(device.id), holders.get(device.id)}:
            devices_of[holder].append(device)
    return {
        shard: Assignment(
            fleet=fleet.key,
            shard=shard,
            epoch=epoch,
            devices=devices_of[shard],
            peers=[peer for name, peer in sorted(members.items()) if name != shard],
            own=members.get(shard),
            hub=hub,
            canary=Canary(interval_ns=fleet.spec.canary.interval, within_ns=fleet.spec.canary.within),
            candidate=candidate,
            **_named(settings),
        )
        for shard in sorted({*members, *others})
    }


def _named(settings: SensorSettings | CameraSettings) -> dict[str, Any]:
    """Return `settings` under the name of their field in assignments and candidates."""
    return {"sensor" if isinstance(settings, SensorSettings) else "camera": settings}


def located(assignment: Assignment, placement: Mapping[str, str]) -> Assignment:
    """Return `assignment` with the owners of all devices of other shards."""
    out = Assignment(elsewhere={device: owner for device, owner in placement.items() if owner != assignment.shard})
    out.MergeFrom(assignment)
    return out


def build_roster(fleet: Fleet, devices: Sequence[Device], epoch: int) -> FleetRoster:
    """Build the roster for the hub: all declared devices, as the console shows them, without secrets."""
    return FleetRoster(
        fleet=fleet.key,
        epoch=epoch,
        deadline_ns=fleet.spec.deadline,
        open=fleet.spec.access is None or fleet.spec.access.open,
        devices=[
            Device(
                id=device.id, zone=device.zone, location=device.location, source=redact(device.source),
                credentials=device.credentials, masks=device.masks, privacy_masks=device.privacy_masks,
                areas=device.areas,
            )
            for device in devices
        ],
    )  # fmt: skip


def encode(assignment: Assignment) -> str:
    """Return Protobuf JSON: equal assignments give equal texts."""
    return json.dumps(json_format.MessageToDict(assignment), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> Assignment | None:
    """Parse the result of `encode`; None if `text` is no assignment, because somebody edited it."""
    try:
        assignment = json_format.Parse(text, Assignment(), ignore_unknown_fields=True)
    except json_format.ParseError:
        return None
    assignment.ClearField("elsewhere")  # stored by v0.1.0
    return assignment


def next_epoch(
    wanted: Mapping[str, Assignment], stored: Mapping[str, Assignment | None], floor: int, *, moved: bool = False
) -> int:
    """Return the epoch of `wanted`: the stored one if nothing changed, else the highest known epoch plus one.

    `floor` is the highest epoch known from elsewhere (status, shards): the store may have been lost or edited.
    `moved`: a device changed its owner, which is invisible in the assignments while both shards have it.
    A new shard without devices, or an unwanted one, does not change the others' epoch. The epochs in `wanted`
    are ignored.
    """
    epochs = {known.epoch for shard in wanted if (known := stored.get(shard))}
    latest = max(epochs, default=0)
    same = len(epochs) == 1 and latest >= floor and not moved
    for shard, assignment in wanted.items():
        known = stored.get(shard)
        if known is None:
            same = same and shard not in stored and not assignment.devices
        else:
            same = same and known == _with_epoch(assignment, known.epoch)
    return latest if same else max(latest, floor) + 1


def _with_epoch(assignment: Assignment, epoch: int) -> Assignment:
    copy = Assignment()
    copy.CopyFrom(assignment)
    copy.epoch = epoch
    return copy
