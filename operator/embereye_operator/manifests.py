"""Spec in, Kubernetes manifests out, nothing else: the children of a fleet."""

import base64
import contextlib
import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embereye.v1.shard_pb2 import Assignment, Peer
from embereye_operator.additions import (
    TOLERANCE,
    build_autoscaler,
    build_network_policy,
    build_scaled_object,
)
from embereye_operator.decide.assignments import encode
from embereye_operator.decide.scaling.law import CAPACITY, Observed
from embereye_operator.decide.manifests.compare import quantity
from embereye_operator.model import (
    API_VERSION,
    GRPC_PORT,
    METRICS_PORT,
    Autoscaling,
    CameraFleetSpec,
    Fleet,
    SensorFleetSpec,
    TopologySpread,
)
from embereye_operator.api.schema import Manifest, to_manifest

MANAGED_BY = "embereye-operator"  # also the field manager
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_FLEET = "embereye.dev/fleet"  # value: see fleet_label
LABEL_SHARD = "embereye.dev/shard"
ANNOTATION_DRAIN = "embereye.dev/drain"  # of a fleet: shards, with commas, that others are to take the place of
ANNOTATION_REPLACES = "embereye.dev/replaces"  # of a pod: the uid of the one it was made to replace
ANNOTATION_DEVICE = "embereye.dev/device"  # of a Service: the camera that pushes to it
PUSHED = r"rtp://(?:0\.0\.0\.0|\[::\])?:(\d{1,5})(?:[/?#]|$)"  # sources that wait for the camera; others join a group
PLACEMENT_FOLDER = "/etc/embereye/placement"
CREDENTIALS_FOLDER = "/etc/embereye/credentials"
MODEL_FOLDER = "/etc/embereye/model"
DATA_FOLDER = "/var/lib/embereye"
TELEMETRY_FOLDER = f"{DATA_FOLDER}/telemetry"
PLACEMENT_KEY = "placement.json"
PLAIN_PLACEMENT = 250_000  # characters; more is packed, for a ConfigMap holds a million bytes
PRE_STOP_SECONDS = 2  # for Services to stop sending new connections here
GRACE_SECONDS = PRE_STOP_SECONDS + 2 + 6  # preStop, the shard's drain, and what gRPC and the spool need after it
EVERY_ADDRESS = "[::]"  # of both families, where the host has both
READY_SECONDS = 5  # that a new pod must have been ready until the one it replaces goes
USER = 65532
# How long a pod stays bound to a node that does not tell how it is: Kubernetes' own 300 s begin after the 50 s that it
# takes to notice. Kubelet's own word "not ready" is less: its pods may well go on meanwhile.
ABSENCES: tuple[Manifest, ...] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
)
SPREAD = (TopologySpread("kubernetes.io/hostname"), TopologySpread("topology.kubernetes.io/zone"))


@dataclass(frozen=True)
class Settings:
    """What the operator was started with and every shard needs."""

    image: str
    hub: str  # host:port, as shards reach it
    image_pull_policy: str = ""  # empty: Kubernetes' own default
    host: str = ""  # that shards listen on; empty: every address, of both families
    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"  # that KEDA asks
    log_format: str = ""  # of the shards; empty: text
    scrape_annotations: bool = False  # for a Prometheus that looks for prometheus.io/* rather than monitors
    operator: str = ""  # its Lease, namespace/name, by which a fleet's status names it; empty: it has none
    trace: Callable[[Fleet, Observed], None] | None = None  # is told what every scaling decision is made on

    def listening(self, host: str) -> "Settings":
        """The same for a shard that listens on `host` already, where nobody says which address it is to be."""
        return replace(self, host=self.host or host)


def fleet_name(fleet: Fleet) -> str:
    """Name of what a fleet has one of: `hall-sensors`."""
    return f"{fleet.name}-{fleet.kind}"


def shard_name(fleet: Fleet, index: int) -> str:
    """Name of a shard, its Deployment and its Service: `hall-sensors-0`."""
    return f"{fleet_name(fleet)}-{index}"


def shard_index(fleet: Fleet, name: str) -> int | None:
    """The index in a shard's name, or None where it is not one of this fleet's."""
    suffix = name.removeprefix(f"{fleet_name(fleet)}-")
    return int(suffix) if suffix != name and suffix.isdecimal() else None


def drained(fleet: Fleet) -> list[str]:
    """Shards that a person wants to be rid of."""
    names = (name.strip() for name in fleet.annotations.get(ANNOTATION_DRAIN, "").split(","))
    return [name for name in names if shard_index(fleet, name) is not None]


