"""An alert, a recording rule, and the labels by which their expressions group series.

`alerts.py` lists the alerts of EmberEye. The module `monitoring` of an add-on lists the add-on's.
"""

from dataclasses import dataclass
from typing import Literal

# The hub of `embereye up` serves docs/runbooks here; `kubectl port-forward` makes a cluster's hub available here. The
# chart replaces the address by its value.
RUNBOOKS = "http://127.0.0.1:8080/runbooks"

# `cluster` distinguishes equal names in several clusters, which Thanos, Mimir and Grafana evaluate or show together. A
# single Prometheus has no such label.
FLEET = "cluster, namespace, kind, fleet"
SHARD = f"{FLEET}, shard, pod, instance"
PROCESS = f"{FLEET}, job, shard, pod, instance"
# A label of their pods, which scraping preserves, distinguishes hubs of a release, and releases in a namespace.
RELEASE = "cluster, namespace, job, app_kubernetes_io_instance"
HUB = "cluster, namespace, pod, instance"
ZONE = "cluster, namespace, zone, sign"
# The alert that fires if the series of a scope are missing.
WHEN_ABSENT = {
    "zone": "EmberEyeHubDown",
    "fleet": "EmberEyeOperatorAbsent",
    "shard": "EmberEyeShardMetricsMissing",
    "release": "EmberEyeHubDown",
}


@dataclass(frozen=True)
class Alert:
    """One alerting rule."""

    name: str
    severity: Literal["critical", "warning"]
    # The subject of an alert, and so the meaning of its namespace label.
    scope: Literal["zone", "fleet", "shard", "release"]
    expression: str
    wait: str  # how long the expression must be true
    summary: str
    description: str
    absence: str = ""  # the alert that fires if its series are missing, or why there is none; "": that of its scope

    @property
    def when_absent(self) -> str:
        """The alert that fires if this one's series are missing, or the reason why there is none."""
        return self.absence or WHEN_ABSENT[self.scope]


@dataclass(frozen=True)
class Recording:
    """One recording rule."""

    name: str
    expression: str
