"""SensorFleet and CameraFleet, version embereye.dev/v1alpha1: their names, and from a manifest to a `Fleet`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from embereye.process.lifecycle import UserError
from embereye_operator.api.cameras import Camera, CameraFleetSpec
from embereye_operator.api.documents import DocumentError, read_document
from embereye_operator.api.schema import (
    Manifest,
    Resource,
    Rule,
    from_manifest,
    problems,
    schema_of,
    shown,
    with_defaults,
)
from embereye_operator.api.sensors import Sensor, SensorFleetSpec
from embereye_operator.api.shared import API_VERSIONS, DevicesFrom, device_list

FleetKind = Literal["sensors", "cameras"]


@dataclass(frozen=True, slots=True)
class FleetType:
    """Names of a fleet resource."""

    resource: str  # "SensorFleet"
    kind: FleetKind  # also the plural's beginning and part of its children's names
    plural: str
    short: str
    spec: type[SensorFleetSpec] | type[CameraFleetSpec]
    component: str  # what `embereye shard …` is given


SENSORS = FleetType("SensorFleet", "sensors", "sensorfleets", "sf", SensorFleetSpec, "sensor")
CAMERAS = FleetType("CameraFleet", "cameras", "camerafleets", "cf", CameraFleetSpec, "camera")
FLEET_TYPES: Mapping[str, FleetType] = {fleet.resource: fleet for fleet in (SENSORS, CAMERAS)}
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # as Kubernetes has it: a label of DNS
MAX_NAME = 40  # its children's names append up to 19 characters and must fit in a DNS label
ROOT_RULES = (
    Rule(
        f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{NAME_PATTERN}')",
        f"metadata.name must be at most {MAX_NAME} lower-case letters, digits and '-', beginning with a letter",
        lambda value, _: _valid_name(value["metadata"]["name"]),
    ),
)


def _valid_name(name: str) -> bool:
    return len(name) <= MAX_NAME and bool(re.fullmatch(NAME_PATTERN.strip("^$"), name))


class FleetError(UserError):
    """A manifest that is not a fleet; `problems` has a sentence for each reason."""

    def __init__(self, what: str, problems: list[str]) -> None:
        super().__init__(f"{what}: {'; '.join(problems)}")
        self.problems = problems


@dataclass(frozen=True, slots=True)
class FleetReference:
    """Which fleet: all that is known of one that cannot be parsed."""

    type: FleetType
    namespace: str
    name: str
    uid: str

    @property
    def kind(self) -> FleetKind:
        """`sensors` or `cameras`."""
        return self.type.kind

    @property
    def key(self) -> str:
        """`namespace/kind/name`, the `fleet` of the wire contract."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet as it is declared."""

    type: FleetType
    namespace: str
    name: str
    uid: str
    generation: int
    spec: SensorFleetSpec | CameraFleetSpec
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    manifest: Manifest = field(repr=False)  # as it was read, with defaults

    @property
    def kind(self) -> FleetKind:
        """`sensors` or `cameras`."""
        return self.type.kind

    @property
    def key(self) -> str:
        """`namespace/kind/name`, the `fleet` of the wire contract."""
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def devices(self) -> tuple[Sensor, ...] | tuple[Camera, ...]:
        """The devices that the manifest itself declares."""
        return self.spec.sensors if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras

    @property
    def devices_from(self) -> tuple[DevicesFrom, ...]:
        """Where more devices are declared."""
        return self.spec.sensors_from if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras_from

    @property
    def status(self) -> Manifest:
        """The status in the manifest, as it was read."""
        return dict(self.manifest.get("status") or {})


def parse_fleet(manifest: Mapping[str, Any], *, old: Mapping[str, Any] | None = None, strict: bool = True) -> Fleet:
    """The fleet that `manifest` declares; FleetError says why it is none.

    `old` is the manifest in force, for what may not change. `strict` refuses unknown fields: right for what a person
    wrote, wrong for what an API server with a newer schema sends.
    """
    resource = str(manifest.get("kind"))
    if resource not in FLEET_TYPES or manifest.get("apiVersion") not in API_VERSIONS:
        what = f"{manifest.get('apiVersion')} {resource}"
        raise FleetError("manifest", [f"kind: {what} is not {' or '.join(API_VERSIONS)} {' or '.join(FLEET_TYPES)}"])
    fleet_type = FLEET_TYPES[resource]
    metadata = manifest.get("metadata") or {}
    if wrong := _wrong_metadata(metadata):
        raise FleetError(resource, wrong)
    name = str(metadata.get("name") or "")
    if not name:
        raise FleetError(resource, ["metadata.name: is required"])
    namespace = str(metadata.get("namespace") or "default")
    schema = schema_of(cast("type", fleet_type.spec))
    if manifest.get("spec") is None:
        raise FleetError(f"{resource} {namespace}/{name}", ["spec: is required"])
    spec = with_defaults(schema, manifest["spec"])
    before = with_defaults(schema, old.get("spec") or {}) if old else None
    found = problems(fleet_type.spec, spec, before, strict=strict)
    found += [rule.message for rule in ROOT_RULES if not rule.holds(manifest, None)]
    if strict and (unknown := sorted(map(str, set(manifest) - {"apiVersion", "kind", "metadata", "spec", "status"}))):
        found.append(f"{unknown[0]}: there is no such field; known here: apiVersion, kind, metadata, spec, status")
    if found:
        raise FleetError(f"{resource} {namespace}/{name}", found)
    return Fleet(
        type=fleet_type,
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 1),
        spec=from_manifest(fleet_type.spec, spec),
        annotations={str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()},
        labels={str(key): str(value) for key, value in (metadata.get("labels") or {}).items()},
        manifest={**manifest, "spec": spec},
    )


