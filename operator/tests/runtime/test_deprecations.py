"""The operator uses no API that the API server calls deprecated. `make test-releases` asks old and new servers."""

from typing import Any

import pytest
from harness.servers.apiserver import ApiServer, path_of

from embereye_operator.decide.manifests.autoscalers import TOLERANCE
from embereye_operator.runtime.kubernetes.client import resources

from ..api.test_schema import camera, manifest
from ..fakes import World

pytestmark = pytest.mark.apiserver
KINDS = {
    **{name: kind for name, kind in resources.CHILDREN.items() if name not in resources.OPTIONAL},
    **resources.FLEETS,
    **{name: kind for name, kind in vars(resources).items() if hasattr(kind, "_api_info")},
}


def test_the_api_server_warns_of_a_deprecated_kind(cluster: ApiServer) -> None:
    cluster.warnings.clear()
    cluster.request("GET", "/api/v1/componentstatuses")  # deprecated in 1.19, and still served
    assert "deprecated" in cluster.warnings[0]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_the_operator_is_served_and_current(cluster: ApiServer, name: str) -> None:
    version, plural = resources.api_version(KINDS[name]), KINDS[name]._api_info.plural
    cluster.warnings.clear()
    cluster.request("GET", f"/{'apis' if '/' in version else 'api'}/{version}/{plural}")
    assert cluster.warnings == []


EXPOSED = {"type": "NodePort", "advertisedHost": "10.0.0.1"}
SPREAD = {"topologySpread": [{"topologyKey": "zone"}], "priorityClassName": "system-cluster-critical"}
SPECS = {
    "SensorFleet": {"sensors": [{"id": "s-1", "zone": "hall"}], "shards": 2, "expose": EXPOSED, "template": SPREAD},
    "CameraFleet": {"cameras": [camera()], "autoscaling": {"mode": "hpa", "maxShards": 4}},
}


TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}


def stores_tolerance(cluster: ApiServer, namespace: str) -> bool:
    """True if the server knows the tolerance of an autoscaler, as the operator finds out: before 1.33 none does."""
    rules = {
        "behavior": {"scaleUp": {"tolerance": "0"}},
        "scaleTargetRef": TARGET,
        "maxReplicas": 1,
    }
    autoscaler = {"metadata": {"name": "a"}, "spec": rules}
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers?dryRun=All"
    stored: Any = cluster.request("POST", path, autoscaler)
    return "tolerance" in stored["spec"]["behavior"]["scaleUp"]


@pytest.mark.parametrize("kind", SPECS)
async def test_no_object_of_the_operator_has_a_deprecated_or_unknown_field(
    cluster: ApiServer, namespace: str, kind: str
) -> None:
    world = World(manifest(kind, SPECS[kind], namespace=namespace, uid="0f"))
    world.runtime.missing = set(resources.OPTIONAL) | (set() if stores_tolerance(cluster, namespace) else {TOLERANCE})
    await world.run_until_complete()
    written: list[Any] = list(world.runtime.objects.values())
    scaled = {"HorizontalPodAutoscaler"} if kind == "CameraFleet" else set()
    ours = {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy"}
    assert {child["kind"] for child in written} == ours | scaled
    cluster.warnings.clear()
    for child in written:
        child["metadata"].pop("resourceVersion", None)
        path = f"{path_of(child)}?dryRun=All&fieldManager=test&fieldValidation=Warn"
        cluster.request("PATCH", path, child, "application/apply-patch+yaml")
    assert cluster.warnings == []