def placement_name(fleet: Fleet) -> str:
    """Name of the placement ConfigMap."""
    return f"{fleet_name(fleet)}-placement"


def fleet_label(fleet: Fleet) -> str:
    """Value of LABEL_FLEET; the namespace is the object's own."""
    return f"{fleet.kind}.{fleet.name}"


def selector(fleet: Fleet) -> dict[str, str]:
    """The labels that all of a fleet's children and pods carry, and nothing else does."""
    return {LABEL_FLEET: fleet_label(fleet), LABEL_MANAGED_BY: MANAGED_BY}


def selector_text(fleet: Fleet) -> str:
    """The same as `kubectl --selector` and the scale subresource want it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(fleet).items()))


def peer_address(fleet: Fleet, shard: str) -> Peer:
    """In-cluster addresses of a shard, by its Service."""
    host = f"{shard}.{fleet.namespace}.svc"
    tcp = f"{host}:{fleet.spec.listen.tcp}" if isinstance(fleet.spec, SensorFleetSpec) else ""
    return Peer(shard=shard, grpc=f"{host}:{fleet.spec.listen.grpc}", tcp=tcp)


def shard_capacity(fleet: Fleet) -> float:
    """Cores that one shard can use: what its container may have, and of a sensor shard not more than its one loop."""
    resources = fleet.spec.template.resources
    stated = quantity(resources.limits.get("cpu") or resources.requests.get("cpu") or CAPACITY)
    cores = float(stated) if stated else CAPACITY
    return min(cores, CAPACITY) if isinstance(fleet.spec, SensorFleetSpec) else cores


def build_children(  # noqa: PLR0913 -- what a Deployment is made of, all by name
    fleet: Fleet,
    settings: Settings,
    *,
    assignments: Mapping[str, Assignment],
    record: Manifest,
    shards: Sequence[str],
    offers: Callable[[str], bool] = lambda _: False,
    replaces: Mapping[str, str] | None = None,
    hosts: Mapping[str, str] | None = None,
    evictable: bool = False,
    budget_owner: Manifest | None = None,
    plain: Collection[str] = (),
) -> list[Manifest]:
    """All children, the placement ConfigMap first: assignments exist before the shards that read them.

    `assignments` may name more than `shards`: those that are about to go still need to know where devices are.
    `record` is what a new leader has to know. `offers` tells which kinds can exist beyond the basic ones.
    `replaces` has the uid of the pod that a shard's present one was made to replace; `hosts` the address that it
    listens on, which is no reason to replace it. `evictable`: nobody sees to it that nodes can be emptied, so that
    evictions must not be refused. `budget_owner`: see `build_disruption_budget`. `plain`: see there, too.
    """
    secrets = sorted({device.credentials for a in assignments.values() for device in a.devices if device.credentials})
    pushing = push_ports(assignments)
    return [
        build_placement(fleet, assignments=assignments, record=record),
        *(build_service(fleet, shard, scraped=settings.scrape_annotations) for shard in shards),
        build_fleet_service(fleet),
        *(build_push_service(fleet, device, port, record["devices"][device]) for device, port in pushing.items()),
        build_disruption_budget(fleet, evictable=evictable, owner=budget_owner),
        *(
            build_deployment(
                fleet, shard, settings.listening((hosts or {}).get(shard, "")), secrets, replaced, plain=shard in plain
            )
            for shard in shards
            for replaced in [(replaces or {}).get(shard, "")]
        ),
        *build_additions(fleet, settings, offers, sorted(set(pushing.values()))),
    ]


def build_additions(
    fleet: Fleet, settings: Settings, offers: Callable[[str], bool], udp: Sequence[int] = ()
) -> list[Manifest]:
    """Children of kinds that not every cluster knows, or that not every fleet wants; `udp` ports are let in."""
    built = []
    metadata = _metadata(fleet, fleet_name(fleet))
    if offers("NetworkPolicy"):
        built.append(build_network_policy(fleet, metadata, selector(fleet), udp))
    match fleet.spec.autoscaling:
        case Autoscaling(mode="hpa", observe=False) if offers("HorizontalPodAutoscaler"):
            built.append(build_autoscaler(fleet, metadata, tolerance=offers(TOLERANCE)))
        case Autoscaling(mode="keda", observe=False) if offers("ScaledObject"):
            built.append(build_scaled_object(fleet, metadata, settings.prometheus))
    return built


def _labels(fleet: Fleet, shard: str = "") -> dict[str, str]:
    labels = {
        "app.kubernetes.io/name": "embereye",
        "app.kubernetes.io/instance": fleet.name,
        "app.kubernetes.io/component": f"{fleet.type.component}-shard",
        "app.kubernetes.io/part-of": "embereye",
        **selector(fleet),
    }
    return labels | ({LABEL_SHARD: shard} if shard else {})


def _metadata(fleet: Fleet, name: str, shard: str = "") -> Manifest:
    owner = {
        "apiVersion": API_VERSION,
        "kind": fleet.type.resource,
        "name": fleet.name,
        "uid": fleet.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": fleet.namespace,
        "labels": _labels(fleet, shard),
        "ownerReferences": [owner],
    }


def build_placement(fleet: Fleet, *, assignments: Mapping[str, Assignment], record: Manifest) -> Manifest:
    """The ConfigMap that shards follow as files and that a new leader reads before it decides anything.

    People can read it, but for a large one, whose files are packed with gzip.
    """
    files = {f"{shard}.json": encode(assignment) for shard, assignment in assignments.items()}
    files[PLACEMENT_KEY] = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(fleet, placement_name(fleet)),
    }
    if sum(map(len, files.values())) > PLAIN_PLACEMENT:
        packed = {f"{name}.gz": gzip.compress(text.encode(), mtime=0) for name, text in sorted(files.items())}
        manifest["binaryData"] = {name: base64.b64encode(content).decode() for name, content in packed.items()}
    else:
        manifest["data"] = dict(sorted(files.items()))
    return manifest


def placement_files(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The files that `build_placement` put in, by name; those that somebody made unreadable are left out."""
    files = dict(manifest.get("data") or {})
    for name, content in (manifest.get("binaryData") or {}).items():
        with contextlib.suppress(ValueError, OSError, EOFError, zlib.error):
            files[name.removesuffix(".gz")] = gzip.decompress(base64.b64decode(content)).decode()
    return files


