"""The container of a shard: its environment, probes and mounts.

`build_deployment` calls `build_container` for the only container of a shard's pod. A shard gets its start options as
environment variables; devices and settings are in its assignment, so moving a device restarts no pod. The local runtime
starts the same container as a process: it replaces the folders and ports in these variables.
"""

from collections.abc import Sequence

from embereye_operator.api.cameras import CameraFleetSpec
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, to_manifest
from embereye_operator.api.sensors import SensorFleetSpec
from embereye_operator.api.shared import CONTROL_PORT, GRPC_PORT, METRICS_PORT
from embereye_operator.decide.manifests.compare import quantity
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.manifests.volumes import (
    CANDIDATE_MODEL,
    MODEL,
    credential_volumes,
    model_volumes,
    telemetry_claim,
)
from embereye_operator.decide.scaling.law import CAPACITY

PLACEMENT_FOLDER = "/etc/embereye/placement"
CREDENTIALS_FOLDER = "/etc/embereye/credentials"
IDENTITY_FOLDER = "/etc/embereye/identity"
MODEL_FOLDERS = {  # by volume: the variable, and the path
    MODEL: ("EMBEREYE_MODEL", "/etc/embereye/model"),
    CANDIDATE_MODEL: ("EMBEREYE_CANDIDATE_MODEL", "/etc/embereye/candidate-model"),
}
DATA_FOLDER = "/var/lib/embereye"
TELEMETRY_FOLDER = f"{DATA_FOLDER}/telemetry"
# For camera shards (False) and sensor shards (True). Measured: 220 MB with 100 JPEG cameras, and as much again in its
# decoders on two cores; up to 16 MB more for each camera with H.264 at 1080p; 262 MB with 2,000 thermal sensors, 75 MB
# with 100. The limits are far above, because a shard killed for memory watches nothing. CPU has no limit: during a fire
# all of it should be used.
DEFAULT_RESOURCES: dict[bool, Manifest] = {
    False: {"requests": {"cpu": "100m", "memory": "384Mi"}, "limits": {"memory": "4Gi"}},
    True: {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
}
LINGER_SECONDS = 60  # how long a leaving shard waits for an absent hub, because its evidence would be lost with its pod
SUCCESSOR_SECONDS = 20  # how long a shard runs until its successor does: the start-up time of a pod with a local image
PRE_STOP_SECONDS = 2  # for Services to stop sending new connections here
EVERY_ADDRESS = "[::]"  # IPv4 and IPv6, if the host has both


def shard_capacity(fleet: Fleet) -> float:
    """Return the cores that one shard can use: those of its container; for a sensor shard at most one event loop."""
    resources = fleet.spec.template.resources
    stated = quantity(resources.limits.get("cpu") or resources.requests.get("cpu") or CAPACITY)
    cores = float(stated) if stated else CAPACITY
    return min(cores, CAPACITY) if isinstance(fleet.spec, SensorFleetSpec) else cores


def _tls_environment(fleet: Fleet) -> dict[str, str]:
    """Return the certificate for devices and the authorities of theirs; empty without TLS."""
    tls = fleet.spec.access and fleet.spec.access.tls
    if not tls:
        return {}
    certificate = f"{CREDENTIALS_FOLDER}/{tls.secret_ref.name}" if tls.secret_ref else IDENTITY_FOLDER
    clients = {"EMBEREYE_CLIENT_CA": f"{CREDENTIALS_FOLDER}/{tls.clients.ca_ref.name}"} if tls.clients else {}
    return {"EMBEREYE_TLS": certificate, **clients}


def build_container(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str]) -> Manifest:
    """Build the container of `shard`: its environment, ports, probes and mounts."""
    ready: Manifest = {"grpc": {"port": GRPC_PORT, "service": ""}, "timeoutSeconds": 2}
    alive = ready
    if _tls_environment(fleet):
        # The kubelet supports no TLS for gRPC probes.
        ready, alive = (
            {"httpGet": {"path": path, "port": "metrics"}, "timeoutSeconds": 2} for path in ("/readyz", "/healthz")
        )
    environment = _environment(fleet, shard, settings, secrets)
    ports = fleet.ports | {"grpc": GRPC_PORT, "control": CONTROL_PORT, "metrics": METRICS_PORT}
    container: Manifest = {
        "name": "shard",
        "image": settings.image,
        "command": [],
        "args": ["shard", fleet.type.component],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "startupProbe": {**ready, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**ready, "periodSeconds": 2, "failureThreshold": 2},
        # On a busy node a shard that works may take seconds to answer. A restart would leave its devices unwatched.
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 3},
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            **build_user(settings),
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(fleet, secrets),
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    container["resources"] = build_resources(fleet)
    return container


