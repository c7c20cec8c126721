"""SensorFleet and CameraFleet, version embereye.dev/v1alpha1: their names, and the parser of their manifests.

A manifest from a file or an API server becomes a `Fleet` in `parse_fleet`: defaults are filled in by the schema, all
errors are collected, and only a valid spec becomes dataclasses. So all code behind it gets complete and checked values.
Device lists in ConfigMaps are parsed separately by `read_devices`, and a broken list is reported without losing the
fleet's other devices.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from embereye.process.lifecycle import UserError
from embereye_operator.api.cameras import Camera, CameraFleetSpec
from embereye_operator.api.documents import DocumentError, read_document
from embereye_operator.api.names import FleetNames
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
    """The names of a fleet resource."""

    resource: str  # "SensorFleet"
    kind: FleetKind  # also in the plural and in its children's names
    plural: str
    short: str
    spec: type[SensorFleetSpec] | type[CameraFleetSpec]
    component: str  # argument of `embereye shard`


SENSORS = FleetType("SensorFleet", "sensors", "sensorfleets", "sf", SensorFleetSpec, "sensor")
CAMERAS = FleetType("CameraFleet", "cameras", "camerafleets", "cf", CameraFleetSpec, "camera")
FLEET_TYPES: Mapping[str, FleetType] = {fleet.resource: fleet for fleet in (SENSORS, CAMERAS)}
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a DNS label, as in Kubernetes
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
    """A manifest that is not a valid fleet; `problems` has a sentence for each reason."""

    def __init__(self, subject: str, problems: list[str]) -> None:
        super().__init__(f"{subject}: {'; '.join(problems)}")
        self.subject = subject
        self.problems = problems


@dataclass(frozen=True, slots=True)
class FleetReference:
    """The identity of a fleet, even of one that cannot be parsed."""

    type: FleetType
    namespace: str
    name: str
    uid: str

    @property
    def kind(self) -> FleetKind:
        """Return `sensors` or `cameras`."""
        return self.type.kind

    @property
    def key(self) -> str:
        """Return `namespace/kind/name`, the `fleet` of the protocol."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fleet(FleetReference):
    """A fleet as declared."""

    generation: int
    spec: SensorFleetSpec | CameraFleetSpec
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    manifest: Manifest = field(repr=False)  # as read, with defaults
    names: FleetNames = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the names of its children."""
        names = FleetNames(self.type.resource, self.kind, self.type.component, self.namespace, self.name, self.uid)
        object.__setattr__(self, "names", names)

    @property
    def devices(self) -> tuple[Sensor, ...] | tuple[Camera, ...]:
        """Return the devices that the manifest itself declares."""
        return self.spec.sensors if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras

    @property
    def devices_from(self) -> tuple[DevicesFrom, ...]:
        """Return the ConfigMaps with more devices."""
        return self.spec.sensors_from if isinstance(self.spec, SensorFleetSpec) else self.spec.cameras_from

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports of its Service, which devices connect to, by name."""
        names = ("grpc", "tcp", "tls", "http")
        return {name: port for name in names if (port := getattr(self.spec.listen, name, None))}

    @property
    def status(self) -> Manifest:
        """Return the status in the manifest, as read."""
        return dict(self.manifest.get("status") or {})


def parse_fleet(manifest: Mapping[str, Any], *, old: Mapping[str, Any] | None = None, strict: bool = True) -> Fleet:
    """Parse the fleet in `manifest`; FleetError with the reasons if it is invalid.

    `old` is the manifest in force, for immutable fields. `strict` rejects unknown fields: right for a person's
    manifest, wrong for one from an API server with a newer schema.
    """
    resource = str(manifest.get("kind"))
    if resource not in FLEET_TYPES or manifest.get("apiVersion") not in API_VERSIONS:
        version_and_kind = f"{manifest.get('apiVersion')} {resource}"
        raise FleetError(
            "manifest", [f"kind: {version_and_kind} is not {' or '.join(API_VERSIONS)} {' or '.join(FLEET_TYPES)}"]
        )
    fleet_type = FLEET_TYPES[resource]
    metadata = manifest.get("metadata") or {}
    if errors := _metadata_errors(metadata):
        raise FleetError(resource, errors)
    name = str(metadata.get("name") or "")
    if not name:
        raise FleetError(resource, ["metadata.name: is required"])
    namespace = str(metadata.get("namespace") or "default")
    schema = schema_of(cast("type", fleet_type.spec))
    if manifest.get("spec") is None:
        raise FleetError(f"{resource} {namespace}/{name}", ["spec: is required"])
    spec = with_defaults(schema, manifest["spec"])
    before = with_defaults(schema, old.get("spec") or {}) if old else None
    errors = problems(fleet_type.spec, spec, before, strict=strict)
    errors += [rule.message for rule in ROOT_RULES if not rule.is_met(manifest, None)]
    if strict and (unknown := sorted(map(str, set(manifest) - {"apiVersion", "kind", "metadata", "spec", "status"}))):
        errors.append(f"{unknown[0]}: there is no such field; known here: apiVersion, kind, metadata, spec, status")
    if errors:
        raise FleetError(f"{resource} {namespace}/{name}", errors)
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


