"""What each shard is told: its devices, its peers, its settings; and when the epoch grows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import (
    Assignment,
    CameraSettings,
    Commands,
    GasThresholds,
    HeatThresholds,
    Peer,
    PercentThresholds,
    SensorSettings,
)
from embereye.v1.types_pb2 import Device, Mask
from embereye_operator.model import (
    Camera,
    CameraFleetSpec,
    FlamePercent,
    Fleet,
    Sensor,
    SensorFleetSpec,
    SmokePercent,
)

OVERFLOW = {
    "compact": SensorSettings.OVERFLOW_COMPACT,
    "dropOldest": SensorSettings.OVERFLOW_DROP_OLDEST,
}


def build_device(device: Sensor | Camera, fleet: Fleet) -> Device:
    """The wire form of a declared device, the fleet's values where it has none of its own."""
    out = Device(id=device.id, zone=device.zone, location=device.location)
    if isinstance(device, Camera) and isinstance(fleet.spec, CameraFleetSpec):
        rate, own = fleet.spec.fps, device.fps
        out.source = device.source
        out.fps_target = (own and own.target) or max(rate.target, (own and own.min) or 0)
        out.fps_min = (own and own.min) or min(rate.min, out.fps_target)
        out.detectors.extend(device.detectors)
        out.masks.extend(
            Mask(x=[point.left for point in mask.points], y=[point.top for point in mask.points])
            for mask in device.masks
        )
        out.view = device.view
        out.credentials = device.credentials_ref.name if device.credentials_ref else ""
    return out


def build_settings(spec: SensorFleetSpec | CameraFleetSpec) -> SensorSettings | CameraSettings:
    """The fleet's settings, as its shards need them."""
    if isinstance(spec, CameraFleetSpec):
        return CameraSettings(
            deadline_ns=spec.deadline,
            flame_threshold=spec.detection.flame.threshold,
            smoke_threshold=spec.detection.smoke.threshold,
            detectors=spec.detection.detectors,
            evidence_before_ns=spec.evidence.before,
            evidence_after_ns=spec.evidence.after,
            evidence_retention_ns=spec.evidence.retention,
        )
    return SensorSettings(
        deadline_ns=spec.deadline,
        window_ns=spec.batching.window,
        max_items=spec.batching.max_items,
        queue_capacity=spec.queue.capacity,
        overflow=OVERFLOW[spec.queue.overflow],
        heat=HeatThresholds(
            pre_alarm_c=spec.thermal.pre_alarm_celsius,
            alarm_c=spec.thermal.alarm_celsius,
            critical_c=spec.thermal.critical_celsius,
            rise_c_per_min=spec.thermal.rise_celsius_per_minute,
            rise_allowance_c=spec.thermal.rise_allowance_celsius,
        ),
        gas=GasThresholds(
            pre_alarm_ppm=spec.gas.pre_alarm_ppm,
            alarm_ppm=spec.gas.alarm_ppm,
            load_kohm=spec.gas.load_kilohm,
            r0_kohm=spec.gas.clean_air_kilohm,
        ),
        smoke=_percent(spec.smoke),
        flame=_percent(spec.flame),
        emissivity=spec.thermal.emissivity,
        commands=Commands(
            start=spec.commands.start, calibration=spec.commands.calibration, request=spec.commands.request
        ),
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
) -> dict[str, Assignment]:
    """The assignment of every shard, by name.

    `members` are the shards that may own devices, with their addresses; `others` exist but own nothing: they are on
    their way in or out, and only learn where each device is. `holders` names, for devices that are being handed over,
    the shard that goes on watching until the new owner does: it has the device among its own *and* elsewhere.
    """
    holders = holders or {}
    settings = build_settings(fleet.spec)
    out = {}
    for shard in sorted({*members, *others}):
        assignment = Assignment(
            fleet=fleet.key,
            shard=shard,
            epoch=epoch,
            devices=[device for device in devices if shard in {placement.get(device.id), holders.get(device.id)}],
            peers=[peer for name, peer in sorted(members.items()) if name != shard],
            elsewhere={device: owner for device, owner in placement.items() if owner != shard},
        )
        if isinstance(settings, SensorSettings):
            assignment.sensor.CopyFrom(settings)
        else:
            assignment.camera.CopyFrom(settings)
        out[shard] = assignment
    return out


def build_roster(fleet: Fleet, devices: Sequence[Device], epoch: int) -> FleetRoster:
    """What the hub is told: which devices ought to be watched."""
    return FleetRoster(
        fleet=fleet.key,
        epoch=epoch,
        deadline_ns=fleet.spec.deadline,
        devices=[Device(id=device.id, zone=device.zone, location=device.location) for device in devices],
    )


def encode(assignment: Assignment) -> str:
    """Protobuf JSON, the same text for the same content."""
    return json.dumps(json_format.MessageToDict(assignment), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> Assignment | None:
    """The inverse; None where `text` is no assignment (somebody edited it)."""
    try:
        return json_format.Parse(text, Assignment(), ignore_unknown_fields=True)
    except json_format.ParseError:
        return None


def next_epoch(wanted: Mapping[str, Assignment], stored: Mapping[str, Assignment | None], floor: int) -> int:
    """The epoch of `wanted`: the stored one where nothing changed, one more than any known where something did.

    `floor` is the highest epoch known from elsewhere (status, shards): the store may have been lost or edited.
    A shard that is no longer wanted, or is new and owns nothing, is no change to the others: their epoch stays.
    """
    epochs = {kept.epoch for shard in wanted if (kept := stored.get(shard))}
    latest = max(epochs, default=0)
    same = len(epochs) == 1 and latest >= floor
    for shard, assignment in wanted.items():
        kept = stored.get(shard)
        if kept is None:
            same = same and shard not in stored and not assignment.devices
        elif _content(kept) != _content(assignment):
            same = False
    return latest if same else max(latest, floor) + 1


def _content(assignment: Assignment) -> dict[str, Any]:
    content = json_format.MessageToDict(assignment)
    content.pop("epoch", None)
    return content