def _environment(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str]) -> dict[str, str]:
    environment = {
        "EMBEREYE_SHARD": shard,
        "EMBEREYE_FLEET": fleet.key,
        "EMBEREYE_ASSIGNMENT": f"{PLACEMENT_FOLDER}/{shard}.json",
        "EMBEREYE_HUB": settings.hub,
        "EMBEREYE_DATA": DATA_FOLDER,
        "EMBEREYE_HOST": settings.host or EVERY_ADDRESS,
        "EMBEREYE_GRPC_PORT": str(GRPC_PORT),
        "EMBEREYE_CONTROL_PORT": str(CONTROL_PORT),
        "EMBEREYE_METRICS_PORT": str(METRICS_PORT),
        "EMBEREYE_LINGER": str(LINGER_SECONDS),
        "EMBEREYE_SUCCESSOR": str(SUCCESSOR_SECONDS),
        "EMBEREYE_IDENTITY": IDENTITY_FOLDER,
        "EMBEREYE_CREDENTIALS": CREDENTIALS_FOLDER,
    }
    if settings.log_format == "json":
        environment["EMBEREYE_LOG_FORMAT"] = "json"
    if settings.tracing:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = settings.tracing
    environment |= dict(MODEL_FOLDERS[volume["name"]] for volume in model_volumes(fleet))
    if isinstance(fleet.spec, CameraFleetSpec) and fleet.spec.decoding.hardware != "none":
        environment["EMBEREYE_HARDWARE_DECODING"] = fleet.spec.decoding.hardware
    if isinstance(fleet.spec, SensorFleetSpec):
        others = {name: port for name, port in fleet.ports.items() if name != "grpc"}
        environment |= {f"EMBEREYE_{name.upper()}_PORT": str(port) for name, port in others.items()}
        if not secrets:
            del environment["EMBEREYE_CREDENTIALS"]
        if fleet.spec.telemetry.archive:
            environment["EMBEREYE_TELEMETRY"] = TELEMETRY_FOLDER
            environment["EMBEREYE_TELEMETRY_BYTES"] = str(int(quantity(fleet.spec.telemetry.size) or 0))
    return environment | _tls_environment(fleet)


def _mounts(fleet: Fleet, secrets: Sequence[str]) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": "placement", "mountPath": PLACEMENT_FOLDER, "readOnly": True},
        {"name": "identity", "mountPath": IDENTITY_FOLDER, "readOnly": True},
        {"name": "data", "mountPath": DATA_FOLDER},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if telemetry_claim(fleet):
        mounts.append({"name": "telemetry", "mountPath": TELEMETRY_FOLDER})
    mounts.extend(
        {"name": volume, "mountPath": f"{CREDENTIALS_FOLDER}/{name}", "readOnly": True}
        for name, volume in credential_volumes(secrets).items()
    )
    mounts.extend(
        {"name": volume["name"], "mountPath": MODEL_FOLDERS[volume["name"]][1], "readOnly": True}
        for volume in model_volumes(fleet)
    )
    return mounts


def build_user(settings: Settings) -> Manifest:
    """Return the user of a pod or a container; empty if the cluster chooses, as on OpenShift."""
    return {} if settings.user is None else {"runAsUser": settings.user, "runAsGroup": settings.user}


def build_resources(fleet: Fleet) -> Manifest:
    """Return the fleet's resources for a shard, with defaults for resources that it does not mention.

    A default for a mentioned resource could contradict it, for example a limit below the declared request.
    """
    declared = {key: dict(value) for key, value in to_manifest(fleet.spec.template.resources).items() if value}
    named = {resource for part in declared.values() for resource in part}
    for part, defaults in DEFAULT_RESOURCES[isinstance(fleet.spec, SensorFleetSpec)].items():
        added = {resource: amount for resource, amount in defaults.items() if resource not in named}
        if added:
            declared[part] = {**added, **declared.get(part, {})}
    return declared
