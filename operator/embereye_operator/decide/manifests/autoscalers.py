"""External autoscalers, if the cluster has their kinds: HorizontalPodAutoscaler and KEDA's ScaledObject.

`build_children` adds one if `spec.autoscaling.mode` is hpa or keda. The autoscaler does no arithmetic: the operator
exports the number that it requires, and the target of 1 per shard makes the autoscaler copy that number into
spec.shards. If the metric is missing, the number stays. `scaling/followers.py` judges if the object works.
"""

from collections.abc import Mapping
from typing import Any

from embereye.units import SECOND
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest, manifest
from embereye_operator.api.shared import API_VERSION

REQUIRED = "embereye_fleet_required_shards"
# Offered if the server stores spec.behavior.*.tolerance: Kubernetes 1.33 and 1.34 with the feature gate
# HPAConfigurableTolerance, and 1.35 by default.
TOLERANCE = "HorizontalPodAutoscaler.tolerance"


def build_autoscaler(fleet: Fleet, metadata: Manifest, *, tolerance: bool) -> Manifest:
    """Build the HorizontalPodAutoscaler of mode hpa: an adapter must serve the operator's number as external metric.

    `tolerance`: the server supports a tolerance per autoscaler, so that it follows a step of one shard among many.
    """
    limits = fleet.spec.autoscaling
    behavior = _behavior(fleet)
    if tolerance:
        behavior = {direction: {**rules, "tolerance": "0"} for direction, rules in behavior.items()}
    required = {
        "metric": {"name": REQUIRED, "selector": {"matchLabels": dict(_labels(fleet))}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }
    spec = {
        "scaleTargetRef": _target(fleet),
        "minReplicas": limits.min_shards,
        "maxReplicas": limits.max_shards,
        "metrics": [{"type": "External", "external": required}],
        "behavior": behavior,
    }
    return manifest("autoscaling/v2", "HorizontalPodAutoscaler", metadata, spec)


def build_scaled_object(fleet: Fleet, metadata: Manifest, prometheus: str) -> Manifest:
    """Build KEDA's ScaledObject of mode keda. If the metric is missing, the shards stay; KEDA's default would be 0."""
    limits = fleet.spec.autoscaling
    query = f"max({REQUIRED}{{{','.join(f'{name}={value!r}' for name, value in _labels(fleet).items())}}})"
    required = {
        "serverAddress": prometheus,
        "query": query.replace("'", '"'),
        "threshold": "1",
        "ignoreNullValues": "false",
    }
    spec = {
        "scaleTargetRef": _target(fleet),
        "pollingInterval": 5,
        "minReplicaCount": limits.min_shards,
        "maxReplicaCount": limits.max_shards,
        # If KEDA ignores `behavior`, which it documents from 2.17 on, it scales to `replicas`: too many shards
        # rather than too few.
        "fallback": {"failureThreshold": 3, "replicas": limits.max_shards, "behavior": "currentReplicas"},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(fleet)}},
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": required}],
    }
    return manifest("keda.sh/v1alpha1", "ScaledObject", metadata, spec)


def _target(fleet: Fleet) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": fleet.type.resource, "name": fleet.name}


def _labels(fleet: Fleet) -> Mapping[str, str]:
    return {"namespace": fleet.namespace, "kind": fleet.kind, "fleet": fleet.name}


def _behavior(fleet: Fleet) -> Manifest:
    window = min(3600, fleet.spec.autoscaling.scale_down.stabilization // SECOND)
    step: Any = [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ]
    return {
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": step},
        "scaleDown": {"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": step},
    }
