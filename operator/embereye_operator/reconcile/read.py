"""The input of a pass: the fleet's children, its devices and the reports of its shards.

`read_snapshot` asks all shards at once, and reads the rest from the runtime. The resource versions of the objects are
the key: if none has changed, the fleet's memory supplies the results of the last pass, and no object is unpacked. An
unreadable device list leaves its former devices declared, and a Secret without its owner's permission only removes the
credentials of its cameras. Both become problems for the status.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from embereye.units import listed
from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.fleets import DeclaredDevices, Fleet, read_devices
from embereye_operator.api.schema import Manifest
from embereye_operator.api.status import FleetStatus
from embereye_operator.decide.cluster.pods import why_refused
from embereye_operator.decide.device_lists import ListedDevice, Lists, decode_lists, encode_lists, lists_of, read_lists
from embereye_operator.decide.exposure import Exposure, read_exposure
from embereye_operator.decide.fleet_memory import FleetMemory, PassInputs
from embereye_operator.decide.hubs import NamedHub, UnknownHubError, choose_hub
from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.decide.manifests.names import LABEL_ALLOWED
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.placement.assignments import build_device
from embereye_operator.decide.placement.record import PlacementRecord, recover
from embereye_operator.decide.snapshot import Identity, Snapshot
from embereye_operator.decide.status import read_status
from embereye_operator.reconcile.context import Context, Problems
from embereye_operator.runtime.interface import Cluster, Links

OFFERED = ("NetworkPolicy", "HorizontalPodAutoscaler", "ScaledObject", TOLERANCE, "GRPCRoute", "TCPRoute")


async def read_snapshot(fleet: Fleet, now: int, context: Context) -> Snapshot:
    """Read the fleet's state at `now`.

    Unchanged parts come from the fleet's memory, which also records the shards' answers.
    """
    runtime, memory = context.runtime, context.memory
    versions = await runtime.world.versions(fleet)
    previous = _previous_status(fleet, memory)
    record, existing, refused = await _read_placement(fleet, versions, context)
    statuses = await ask_shards(fleet, runtime.links, list(dict.fromkeys([*existing, *record.shards])))
    devices, incomplete, unknown, problems = await _read_devices(fleet, versions, previous, statuses, context)
    devices, withheld, not_allowed = await _withhold_secrets(fleet, devices, context)
    memory.note_predecessor({device.id for device in devices}, previous)
    memory.note_statuses(statuses, now, runtime.cluster.statements(fleet, statuses) if runtime.cluster else None)
    hub, hub_unknown = _choose_hub(fleet, context.settings)
    snapshot = Snapshot(
        fleet=fleet,
        now=now,
        previous=previous,
        versions=versions,
        record=recover(record, statuses),
        existing=existing,
        devices=devices,
        incomplete=incomplete,
        unknown_lists=unknown,
        declared_by=(*memory.declared[0], withheld) if memory.declared[0] else (),
        statuses=statuses,
        weights=memory.weights({device.id for device in devices}),
        offered=[kind for kind in OFFERED if runtime.world.is_offered(kind)],
        waiting=refused,
        hub=hub,
        hub_epoch=runtime.links.hub_epoch(fleet, hub.name) if hub else 0,
        is_reaching_people=runtime.links.is_reaching_people(hub.name) if hub else None,
        problems={**problems, **not_allowed, **hub_unknown},
    )
    return _in_cluster(snapshot, runtime.cluster) if runtime.cluster else snapshot


def _in_cluster(snapshot: Snapshot, cluster: Cluster) -> Snapshot:
    fleet, hub = snapshot.fleet, snapshot.hub
    return replace(
        snapshot,
        waiting={**cluster.waiting(fleet), **snapshot.waiting},
        displaced=cluster.displaced(fleet),
        can_see_nodes=cluster.can_see_nodes,
        rivals=cluster.rivals(fleet),
        hub_address=cluster.hub_address(hub.name) if hub else "",
    )


def _choose_hub(fleet: Fleet, settings: Settings) -> tuple[NamedHub | None, Problems]:
    try:
        return choose_hub(fleet, NamedHub("", settings.hub), settings.hubs), {}
    except UnknownHubError as error:
        return None, {"HubUnknown": str(error)}


async def read_exposed(snapshot: Snapshot, shards: Sequence[str], context: Context) -> Exposure | None:
    """Return the state of `spec.expose` for `shards`; None if it is not set."""
    fleet = snapshot.fleet
    if fleet.spec.expose is None:
        return None
    basis = fleet.uid, fleet.generation, snapshot.versions, tuple(shards), tuple(snapshot.offered)
    if context.memory.exposed[0] != basis or not all(snapshot.versions.values()):
        children = await context.children.objects()
        context.memory.exposed = basis, read_exposure(fleet, children, shards, snapshot.offered)
    return context.memory.exposed[1]


async def ask_shards(fleet: Fleet, links: Links, shards: Sequence[str]) -> dict[str, ShardStatus | None]:
    """Query the status of each of `shards`; None if it does not answer."""
    answers = await asyncio.gather(*(links.shard_status(fleet, shard) for shard in shards))
    return dict(zip(shards, answers, strict=True))


def _previous_status(fleet: Fleet, memory: FleetMemory) -> FleetStatus:
    """Return the fleet's status; for a manifest without one, the status of the last pass."""
    if stored := fleet.status:
        memory.status = read_status(stored)
    elif "status" in fleet.manifest:
        memory.status = None
    return memory.status or FleetStatus()