def placement_size(manifest: Mapping[str, Any]) -> int:
    """Bytes, as the API server counts them."""
    packed = sum(len(content) * 3 // 4 for content in (manifest.get("binaryData") or {}).values())
    return packed + sum(len(text.encode()) for text in (manifest.get("data") or {}).values())


def _ports(fleet: Fleet) -> list[Manifest]:
    ports = [{"name": "grpc", "port": fleet.spec.listen.grpc, "targetPort": "grpc", "protocol": "TCP"}]
    if isinstance(fleet.spec, SensorFleetSpec):
        ports.append({"name": "tcp", "port": fleet.spec.listen.tcp, "targetPort": "tcp", "protocol": "TCP"})
    for port in ports:
        if port["name"] == "grpc":
            port["appProtocol"] = "kubernetes.io/h2c"
    return ports


def build_service(fleet: Fleet, shard: str, *, scraped: bool = False) -> Manifest:
    """A shard's own Service: where its peers send devices, and where the operator and Prometheus find it.

    It is the Service that is annotated for Prometheus, not the pod, which would have to be made anew.
    """
    metadata = _metadata(fleet, shard, shard)
    if scraped:
        metadata["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/path": "/metrics",
            "prometheus.io/port": str(METRICS_PORT),
        }
    metrics = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": {**selector(fleet), LABEL_SHARD: shard},
            "ports": [*_ports(fleet), metrics],
        },
    }