def _metadata_errors(metadata: Any) -> list[str]:
    """Return a sentence for each part of `metadata` that an API server would refuse, because files bypass it."""
    if not isinstance(metadata, Mapping):
        return [f"metadata: {shown(metadata)} is not an object"]
    errors = [
        f"metadata.{name}: {shown(metadata[name])} is not {KINDS[kind]}"
        for name, kind in METADATA.items()
        if metadata.get(name) is not None and not isinstance(metadata[name], kind)
    ]
    for name in ("annotations", "labels"):
        pairs = metadata.get(name)
        if isinstance(pairs, Mapping):
            errors += [
                f"metadata.{name}: {key}: {shown(value)} is not a string: put it into quotes"
                for key, value in pairs.items()
                if not isinstance(value, str)
            ]
    namespace = metadata.get("namespace")
    if namespace and not errors and not re.fullmatch(NAMESPACE, namespace):
        remedy = "is not a namespace such as site-1: at most 63 lower-case letters, digits and '-'"
        errors.append(f"metadata.namespace: {shown(namespace)} {remedy}")
    return errors


class DeviceList(Resource):
    """A ConfigMap's list of devices, wrapped so that it is validated like a fleet's list."""

    sensors: tuple[Sensor, ...] = device_list("sensors")
    cameras: tuple[Camera, ...] = device_list("cameras")


def parse_devices(kind: FleetKind, text: str, where: str) -> tuple[Sensor, ...] | tuple[Camera, ...]:
    """Parse a ConfigMap's value, a YAML or JSON list of devices; FleetError has `where` and the reason."""
    try:
        document = read_document(text)
    except DocumentError as error:
        raise FleetError(where, [str(error)]) from error
    value = with_defaults(schema_of(DeviceList), {kind: [] if document is None else document})
    if errors := problems(DeviceList, value, path=""):
        raise FleetError(where, [sentence.removeprefix(".") for sentence in errors])
    parsed: DeviceList = from_manifest(DeviceList, value)
    return parsed.sensors if kind == "sensors" else parsed.cameras


@dataclass(frozen=True, slots=True)
class DeclaredDevices:
    """The devices of a fleet's manifest and lists. A list is named `CONFIGMAP/KEY`; without a key it is all keys."""

    devices: dict[str, Sensor | Camera] = field(default_factory=dict)  # id → its first declaration
    lists: dict[str, list[Sensor | Camera]] = field(default_factory=dict)  # the readable ones
    missing: dict[str, str] = field(default_factory=dict)  # list → sentence
    invalid: dict[str, str] = field(default_factory=dict)  # list → sentence
    repeated: list[str] = field(default_factory=list)  # sentences about devices that are declared twice

    @property
    def errors(self) -> list[str]:
        """Return all sentences, the worst first."""
        return [*self.missing.values(), *self.invalid.values(), *self.repeated]


def read_devices(fleet: Fleet, maps: Mapping[str, Mapping[str, str]]) -> DeclaredDevices:
    """Return the devices of the manifest and of the ConfigMaps that it names; `maps` has the data of existing ones."""
    declared = DeclaredDevices({device.id: device for device in fleet.devices})
    for reference in fleet.devices_from:
        source = reference.config_map_ref
        data = maps.get(source.name)
        where, list_name = f"ConfigMap {source.name}", f"{source.name}/{source.key or ''}"
        if data is None:
            declared.missing[list_name] = f"{where} does not exist"
        elif source.key and source.key not in data:
            declared.missing[list_name] = f"{where} has no key {source.key}"
        elif not data:
            declared.missing[list_name] = f"{where} has no keys: write [] in one if it lists no device"
        else:
            for key in [source.key] if source.key else sorted(data):
                _read_list(fleet.kind, data[key], f"{source.name}/{key}", declared)
    return declared


def _read_list(kind: FleetKind, text: str, list_name: str, declared: DeclaredDevices) -> None:
    where = "ConfigMap {}, key {}".format(*list_name.split("/", 1))
    try:
        parsed = parse_devices(kind, text, where)
    except FleetError as error:
        declared.invalid[list_name] = str(error)
        return
    if repeated := [device.id for device in parsed if device.id in declared.devices]:
        declared.repeated.append(f"{where}: {', '.join(repeated[:5])} declared twice: the first one counts")
    declared.lists[list_name] = list(parsed)
    for device in parsed:
        declared.devices.setdefault(device.id, device)


def parse_config_map(manifest: Mapping[str, Any]) -> tuple[tuple[str, str], dict[str, str]]:
    """Return a ConfigMap's namespace and name, and its data; FleetError if it is invalid."""
    metadata = manifest.get("metadata") or {}
    if errors := _metadata_errors(metadata):
        raise FleetError("ConfigMap", errors)
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not name:
        raise FleetError("ConfigMap", ["metadata.name: is required"])
    errors = []
    known = ("apiVersion", "kind", "metadata", "data", "binaryData", "immutable")
    if manifest.get("apiVersion") != "v1":
        errors.append(f"apiVersion: {shown(manifest.get('apiVersion'))} is not v1")
    if unknown := sorted(map(str, set(manifest) - set(known))):
        errors.append(f"{unknown[0]}: there is no such field; known here: {', '.join(known)}")
    data = manifest.get("data") or {}
    if not isinstance(data, Mapping):
        errors.append(f"data: {shown(data)} is not an object")
    else:
        errors += [
            f"data.{key}: {shown(value)} is not a string: put it below `{key}: |`"
            for key, value in data.items()
            if not isinstance(value, str)
        ]
    if errors:
        raise FleetError(f"ConfigMap {namespace}/{name}", errors)
    return (namespace, name), {str(key): value for key, value in data.items()}
