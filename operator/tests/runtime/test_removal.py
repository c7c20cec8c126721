"""On a real API server, fields that a user removes disappear from children, and additions by others stay."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.servers.apiserver import ApiServer, path_of
from lightkube import AsyncClient, KubeConfig

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.decide.manifests.names import LABEL_ALLOWED
from embereye_operator.decide.manifests.settings import Settings
from embereye_operator.decide.ownership.applied import ANNOTATION_APPLIED, with_updates_applied
from embereye_operator.reconcile.reconcile import reconcile
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, OPTIONAL
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

from ..api.test_schema import camera, manifest
from ..processes.test_operator import create, sensor_fleet

SETTINGS = Settings(image="embereye:test", hub="127.0.0.1:9")
REVISION = "deployment.kubernetes.io/revision"


class Ground:
    """A namespace with a fleet, and an operator's passes over it, one at a time."""

    def __init__(self, cluster: ApiServer, namespace: str, runtime: KubernetesRuntime) -> None:
        self.cluster, self.namespace, self.runtime = cluster, namespace, runtime
        self.fleet = ""
        self.settings = SETTINGS

    async def declare(self, document: Any) -> None:
        self.fleet = path_of(await asyncio.to_thread(create, self.cluster, document))
        await self.run_until_complete()

    async def change(self, spec: Any) -> None:
        await asyncio.to_thread(self.cluster.merge, self.fleet, {"spec": spec})
        await self.run_until_complete()

    async def run_until_complete(self) -> list[str]:
        """Run two passes and return the actions of the second."""
        await self.step()
        return await self.step()

    async def step(self) -> list[str]:
        await self.runtime.resync()
        fleet = parse_fleet(await asyncio.to_thread(self.cluster.get, self.fleet))
        return list((await reconcile(fleet, self.runtime, time.time_ns, self.settings)).actions)

    async def children(self) -> dict[tuple[str, str], Any]:
        """Return every child's content, without fields of the API server and without epochs."""
        contents = {}
        for kind, resource in CHILDREN.items():
            info = resource._api_info.resource
            version = f"{info.group}/{info.version}" if info.group else info.version
            group = (
                f"/{'apis' if info.group else 'api'}/{version}/namespaces/{self.namespace}/{resource._api_info.plural}"
            )
            listed = await asyncio.to_thread(self.cluster.get, group)
            for item in (listed or {}).get("items", []):
                metadata = item["metadata"]
                if metadata.get("labels", {}).get("app.kubernetes.io/managed-by") != MANAGED_BY:
                    continue
                ours = {key: metadata.get(key) or {} for key in ("labels", "annotations", "ownerReferences")}
                ours["annotations"] = {
                    key: text for key, text in ours["annotations"].items() if key not in {REVISION, ANNOTATION_APPLIED}
                }
                spec = {key: value for key, value in item.get("spec", {}).items() if not key.startswith("clusterIP")}
                contents[kind, metadata["name"]] = {**ours, "spec": spec, "data": sorted(item.get("data") or {})}
        return copy.deepcopy(contents)

    async def update(self, kind: str, name: str, patch: Any, manager: str = "somebody") -> None:
        """Apply a merge patch under `manager`'s name, as `kubectl edit` does."""
        child = path_of({"kind": kind, "metadata": {"namespace": self.namespace, "name": name}})
        await asyncio.to_thread(self.cluster.merge, f"{child}?fieldManager={manager}", patch)

    async def pod(self, name: str) -> Any:
        child = path_of({"kind": "Deployment", "metadata": {"namespace": self.namespace, "name": name}})
        pod_ = await asyncio.to_thread(self.cluster.get, child)
        return pod_["spec"]["template"]["spec"]


@pytest.fixture
async def ground(cluster: ApiServer, namespace: str) -> AsyncIterator[Ground]:
    client = AsyncClient(config=KubeConfig.from_file(cluster.kubeconfig).get())
    runtime = build_runtime(
        client, KubernetesOptions(hub="127.0.0.1:9", namespaces=[namespace], resolve=lambda *_: "127.0.0.1:9")
    )
    yield Ground(cluster, namespace, runtime)
    await runtime.close()