async def _read_placement(
    fleet: Fleet, versions: Mapping[Identity, str], context: Context
) -> tuple[PlacementRecord, Sequence[str], Mapping[str, str]]:
    """Return the record, the existing shards, and the reasons why their pods are refused.

    If nothing has changed, the record is without assignments, which nothing needs then.
    """
    memory, children = context.memory, context.children
    if (inputs := memory.inputs) and inputs.versions == versions and all(versions.values()):
        return inputs.record, inputs.existing, inputs.refused
    record = await children.record()
    objects = await children.objects()
    existing = _existing_shards(fleet, objects)
    refused = {shard: why for shard in existing if (why := why_refused(objects["Deployment", shard]))}
    memory.inputs = PassInputs(versions, replace(record, assignments={}), existing, refused)
    return record, existing, refused


def _existing_shards(fleet: Fleet, children: Mapping[Identity, Manifest]) -> list[str]:
    names = [name for kind, name in children if kind == "Deployment"]
    indexes = sorted(index for name in names if (index := fleet.names.index(name)) is not None)
    return [fleet.names.shard(index) for index in indexes]


async def _read_devices(
    fleet: Fleet,
    versions: Mapping[Identity, str],
    previous: FleetStatus,
    statuses: Mapping[str, ShardStatus | None],
    context: Context,
) -> tuple[Sequence[Device], Sequence[Device], Sequence[str], Problems]:
    """Return the devices that shards can watch, those whose settings are lost, sentences about unknown lists, problems.

    The devices are those of the manifest, then those of the ConfigMaps that it names. If a list is missing or
    malformed, its former devices stay declared.
    """
    memory = context.memory
    names = {reference.config_map_ref.name for reference in fleet.devices_from}
    declared_by = fleet.uid, fleet.generation, {name: versions.get(("ConfigMap", name)) for name in names}
    if memory.declared[0] == declared_by:
        return memory.declared[1], (), (), {}
    cluster = context.runtime.cluster
    maps = await cluster.config_maps(fleet) if names and cluster else {}
    declared = read_devices(fleet, maps)
    unreadable = declared.missing | declared.invalid
    known: Lists = {}
    assignments: list[Assignment | None] = []
    if unreadable:
        known = memory.lists[1] if memory.lists[0] == fleet.uid else {}
        known = known or decode_lists(previous.device_lists)
        assignments = list((await context.children.record()).assignments.values())
    lists = read_lists(declared, fleet, known, assignments, statuses.values())
    if memory.lists[:2] != (fleet.uid, lists):
        memory.lists = fleet.uid, lists, encode_lists(lists)
    devices = {device.id: ListedDevice(build_device(device, fleet), whole=True) for device in fleet.devices}
    for entry in itertools.chain.from_iterable(lists.values()):
        devices.setdefault(entry.device.id, entry)
    complete = [devices[name].device for name in sorted(devices) if devices[name].whole]
    incomplete = [devices[name].device for name in sorted(devices) if not devices[name].whole]
    unknown = [why for name, why in unreadable.items() if not any(lists[part] for part in lists_of(name, lists))]
    memory.declared = ((), []) if declared.errors else (declared_by, complete)
    return complete, incomplete, unknown, _list_problems(declared)


def _list_problems(declared: DeclaredDevices) -> Problems:
    problems = {}
    if declared.missing:
        problems["DeviceListMissing"] = (
            f"{'; '.join(declared.missing.values())}: its devices stay declared as they were last read. "
            "Create it again, or remove it from the fleet"
        )
    if invalid := [*declared.invalid.values(), *declared.repeated]:
        problems["DeviceListInvalid"] = "; ".join(invalid)
    return problems


async def _withhold_secrets(
    fleet: Fleet, devices: Sequence[Device], context: Context
) -> tuple[Sequence[Device], Sequence[str], Problems]:
    """Return `devices` without credentials that their fleet may not use, the names of these Secrets, and problems.

    The author of a fleet chooses where a camera's password is sent, so the Secret's owner must agree.
    """
    named = {device.credentials for device in devices if device.credentials}
    cluster = context.runtime.cluster
    allowed = await cluster.allowed_secrets(fleet) if named and cluster else named
    if not (withheld := sorted(named.difference(allowed))):
        return devices, (), {}
    sentence = "; ".join(
        f"Secret {name} is missing, or its owner has not allowed fleets to use it "
        f"(allow it with kubectl --namespace {fleet.namespace} label secret {name} {LABEL_ALLOWED}=true): "
        f"no credentials for {listed(sorted(device.id for device in devices if device.credentials == name))}"
        for name in withheld
    )
    usable = [_without_credentials(device) if device.credentials in withheld else device for device in devices]
    return usable, tuple(withheld), {"SecretNotAllowed": sentence}


def _without_credentials(device: Device) -> Device:
    copy = Device()
    copy.CopyFrom(device)
    copy.ClearField("credentials")
    return copy
