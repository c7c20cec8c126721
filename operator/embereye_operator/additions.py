"""Children that a fleet has only where the cluster knows their kind: autoscalers, monitors, rules, a network policy."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from embereye_operator.model import API_VERSION, METRICS_PORT, SECOND, Fleet, SensorFleetSpec
from embereye_operator.schema import Manifest

REQUIRED = "embereye_fleet_required_shards"
# What a server offers that stores spec.behavior.*.tolerance: Kubernetes 1.33 and 1.34 where the feature gate
# HPAConfigurableTolerance is on, which it is by default from 1.35.
TOLERANCE = "HorizontalPodAutoscaler.tolerance"


def build_autoscaler(fleet: Fleet, metadata: Manifest, *, tolerance: bool) -> Manifest:
    """The HorizontalPodAutoscaler of mode hpa: an adapter must serve the operator's number as an external metric.

    `tolerance`: the server knows one of its own for each, so that a single step of many shards is followed.
    """
    limits = fleet.spec.autoscaling
    behavior = _behavior(fleet)
    if tolerance:
        behavior = {direction: {**rules, "tolerance": "0"} for direction, rules in behavior.items()}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": _target(fleet),
            "minReplicas": limits.min_shards,
            "maxReplicas": limits.max_shards,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": REQUIRED, "selector": {"matchLabels": dict(_labels(fleet))}},
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
            "behavior": behavior,
        },
    }


def build_scaled_object(fleet: Fleet, metadata: Manifest, prometheus: str) -> Manifest:
    """KEDA's ScaledObject of mode keda. A metric that is lost must hold the shards, where KEDA's defaults make it 0."""
    limits = fleet.spec.autoscaling
    query = f"max({REQUIRED}{{{','.join(f'{name}={value!r}' for name, value in _labels(fleet).items())}}})"
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": _target(fleet),
            "pollingInterval": 5,
            "minReplicaCount": limits.min_shards,
            "maxReplicaCount": limits.max_shards,
            # Should KEDA not honour `behavior`, which its documentation has from 2.17 on, it goes to `replicas`: too
            # many shards rather than too few.
            "fallback": {"failureThreshold": 3, "replicas": limits.max_shards, "behavior": "currentReplicas"},
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(fleet)}},
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": prometheus,
                        "query": query.replace("'", '"'),
                        "threshold": "1",
                        "ignoreNullValues": "false",
                    },
                }
            ],
        },
    }


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


def build_network_policy(
    fleet: Fleet, metadata: Manifest, selector: Mapping[str, str], udp: Sequence[int] = ()
) -> Manifest:
    """What may come in to a shard: devices, senders, peers, operator and Prometheus, on their ports.

    `udp` are the ports that cameras push RTP to.
    """
    ports: list[Any] = ["grpc", METRICS_PORT]
    if isinstance(fleet.spec, SensorFleetSpec):
        ports.append("tcp")
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [
                        *({"port": port, "protocol": "TCP"} for port in ports),
                        *({"port": port, "protocol": "UDP"} for port in udp),
                    ]
                }
            ],
        },
    }


def build_service_monitor(fleet: Fleet, metadata: Manifest, selector: Mapping[str, str], shard_label: str) -> Manifest:
    """Makes Prometheus scrape every shard through its own Service."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {
            "selector": {
                "matchLabels": dict(selector),
                "matchExpressions": [{"key": shard_label, "operator": "Exists"}],
            },
            "endpoints": [{"port": "metrics", "interval": "15s"}],
            "targetLabels": [shard_label],
        },
    }


def _sanitized(label: str) -> str:
    """`label` as Prometheus Operator spells it."""
    return re.sub(r"\W", "_", label)


def build_rules(fleet: Fleet, metadata: Manifest, shard_label: str) -> Manifest:
    """The fleet's own alerts, on what the operator says about it, and on what its shards say about themselves."""
    labels = ",".join(f'{name}="{value}"' for name, value in _labels(fleet).items())
    runbooks = fleet.spec.alerts.runbook_url.rstrip("/")

    def rule(name: str, expression: str, wait: str, severity: str, *text: str) -> Manifest:
        annotations = dict(zip(("summary", "description"), text, strict=True))
        if runbooks:
            annotations["runbook_url"] = f"{runbooks}/{name.lower()}"
        labels = {**fleet.spec.alerts.labels, "severity": severity}
        return {"alert": name, "expr": expression, "for": wait, "labels": labels, "annotations": annotations}

    def condition(name: str, value: int) -> str:
        return f'embereye_fleet_condition{{{labels},condition="{name}"}} == {value}'

    see = f"kubectl -n {fleet.namespace} describe {fleet.type.short} {fleet.name}"
    rules = [
        rule("EmberEyeDevicesDark", condition("Covered", 0), "1m", "critical",
             f"Devices of {fleet.key} are not watched", f"The fleet's status names them: {see}"),
        rule("EmberEyeFleetNotReady", condition("Ready", 0), "5m", "warning",
             f"{fleet.key} lacks shards", f"Its Ready condition says which and why: {see}"),
        rule("EmberEyeFleetDegraded", condition("Degraded", 1), "5m", "warning",
             f"{fleet.key} is not as declared", f"Its Degraded condition says why: {see}"),
        rule("EmberEyeFleetAtMaximum",
             f"embereye_fleet_utilization_ratio{{{labels}}} > 0.9 and on(namespace, kind, fleet) "
             f"{REQUIRED}{{{labels}}} >= {fleet.spec.autoscaling.max_shards}", "10m", "warning",
             f"{fleet.key} can grow no further",
             "Raise spec.autoscaling.maxShards, or lower frame rates."),
    ]  # fmt: skip
    if not isinstance(fleet.spec, SensorFleetSpec):
        shards = f'namespace="{fleet.namespace}",{_sanitized(shard_label)}=~"{metadata["name"]}-[0-9]+"'
        rules.append(
            rule("EmberEyeClipsFailing", f"max by (namespace, pod) (embereye_camera_clips_failing{{{shards}}}) == 1",
                 "5m", "warning", f"Shards of {fleet.key} cannot write the pictures of their alarms",
                 "Alarms are not affected. The shards' logs and the console say why, mostly a full disk.")
        )  # fmt: skip
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": [{"name": f"embereye.{fleet.kind}.{fleet.namespace}.{fleet.name}", "rules": rules}]},
    }
