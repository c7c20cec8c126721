"""The kinds of objects that are read and written on an API server, all as plain dictionaries."""

from collections.abc import Mapping
from typing import Any

from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.shared import GROUP, VERSION

ALL_NAMESPACES = "*"
CHUNK = 50  # objects per page of a list: a larger page takes more memory than the whole cache
Kind = Any  # lightkube's generic resource class, whose types would promise models instead of dictionaries


def custom(name: str, plural: str) -> Kind:
    """Return the kind of a custom resource of ours."""
    return create_namespaced_resource(GROUP, VERSION, name, plural)


CHILDREN: Mapping[str, Kind] = {
    "Deployment": create_namespaced_resource("apps", "v1", "Deployment", "deployments"),
    "Service": create_namespaced_resource("", "v1", "Service", "services"),
    "ConfigMap": create_namespaced_resource("", "v1", "ConfigMap", "configmaps"),
    "PodDisruptionBudget": create_namespaced_resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    "NetworkPolicy": create_namespaced_resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    "HorizontalPodAutoscaler": create_namespaced_resource(
        "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
    ),
    "ServiceMonitor": create_namespaced_resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    "PrometheusRule": create_namespaced_resource("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    "ScaledObject": create_namespaced_resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    "GRPCRoute": create_namespaced_resource("gateway.networking.k8s.io", "v1", "GRPCRoute", "grpcroutes"),
    "TCPRoute": create_namespaced_resource("gateway.networking.k8s.io", "v1alpha2", "TCPRoute", "tcproutes"),
}
# Kinds whose CustomResourceDefinitions belong to other projects.
OPTIONAL = ("ServiceMonitor", "PrometheusRule", "ScaledObject", "GRPCRoute", "TCPRoute")
UNWATCHED = ("NetworkPolicy", "HorizontalPodAutoscaler", *OPTIONAL)
FLEETS: Mapping[str, Kind] = {name: custom(name, fleet.plural) for name, fleet in FLEET_TYPES.items()}
PODS: Kind = create_namespaced_resource("", "v1", "Pod", "pods")
NODES: Kind = create_global_resource("", "v1", "Node", "nodes")
EVENTS: Kind = create_namespaced_resource("", "v1", "Event", "events")
CLAIMS: Kind = create_namespaced_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SECRETS: Kind = create_namespaced_resource("", "v1", "Secret", "secrets")
JOBS: Kind = create_namespaced_resource("batch", "v1", "Job", "jobs")
CRON_JOBS: Kind = create_namespaced_resource("batch", "v1", "CronJob", "cronjobs")
POD_TEMPLATES: Kind = create_namespaced_resource("", "v1", "PodTemplate", "podtemplates")
RBAC = "rbac.authorization.k8s.io"
ROLES: Kind = create_namespaced_resource(RBAC, "v1", "Role", "roles")
CLUSTER_ROLES: Kind = create_global_resource(RBAC, "v1", "ClusterRole", "clusterroles")
LEASES: Kind = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")


def api_version(kind: Kind) -> str:
    """Return `group/version`, or `version` for the core group."""
    resource = kind._api_info.resource
    return f"{resource.group}/{resource.version}" if resource.group else str(resource.version)
