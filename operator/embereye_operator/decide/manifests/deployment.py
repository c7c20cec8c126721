"""The Deployment of a shard, and its pod.

Each shard is a Deployment with one replica, so that shards can be replaced one by one, and each has its own assignment.
A roll-out starts the new pod beside the old one (maxSurge 1), and both watch the same devices until the new one has
been ready for READY_SECONDS. A new `replaces` annotation moves a pod off its node in the same way. The pod depends on
the fleet's manifest and the operator's options, never on the placement.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.names import LABEL_SHARD
from embereye_operator.api.schema import Manifest, manifest, to_manifest
from embereye_operator.api.shared import TopologySpread
from embereye_operator.decide.manifests.container import (
    LINGER_SECONDS,
    PRE_STOP_SECONDS,
    SUCCESSOR_SECONDS,
    build_container,
    build_user,
)
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.manifests.volumes import (
    credential_volumes,
    identity_volume,
    model_volumes,
    secret_volume,
    telemetry_claim,
)

ANNOTATION_REPLACES = "embereye.dev/replaces"  # on a pod: the uid of the pod that it replaced
# The sum of preStop, the wait for a successor, the shard's drain, gRPC's and the spool's end, and the wait for an
# absent hub.
GRACE_SECONDS = PRE_STOP_SECONDS + SUCCESSOR_SECONDS + 2 + 6 + LINGER_SECONDS
READY_SECONDS = 5  # how long a new pod must be ready before its predecessor is deleted
# The same if the predecessor's node is lost: it watches nothing, but Services still send it a part of the connections.
LOST_READY_SECONDS = 1
# How long a pod stays bound to a silent node: Kubernetes' default of 300 s would follow the 50 s until it notices. For
# kubelet's own report "not ready" the time is longer, because its pods may still run.
ABSENCES: tuple[Manifest, ...] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
)
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# A scheduler ignores all constraints on a node that lacks the label of any, and nodes outside clouds have no zone.
# Shards are therefore spread over zones by anti-affinity (`_far`).
SPREAD = (TopologySpread(HOSTNAME),)


def build_deployment(
    fleet: Fleet,
    shard: str,
    settings: Settings,
    secrets: Sequence[str] = (),
    replaces: str = "",
    *,
    is_lost: bool = False,
) -> Manifest:
    """Build one shard's Deployment; `secrets` are those of all the fleet's cameras; a new `replaces` rolls it.

    In a roll-out the new pod has the same assignment: it watches for READY_SECONDS before the old one must end, unless
    `is_lost`: the old one's node is lost. Nothing in it depends on the placement, so that moving a device restarts no
    pod.
    """
    labels = {**fleet.names.selector, LABEL_SHARD: shard}
    pod: Manifest = {"labels": fleet.names.labels(shard)}
    pod_spec = _build_pod(fleet, shard, settings, secrets)
    if replaces:
        pod["annotations"] = {ANNOTATION_REPLACES: replaces}
    if terms := _far(fleet, shard if replaces else ""):
        pod_spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": 120,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": LOST_READY_SECONDS if is_lost else READY_SECONDS,
        "template": {"metadata": pod, "spec": pod_spec},
    }
    return manifest("apps/v1", "Deployment", fleet.names.metadata(shard, shard), spec)


def _build_pod(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str]) -> Manifest:
    template = fleet.spec.template
    # Some defaults are explicit: server-side apply leaves omitted fields as somebody else set them.
    pod: Manifest = {
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            **build_user(settings),
            **({} if settings.user is None else {"fsGroup": settings.user}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "topologyKey": spread.topology_key,
                "maxSkew": spread.max_skew,
                "whenUnsatisfiable": spread.when_unsatisfiable,
                "labelSelector": {"matchLabels": fleet.names.selector},
            }
            for spread in template.topology_spread or SPREAD
        ],
        "containers": [build_container(fleet, shard, settings, secrets)],
        "volumes": _build_volumes(fleet, shard, secrets),
    }
    if template.node_selector:
        pod["nodeSelector"] = dict(template.node_selector)
    declared = [
        {key: value for key, value in to_manifest(toleration).items() if value != ""}
        for toleration in template.tolerations
    ]
    pod["tolerations"] = [*declared, *(absence for absence in ABSENCES if not _is_tolerated(declared, absence))]
    if template.priority_class_name:
        pod["priorityClassName"] = template.priority_class_name
    fleet_secrets = [secret.name for secret in template.image_pull_secrets]
    if pulled := dict.fromkeys([*fleet_secrets, *settings.image_pull_secrets]):
        pod["imagePullSecrets"] = [{"name": name} for name in pulled]
    return pod


def _build_volumes(fleet: Fleet, shard: str, secrets: Sequence[str]) -> list[Manifest]:
    claim = telemetry_claim(fleet)
    return [
        {"name": "placement", "configMap": {"name": fleet.names.placement}},
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        *([{"name": "telemetry", "persistentVolumeClaim": {"claimName": claim}}] if claim else ()),
        identity_volume(shard),
        *({"name": volume, "secret": secret_volume(name)} for name, volume in credential_volumes(secrets).items()),
        *model_volumes(fleet),
    ]


def _far(fleet: Fleet, replaced: str) -> list[Manifest]:
    """Build a shard's anti-affinity: to other shards of its fleet in a zone, unless the fleet declares a spread.

    It is strongest against the pod that it replaces as the shard `replaced`, whose lost node Kubernetes may not have
    noticed yet.
    """
    wanted: list[tuple[int, str, Mapping[str, str]]] = []
    if replaced:
        wanted.append((100, HOSTNAME, {LABEL_SHARD: replaced}))
    if not fleet.spec.template.topology_spread:
        wanted.append((50, ZONE, fleet.names.selector))
    return [
        {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}}
        for weight, key, labels in wanted
    ]


def _is_tolerated(tolerations: Sequence[Mapping[str, Any]], absence: Mapping[str, Any]) -> bool:
    """True if the fleet declares how long a node's absence is tolerated."""
    return any(
        entry.get("key", "") in ("", absence["key"]) and entry.get("effect", "") in ("", absence["effect"])
        for entry in tolerations
    )