PUSHED = camera(id="c-2", source="rtp://:5004")
TEMPLATE = {
    "nodeSelector": {"site": "north"},
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
    "imagePullSecrets": [{"name": "registry"}],
    "topologySpread": [{"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
ROWS: dict[str, tuple[str, Any, Any, set[str]]] = {
    # the addition, its removal, the kinds that change
    **{
        f"template.{field}": ("SensorFleet", {"template": {field: value}}, {"template": {field: None}}, {"Deployment"})
        for field, value in TEMPLATE.items()
    },
    "the whole template": ("SensorFleet", {"template": TEMPLATE}, {"template": None}, {"Deployment"}),
    "a limit": (
        "CameraFleet", {"template": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}},
        {"template": {"resources": {"limits": None}}}, {"Deployment"},
    ),
    "telemetry": (
        "SensorFleet", {"telemetry": {"archive": True, "size": "2Gi", "claim": "readings"}}, {"telemetry": None},
        {"Deployment"},
    ),
    "node ports": (
        "SensorFleet", {"expose": {"type": "NodePort", "advertisedHost": "10.0.0.1", "annotations": {"a": "b"}}},
        {"expose": None}, {"Service"},
    ),
    "a load balancer's class": (
        "CameraFleet", {"expose": {"type": "LoadBalancer", "loadBalancerClass": "x.y/z"}}, {"expose": None}, {"Service"}
    ),
    "a gateway": (
        "SensorFleet",
        {"expose": {"type": "Gateway", "advertisedHost": "{name}.x", "gateway": {"name": "a", "tcpListener": "b"}}},
        {"expose": None}, {"GRPCRoute", "TCPRoute"},
    ),
    "a Secret of cameras": (
        "CameraFleet", {"cameras": [camera(credentialsRef={"name": "cam.1"})]}, {"cameras": [camera()]}, {"Deployment"},
    ),
    "a camera that pushes": (
        "CameraFleet", {"cameras": [camera(), PUSHED]}, {"cameras": [camera()]}, {"Service", "NetworkPolicy"},
    ),
    "an autoscaler": (
        "SensorFleet", {"autoscaling": {"mode": "hpa", "maxShards": 5}}, {"autoscaling": None},
        {"HorizontalPodAutoscaler"},
    ),
    "a scaled object": (
        "SensorFleet", {"autoscaling": {"mode": "keda", "maxShards": 5}}, {"autoscaling": None}, {"ScaledObject"},
    ),
}  # fmt: skip


@pytest.mark.apiserver
@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(("kind", "added", "removed", "changes"), ROWS.values(), ids=ROWS)
async def test_additions_that_are_removed_leave_nothing_behind(
    ground: Ground, kind: str, added: Any, removed: Any, changes: set[str]
) -> None:
    document = manifest(kind, {"cameras": [camera()]}, namespace=ground.namespace) if kind == "CameraFleet" else None
    allowed = {"name": "cam.1", "namespace": ground.namespace, "labels": {LABEL_ALLOWED: "true"}}
    await asyncio.to_thread(create, ground.cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": allowed})
    await ground.declare(document or sensor_fleet(ground.namespace))
    before = await ground.children()
    optional = {"HorizontalPodAutoscaler", *OPTIONAL}
    assert {key[0] for key in before} == {*CHILDREN} - optional
    await ground.change(added)
    between = await ground.children()
    differing = {key[0] for key in {*before, *between} if before.get(key) != between.get(key)}
    assert differing >= changes
    await ground.change(removed)
    after = await ground.children()
    assert after == before
    assert not any(action.startswith(("apply", "delete")) for action in await ground.step()), "nothing at rest"


@pytest.mark.apiserver
@pytest.mark.usefixtures("foreign")
async def test_removed_options_of_the_operator_are_removed(ground: Ground) -> None:
    await ground.declare(sensor_fleet(ground.namespace))
    before = await ground.children()
    ground.settings = Settings(image="embereye:test", hub="127.0.0.1:9", image_pull_policy="Always")
    await ground.run_until_complete()
    between = await ground.children()
    (container,) = between["Deployment", "hall-sensors-0"]["spec"]["template"]["spec"]["containers"]
    assert container["imagePullPolicy"] == "Always"
    ground.settings = SETTINGS
    await ground.run_until_complete()
    after = await ground.children()
    assert after == before


@pytest.mark.apiserver
async def test_fields_of_others_stay(ground: Ground) -> None:
    await ground.declare(sensor_fleet(ground.namespace))
    aliases = [{"ip": "10.0.0.2", "hostnames": ["registry"]}]
    theirs = {"hostAliases": aliases, "dnsConfig": {"nameservers": ["10.0.0.1"]}}
    patch = {
        "metadata": {"annotations": {"team": "site"}},
        "spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}, "spec": theirs}},
    }
    await ground.update("Deployment", "hall-sensors-0", patch)
    await ground.update("Service", "hall-sensors", {"metadata": {"annotations": {"lb": "internal"}}})
    with_theirs = await ground.children()
    assert not any(action.startswith("apply") for action in await ground.step()), "the object is left alone"
    await ground.change({"template": {"priorityClassName": "system-cluster-critical", "nodeSelector": {"a": "b"}}})
    assert (await ground.pod("hall-sensors-0"))["nodeSelector"] == {"a": "b"}
    await ground.change({"template": None})
    assert await ground.children() == with_theirs


@pytest.mark.apiserver
async def test_a_field_once_written_by_our_merge_patch_is_removed_too(ground: Ground) -> None:
    await ground.declare(sensor_fleet(ground.namespace))
    chosen = {"priorityClassName": "system-cluster-critical"}
    # After a merge patch that followed a refused apply: owned, but not applied.
    await ground.update("Deployment", "hall-sensors-0", {"spec": {"template": {"spec": chosen}}}, MANAGED_BY)
    await ground.change({"template": chosen})
    await ground.change({"template": None})
    assert "priorityClassName" not in await ground.pod("hall-sensors-0")


@pytest.mark.apiserver
async def test_children_of_an_earlier_version_get_their_hash_once_without_a_roll(ground: Ground) -> None:
    await ground.declare(sensor_fleet(ground.namespace, template={"nodeSelector": {"a": "b"}}))
    path = path_of({"kind": "Deployment", "metadata": {"namespace": ground.namespace, "name": "hall-sensors-0"}})
    await ground.update("Deployment", "hall-sensors-0", {"metadata": {"annotations": None}})
    before = await asyncio.to_thread(ground.cluster.get, path)
    assert "annotations" not in before["metadata"]
    assert "apply Deployment hall-sensors-0" in await ground.step()
    after = await asyncio.to_thread(ground.cluster.get, path)
    assert ANNOTATION_APPLIED in after["metadata"]["annotations"]
    # A Deployment's generation counts changes of annotations, too; its pods depend only on the template.
    assert after["spec"] == before["spec"]
    assert not any(action.startswith("apply") for action in await ground.step())


def test_fields_written_by_another_patch_count_as_applied() -> None:
    applied = {"manager": "we", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}}}
    updated = {"manager": "we", "operation": "Update", "fieldsV1": {"f:spec": {"f:b": {"f:d": {}}, "f:e": {}}}}
    status = {"manager": "we", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
    others = {"manager": "they", "operation": "Update", "fieldsV1": {"f:spec": {"f:z": {}}}}
    united = with_updates_applied([updated, status, applied, others], "we")
    fields = {"f:spec": {"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}, "f:e": {}}}
    assert united == [{**applied, "fieldsV1": fields}, status, others]
    assert with_updates_applied([applied, status, others], "we") is None
    assert with_updates_applied([updated, others], "we") is None
