"""The Deployment of a shard, and its pod."""

from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, to_manifest
from embereye_operator.api.shared import TopologySpread
from embereye_operator.decide.manifests.container import (
    LINGER_SECONDS,
    PRE_STOP_SECONDS,
    SUCCESSOR_SECONDS,
    build_container,
    build_user,
)
from embereye_operator.decide.manifests.names import LABEL_SHARD, build_labels, build_metadata, placement_name, selector
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.manifests.volumes import (
    credential_volumes,
    identity_volume,
    model_volume,
    secret_volume,
    telemetry_claim,
)

ANNOTATION_REPLACES = "embereye.dev/replaces"  # of a pod: the uid of the one it was made to replace
# preStop, what is waited for a successor, the shard's drain, what gRPC and the spool need after it, and what is waited
# for a hub that is away.
GRACE_SECONDS = PRE_STOP_SECONDS + SUCCESSOR_SECONDS + 2 + 6 + LINGER_SECONDS
READY_SECONDS = 5  # that a new pod must have been ready until the one it replaces goes
# How long a pod stays bound to a node that does not tell how it is: Kubernetes' own 300 s begin after the 50 s that it
# takes to notice. Kubelet's own word "not ready" is less: its pods may well go on meanwhile.
ABSENCES: tuple[Manifest, ...] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
)
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
# Of several constraints a scheduler heeds none on a node that lacks the label of any, and nodes outside of clouds have
# no zone: over zones shards are spread by what they would rather not be near (`_far`).
SPREAD = (TopologySpread(HOSTNAME),)


def build_deployment(
    fleet: Fleet,
    shard: str,
    settings: Settings,
    secrets: Sequence[str] = (),
    replaces: str = "",
) -> Manifest:
    """One shard; `secrets` are those of all the fleet's cameras; another `replaces` makes it roll.

    In a roll the new pod has the same assignment: it watches, for READY_SECONDS, before the old one is told to go.
    Nothing in it depends on the placement: a device that moves must not restart a pod.
    """
    labels = {**selector(fleet), LABEL_SHARD: shard}
    pod: Manifest = {"labels": build_labels(fleet, shard)}
    spec = _build_pod(fleet, shard, settings, secrets)
    if replaces:
        pod["annotations"] = {ANNOTATION_REPLACES: replaces}
    if terms := _far(fleet, shard if replaces else ""):
        spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(fleet, shard, shard),
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


def _build_pod(fleet: Fleet, shard: str, settings: Settings, secrets: Sequence[str]) -> Manifest:
    template = fleet.spec.template
    volumes: list[Manifest] = [
        {"name": "placement", "configMap": {"name": placement_name(fleet)}},
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if claim := telemetry_claim(fleet):
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
            **build_user(settings),
            **({} if settings.user is None else {"fsGroup": settings.user}),
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
        "containers": [build_container(fleet, shard, settings, secrets)],
        "volumes": [
            *volumes,
            identity_volume(shard),
            *({"name": volume, "secret": secret_volume(name)} for name, volume in credential_volumes(secrets).items()),
            *model_volume(fleet),
        ],
    }
    if template.node_selector:
        pod["nodeSelector"] = dict(template.node_selector)
    own = [
        {key: value for key, value in to_manifest(toleration).items() if value != ""}
        for toleration in template.tolerations
    ]
    pod["tolerations"] = [*own, *(each for each in ABSENCES if not _bears(own, each))]
    if template.priority_class_name:
        pod["priorityClassName"] = template.priority_class_name
    own_secrets = [secret.name for secret in template.image_pull_secrets]
    if pulled := dict.fromkeys([*own_secrets, *settings.image_pull_secrets]):
        pod["imagePullSecrets"] = [{"name": name} for name in pulled]
    return pod


def _far(fleet: Fleet, replaced: str) -> list[Manifest]:
    """What a shard would rather not be near: others of its fleet in a zone, unless users say how shards are spread.

    Least of all the pod that it takes the place of as the shard `replaced`: of a node that was just lost nobody but us
    may know yet.
    """
    wanted: list[tuple[int, str, Mapping[str, str]]] = []
    if replaced:
        wanted.append((100, HOSTNAME, {LABEL_SHARD: replaced}))
    if not fleet.spec.template.topology_spread:
        wanted.append((50, ZONE, selector(fleet)))
    return [
        {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}}
        for weight, key, labels in wanted
    ]


def _bears(tolerations: Sequence[Mapping[str, Any]], absence: Mapping[str, Any]) -> bool:
    """Whether a user has said how long a node's absence is borne."""
    return any(
        each.get("key", "") in ("", absence["key"]) and each.get("effect", "") in ("", absence["effect"])
        for each in tolerations
    )