def build_fleet_service(fleet: Fleet) -> Manifest:
    """The fleet's Service: the one address that devices need to know."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(fleet, fleet_name(fleet)),
        "spec": {"type": "ClusterIP", "selector": selector(fleet), "ports": _ports(fleet)},
    }


def push_ports(assignments: Mapping[str, Assignment]) -> dict[str, int]:
    """The UDP port of each camera that sends RTP to whoever owns it (`rtp://:5004`), by id."""
    found = {}
    for assignment in assignments.values():
        for device in assignment.devices:
            if match := re.match(PUSHED, device.source):
                found[device.id] = int(match[1])
    return dict(sorted(found.items()))


def push_name(fleet: Fleet, device: str) -> str:
    """Name of the Service of a camera that pushes: its id, as far as a DNS label can say it, made unique."""
    unique = hashlib.blake2b(device.encode(), digest_size=4).hexdigest()
    name = re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{fleet_name(fleet)}-{name[: 62 - len(fleet_name(fleet)) - len(unique) - 1].rstrip('-')}-{unique}"


def build_push_service(fleet: Fleet, device: str, port: int, owner: str) -> Manifest:
    """The address that a camera pushes RTP to, whichever shard owns it: it stays when the owner changes."""
    metadata = _metadata(fleet, push_name(fleet, device))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "annotations": {ANNOTATION_DEVICE: device}},
        "spec": {
            "type": "ClusterIP",
            "selector": {**selector(fleet), LABEL_SHARD: owner},
            "ports": [{"name": "rtp", "port": port, "targetPort": port, "protocol": "UDP"}],
        },
    }


def build_disruption_budget(fleet: Fleet, *, evictable: bool, owner: Manifest | None = None) -> Manifest:
    """Evictions are refused: from a node that is being emptied shards are moved by a roll, which leaves no gap.

    A pod that is not ready serves nobody and may go. Where nobody can see nodes, one shard at a time may. `owner` is a
    reference to what goes when nobody is there to roll; without one the budget stays as long as its fleet.
    """
    metadata = _metadata(fleet, fleet_name(fleet))
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**metadata, "ownerReferences": [owner]} if owner else metadata,
        "spec": {
            "maxUnavailable": int(evictable),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(fleet)},
        },
    }


def build_deployment(
    fleet: Fleet,
    shard: str,
    settings: Settings,
    secrets: Sequence[str] = (),
    replaces: str = "",
    *,
    plain: bool = False,
) -> Manifest:
    """One shard; `secrets` are those of all the fleet's cameras; another `replaces` makes it roll.

    In a roll the new pod has the same assignment: it watches, for READY_SECONDS, before the old one is told to go.
    Nothing in it depends on the placement: a device that moves must not restart a pod. A `plain` one is as an earlier
    version made it: without what only matters when a node is lost.
    """
    labels = {**selector(fleet), LABEL_SHARD: shard}
    pod: Manifest = {"labels": _labels(fleet, shard)}
    spec = _pod(fleet, shard, settings, secrets, plain=plain)
    if replaces:
        pod["annotations"] = {ANNOTATION_REPLACES: replaces}
        if not plain:
            spec["affinity"] = _apart(shard)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(fleet, shard, shard),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 120,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "minReadySeconds": READY_SECONDS,
            "template": {"metadata": pod, "spec": spec},
        },
    }


def _pod(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str], *, plain: bool) -> Manifest:
    template = fleet.spec.template
    volumes: list[Manifest] = [
        {"name": "placement", "configMap": {"name": placement_name(fleet)}},
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if claim := _telemetry_claim(fleet):
        volumes.append({"name": "telemetry", "persistentVolumeClaim": {"claimName": claim}})
    # What is said here although it is the default: server-side apply leaves what we do not say as somebody else set it.
    pod: Manifest = {
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "topologyKey": spread.topology_key,
                "maxSkew": spread.max_skew,
                "whenUnsatisfiable": spread.when_unsatisfiable,
                "labelSelector": {"matchLabels": selector(fleet)},
            }
            for spread in template.topology_spread or SPREAD
        ],
        "containers": [_container(fleet, shard, settings, secrets)],
        "volumes": [
            *volumes,
            *({"name": volume, "secret": _secret(name)} for name, volume in credential_volumes(secrets).items()),
            *_model_volume(fleet),
        ],
    }
    if template.node_selector:
        pod["nodeSelector"] = dict(template.node_selector)
    own = [
        {key: value for key, value in to_manifest(toleration).items() if value != ""}
        for toleration in template.tolerations
    ]
    if own or not plain:
        pod["tolerations"] = own if plain else [*own, *(each for each in ABSENCES if not _bears(own, each))]
    if template.priority_class_name:
        pod["priorityClassName"] = template.priority_class_name
    if template.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in template.image_pull_secrets]
    return pod


def _apart(shard: str) -> Manifest:
    """Not where its predecessor is: of a node that was just lost nobody but us may know yet."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {LABEL_SHARD: shard}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _bears(tolerations: Sequence[Mapping[str, Any]], absence: Mapping[str, Any]) -> bool:
    """Whether a user has said how long a node's absence is borne."""
    return any(each.get("key", "") in ("", absence["key"]) for each in tolerations)


def is_plain(deployment: Mapping[str, Any], image: str) -> bool:
    """Whether a Deployment that runs `image` was made by an earlier version: that alone is no reason to roll it."""
    pod = deployment.get("spec", {}).get("template", {}).get("spec", {})
    return not any(each in ABSENCES for each in pod.get("tolerations") or ()) and any(
        each.get("image") == image for each in pod.get("containers") or ()
    )


