"""Remember a fleet's device lists, so that a list that cannot be read takes no device out of the watch.

The operator remembers the devices of each list at its latest reading, in the fleet's memory and, for the next leader,
in the fleet's status. A camera's source may contain a password, and more people may read a status than a ConfigMap, so
the status has only its id, zone and location. Such a device is declared and dark, but no shard can watch it.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import json_format

from embereye.v1.shard_pb2 import Assignment, ShardStatus
from embereye.v1.types_pb2 import Device
from embereye_operator.api.fleets import DeclaredDevices, Fleet
from embereye_operator.api.status import MAX_DEVICE_LISTS
from embereye_operator.decide.placement.assignments import build_device

MAX_JSON = 8 * 1024 * 1024  # bytes of decompressed lists; a status that somebody edited must not fill the memory


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device of a list at its latest reading."""

    device: Device
    whole: bool  # False: only id, zone and location are known, and no shard can watch it


Lists = Mapping[str, Sequence[ListedDevice]]  # by list, CONFIGMAP/KEY


def read_lists(
    declared: DeclaredDevices,
    fleet: Fleet,
    known: Lists,
    assignments: Iterable[Assignment | None],
    statuses: Iterable[ShardStatus | None],
) -> Lists:
    """Return all lists: the readable ones as `declared`, the others as they were `known`.

    Devices of a list that is not known at all are the undeclared ones of `assignments`, or those that shards report.
    """
    lists: dict[str, Sequence[ListedDevice]] = {
        name: [ListedDevice(build_device(device, fleet), whole=True) for device in devices]
        for name, devices in declared.lists.items()
    }
    assigned = {
        device.id: device for assignment in assignments for device in (assignment.devices if assignment else ())
    }
    for name in (*declared.missing, *declared.invalid):
        former = {part: known[part] for part in lists_of(name, known)}
        if not any(former.values()):
            listed = {entry.device.id for devices in lists.values() for entry in devices} | declared.devices.keys()
            former = {name: _find_undeclared(listed, assigned, statuses)}
        for part, devices in former.items():
            lists.setdefault(part, [_completed(entry, assigned) for entry in devices])
    return lists


def lists_of(name: str, lists: Iterable[str]) -> list[str]:
    """Return those of `lists` that `name` denotes: one, or all keys of a ConfigMap."""
    return [part for part in lists if part == name or (name.endswith("/") and part.startswith(name))]


def _find_undeclared(
    declared: Iterable[str], assigned: Mapping[str, Device], statuses: Iterable[ShardStatus | None]
) -> list[ListedDevice]:
    undeclared = {device.id: ListedDevice(device, whole=True) for device in assigned.values()}
    for status in statuses:
        for report in status.devices if status else ():
            undeclared.setdefault(report.id, ListedDevice(Device(id=report.id, zone=report.zone), whole=False))
    return [undeclared[name] for name in sorted(undeclared.keys() - set(declared))]


def _completed(entry: ListedDevice, assigned: Mapping[str, Device]) -> ListedDevice:
    if entry.whole or entry.device.id not in assigned:
        return entry
    return ListedDevice(assigned[entry.device.id], whole=True)


def encode_lists(lists: Lists) -> str:
    """Return `lists` as a text for the status; "" without lists, or if it were too long."""
    if not lists:
        return ""
    entries = {name: [_entry(device) for device in devices] for name, devices in sorted(lists.items())}
    text = json.dumps(entries, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    encoded = base64.b64encode(zlib.compress(text.encode())).decode()
    return encoded if len(encoded) <= MAX_DEVICE_LISTS else ""


def _entry(listed: ListedDevice) -> list[object]:
    device, is_camera = listed.device, bool(listed.device.source)
    stored = Device(id=device.id, zone=device.zone, location=device.location) if is_camera else device
    return [json_format.MessageToDict(stored), listed.whole and not is_camera]


def decode_lists(text: str) -> Lists:
    """Parse the result of `encode_lists`; empty if `text` is something else, because somebody edited it."""
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MAX_JSON)
        return {
            str(name): [
                ListedDevice(json_format.ParseDict(device, Device(), ignore_unknown_fields=True), whole=bool(whole))
                for device, whole in devices
            ]
            for name, devices in json.loads(unpacked).items()
        }
    except (zlib.error, binascii.Error, ValueError, TypeError, AttributeError, RecursionError, json_format.ParseError):
        return {}