METADATA = {"name": str, "namespace": str, "annotations": Mapping, "labels": Mapping, "generation": int}
KINDS = {str: "a string", Mapping: "an object", int: "an integer"}


def _wrong_metadata(metadata: Any) -> list[str]:
    """What of it the API server would refuse, which sees no files: a sentence for each."""
    if not isinstance(metadata, Mapping):
        return [f"metadata: {shown(metadata)} is not an object"]
    found = [
        f"metadata.{name}: {shown(metadata[name])} is not {KINDS[kind]}"
        for name, kind in METADATA.items()
        if metadata.get(name) is not None and not isinstance(metadata[name], kind)
    ]
    for name in ("annotations", "labels"):
        pairs = metadata.get(name)
        if isinstance(pairs, Mapping):
            found += [
                f"metadata.{name}: {key}: {shown(value)} is not a string: put it into quotes"
                for key, value in pairs.items()
                if not isinstance(value, str)
            ]
    namespace = metadata.get("namespace")
    if namespace and not found and not re.fullmatch(NAMESPACE, namespace):
        said = "is not a namespace such as site-1: at most 63 lower-case letters, digits and '-'"
        found.append(f"metadata.namespace: {shown(namespace)} {said}")
    return found


@dataclass(frozen=True, slots=True)
class DeviceList(Resource):
    """What a ConfigMap's key holds, wrapped so that it is validated as a fleet's own list is."""

    sensors: tuple[Sensor, ...] = device_list("sensors")
    cameras: tuple[Camera, ...] = device_list("cameras")


def parse_devices(kind: FleetKind, text: str, where: str) -> tuple[Sensor, ...] | tuple[Camera, ...]:
    """The devices in a ConfigMap's value (a YAML or JSON list); FleetError names `where` and what is wrong."""
    try:
        document = read_document(text)
    except DocumentError as error:
        raise FleetError(where, [str(error)]) from error
    value = with_defaults(schema_of(DeviceList), {kind: [] if document is None else document})
    if found := problems(DeviceList, value, path=""):
        raise FleetError(where, [sentence.removeprefix(".") for sentence in found])
    parsed: DeviceList = from_manifest(DeviceList, value)
    return parsed.sensors if kind == "sensors" else parsed.cameras


def read_devices(fleet: Fleet, maps: Mapping[str, Mapping[str, str]]) -> tuple[list[Sensor | Camera], list[str]]:
    """The devices of the manifest and of the ConfigMaps that it names, and a sentence for each list that is wrong.

    `maps` has the data of those that exist.
    """
    devices: dict[str, Sensor | Camera] = {device.id: device for device in fleet.devices}
    wrong = []
    for reference in fleet.devices_from:
        source = reference.config_map_ref
        data = maps.get(source.name)
        where = f"ConfigMap {source.name}"
        if data is None or (source.key and source.key not in data):
            wrong.append(f"{where} {f'has no key {source.key}' if data is not None else 'does not exist'}")
            continue
        for key in [source.key] if source.key else sorted(data):
            try:
                parsed = parse_devices(fleet.kind, data[key], f"{where}, key {key}")
            except FleetError as error:
                wrong.append(str(error))
                continue
            if twice := [device.id for device in parsed if device.id in devices]:
                wrong.append(f"{where}, key {key}: {', '.join(twice[:5])} declared before: the first counts")
            for device in parsed:
                devices.setdefault(device.id, device)
    return list(devices.values()), wrong


def parse_config_map(manifest: Mapping[str, Any]) -> tuple[tuple[str, str], dict[str, str]]:
    """Namespace and name of a ConfigMap, and its data; FleetError says why it is none."""
    metadata = manifest.get("metadata") or {}
    if wrong := _wrong_metadata(metadata):
        raise FleetError("ConfigMap", wrong)
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not name:
        raise FleetError("ConfigMap", ["metadata.name: is required"])
    found = []
    known = ("apiVersion", "kind", "metadata", "data", "binaryData", "immutable")
    if manifest.get("apiVersion") != "v1":
        found.append(f"apiVersion: {shown(manifest.get('apiVersion'))} is not v1")
    if unknown := sorted(map(str, set(manifest) - set(known))):
        found.append(f"{unknown[0]}: there is no such field; known here: {', '.join(known)}")
    data = manifest.get("data") or {}
    if not isinstance(data, Mapping):
        found.append(f"data: {shown(data)} is not an object")
    else:
        found += [
            f"data.{key}: {shown(value)} is not a string: put it below `{key}: |`"
            for key, value in data.items()
            if not isinstance(value, str)
        ]
    if found:
        raise FleetError(f"ConfigMap {namespace}/{name}", found)
    return (namespace, name), {str(key): value for key, value in data.items()}