def _telemetry_claim(fleet: Fleet) -> str:
    """The PersistentVolumeClaim that raw readings are kept in; empty: none."""
    if isinstance(fleet.spec, SensorFleetSpec) and fleet.spec.telemetry.archive:
        return fleet.spec.telemetry.claim
    return ""


def _model_volume(fleet: Fleet) -> list[Manifest]:
    """The volume with the fleet's own model, where it has one that is not in the image."""
    model = fleet.spec.detection.model if isinstance(fleet.spec, CameraFleetSpec) else None
    if model is not None and model.config_map_ref:
        source = {"name": model.config_map_ref.name, "optional": True}  # as a Secret
        return [{"name": "model", "configMap": source}]
    if model is not None and model.volume_ref:
        claim = {"claimName": model.volume_ref.claim_name, "readOnly": True}
        return [{"name": "model", "persistentVolumeClaim": claim}]
    return []


def credential_volumes(secrets: Sequence[str]) -> dict[str, str]:
    """Secret → name of its volume, which is the Secret's own as far as a DNS label can say it and no two share."""
    plain = {secret: f"credentials-{secret.replace('.', '-')}"[:63].rstrip("-") for secret in sorted(secrets)}
    uses = Counter(plain.values())
    names: dict[str, str] = {}
    for secret, name in plain.items():
        names[secret], attempt = name, 0
        while uses[names[secret]] > (1 if attempt == 0 else 0):
            unique = hashlib.blake2b(f"{secret}/{attempt}".encode(), digest_size=8).hexdigest()
            names[secret] = f"{name[: 63 - len(unique) - 1].rstrip('-')}-{unique}"
            attempt += 1
        uses[names[secret]] += attempt
    return names


def _secret(name: str) -> Manifest:
    # A Secret that is missing darkens its cameras; it must not keep the shard from watching the others.
    return {"secretName": name, "optional": True, "defaultMode": 0o440}


def _container(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str]) -> Manifest:
    environment = {
        "EMBEREYE_SHARD": shard,
        "EMBEREYE_FLEET": fleet.key,
        "EMBEREYE_ASSIGNMENT": f"{PLACEMENT_FOLDER}/{shard}.json",
        "EMBEREYE_HUB": settings.hub,
        "EMBEREYE_DATA": DATA_FOLDER,
        "EMBEREYE_HOST": settings.host or EVERY_ADDRESS,
        "EMBEREYE_GRPC_PORT": str(GRPC_PORT),
        "EMBEREYE_METRICS_PORT": str(METRICS_PORT),
        "EMBEREYE_CREDENTIALS": CREDENTIALS_FOLDER,
    }
    if settings.log_format == "json":
        environment["EMBEREYE_LOG_FORMAT"] = "json"
    if model := _model_volume(fleet):
        environment["EMBEREYE_MODEL"] = MODEL_FOLDER
    ports = [("grpc", GRPC_PORT), ("metrics", METRICS_PORT)]
    if isinstance(fleet.spec, SensorFleetSpec):
        environment["EMBEREYE_TCP_PORT"] = str(fleet.spec.listen.tcp)
        ports.insert(1, ("tcp", fleet.spec.listen.tcp))
        del environment["EMBEREYE_CREDENTIALS"]
        if fleet.spec.telemetry.archive:
            environment["EMBEREYE_TELEMETRY"] = TELEMETRY_FOLDER
            environment["EMBEREYE_TELEMETRY_BYTES"] = str(int(quantity(fleet.spec.telemetry.size) or 0))
    probe = {"grpc": {"port": GRPC_PORT, "service": ""}, "timeoutSeconds": 2}
    mounts: list[Manifest] = [
        {"name": "placement", "mountPath": PLACEMENT_FOLDER, "readOnly": True},
        {"name": "data", "mountPath": DATA_FOLDER},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if _telemetry_claim(fleet):
        mounts.append({"name": "telemetry", "mountPath": TELEMETRY_FOLDER})
    mounts.extend(
        {"name": volume, "mountPath": f"{CREDENTIALS_FOLDER}/{name}", "readOnly": True}
        for name, volume in credential_volumes(secrets).items()
    )
    mounts.extend({"name": volume["name"], "mountPath": MODEL_FOLDER, "readOnly": True} for volume in model)
    container: Manifest = {
        "name": "shard",
        "image": settings.image,
        "command": [],
        "args": ["shard", fleet.type.component],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 3},
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    resources = {key: value for key, value in to_manifest(fleet.spec.template.resources).items() if value}
    if resources:
        container["resources"] = resources
    return container
