"""One of several namespaces is forbidden, for example deleted: the others are still read."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx2 as httpx  # lightkube's HTTP client
import pytest
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError

from embereye_operator.api.names import LABEL_FLEET, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from embereye_operator.runtime.kubernetes.client.resources import CHILDREN, FLEETS, NODES, OPTIONAL, PODS
from embereye_operator.runtime.kubernetes.nodes import Nodes
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, KubernetesRuntime, build_runtime

OURS = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_FLEET: "sensors.hall"}
FLEET, DEPLOYMENT, HPA = FLEETS["SensorFleet"], CHILDREN["Deployment"], CHILDREN["HorizontalPodAutoscaler"]


class Listed:
    """A list as the client returns it."""

    def __init__(self, objects: list[Any], code: int) -> None:
        self._objects, self._code = objects, code
        self.resourceVersion = "9"

    async def __aiter__(self) -> AsyncIterator[Any]:
        for manifest in self._objects:
            yield manifest
        if self._code:
            raise refusal(self._code)


def refusal(code: int) -> ApiError:
    return ApiError(response=httpx.Response(code, json={"code": code, "message": f"refused with {code}"}))


class Client:
    """A client with `objects` in each namespace; those in `refused` are forbidden."""

    namespace = "default"

    def __init__(self) -> None:
        self.objects: dict[tuple[Any, str], list[Any]] = {}
        self.refused: dict[str, int] = {}  # namespace → HTTP status
        self.absent: set[Any] = set()  # kinds without a CustomResourceDefinition

    def put(self, kind: Any, namespace: str, name: str, **more: Any) -> None:
        metadata = {"name": name, "namespace": namespace, "resourceVersion": "5", "labels": OURS, "uid": name}
        objects = self.objects.setdefault((kind, namespace), [])
        objects.append({**more, "metadata": {**metadata, **more.get("metadata", {})}})

    def list(self, kind: Any, namespace: str = "", fields: Mapping[str, str] | None = None, **_: Any) -> Listed:
        if code := 404 if kind in self.absent else self.refused.get(namespace, 0):
            return Listed([], code)
        objects = self.objects.get((kind, namespace), [])
        node = (fields or {}).get("spec.nodeName")
        return Listed([entry for entry in objects if not node or entry["spec"]["nodeName"] == node], 0)

    async def create(self, *_: Any, **__: Any) -> Any:
        raise refusal(403)


@pytest.fixture
def client() -> Client:
    client = Client()
    for namespace in ("north", "south"):
        client.put(FLEET, namespace, "hall")
        client.put(DEPLOYMENT, namespace, "hall-sensors-0")
        target = {"kind": "SensorFleet", "name": "hall"}
        client.put(HPA, namespace, "theirs", metadata={"labels": {}}, spec={"scaleTargetRef": target})
    return client


def made(client: Client, *namespaces: str) -> KubernetesRuntime:
    return build_runtime(cast("AsyncClient", client), KubernetesOptions(hub="127.0.0.1:9", namespaces=namespaces))


@pytest.mark.parametrize("code", [403, 404])
async def test_a_forbidden_namespace_stays_cached_and_the_others_are_read(
    client: Client, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = made(client, "south", "north")
    await runtime.resync()
    client.refused["south"] = code
    client.put(FLEET, "north", "yard")
    client.objects.pop((DEPLOYMENT, "north"))
    news = await runtime.resync()
    assert set(news) == {("SensorFleet", "north", "yard"), ("Deployment", "north", "hall-sensors-0")}
    assert ("SensorFleet", "south", "hall") in runtime.world.cache.objects
    assert ("Deployment", "south", "hall-sensors-0") in runtime.world.cache.objects
    assert await runtime.resync() == []
    assert [message for message in caplog.messages if "south" in message] == [
        f"namespace south cannot be read, and is left unchanged: refused with {code}"
    ]
    client.refused.clear()
    client.objects.pop((FLEET, "south"))
    assert await runtime.resync() == [("SensorFleet", "south", "hall")]


async def test_a_starting_operator_reads_the_other_namespaces(client: Client) -> None:
    client.refused["south"] = 403
    runtime = made(client, "south", "north")
    await runtime.resync()
    assert {key[1] for key in runtime.world.cache.objects} == {"north"}
    assert runtime.world.rivals.keys() == {("SensorFleet", "north", "hall")}


class Hub:
    def __init__(self) -> None:
        self.retained: list[list[str]] = []

    async def retain(self, fleets: list[str]) -> None:
        self.retained.append(fleets)


async def test_a_starting_operator_makes_no_hub_forget_unlisted_fleets(client: Client) -> None:
    client.refused["south"] = 403
    runtime, hub = made(client, "south", "north"), Hub()
    runtime.links._hubs = {"": cast("Any", hub)}
    north, south = "north/sensors/hall", "south/sensors/hall"
    await runtime.resync()
    await runtime.links.retain([north])
    assert hub.retained == []
    client.refused.clear()
    await runtime.resync()
    await runtime.links.retain([north, south])
    client.refused["south"] = 403
    await runtime.resync()
    await runtime.links.retain([south])
    assert hub.retained == [[north, south], [south]], "known fleets stay known"


async def test_with_all_namespaces_forbidden_nothing_is_read(client: Client) -> None:
    client.refused = {"south": 403, "north": 403}
    with pytest.raises(ApiError):
        await made(client, "south", "north").resync()


async def test_other_errors_are_no_refusal(client: Client) -> None:
    client.refused["south"] = 500
    with pytest.raises(ApiError):
        await made(client, "south", "north").resync()


async def test_shards_on_a_drained_node_are_found_in_readable_namespaces(client: Client) -> None:
    for namespace in ("north", "south"):
        labels = {**OURS, LABEL_SHARD: "hall-sensors-0"}
        client.put(PODS, namespace, "pod", metadata={"labels": labels}, spec={"nodeName": "n"}, status={})
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    client.put(NODES, "", "n", spec={"unschedulable": True, "taints": [taint]}, status={})
    nodes = Nodes(cast("AsyncClient", client), ("south", "north"))
    await nodes._list()
    client.refused["south"] = 403
    silent = {("south", "hall-sensors-0")}
    assert await nodes.find_displaced(silent) == {("north", "sensors.hall")}
    await nodes.find_displaced({("south", f"hall-sensors-{index}") for index in range(20)})
    client.refused["north"] = 403
    with pytest.raises(ApiError):
        await nodes.find_displaced(silent)


async def test_a_kind_that_the_cluster_lacks_hides_no_namespace(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.absent = {CHILDREN[name] for name in OPTIONAL}
    runtime = made(client, "north", "south")
    for _ in range(2):
        await runtime.resync()
    assert runtime.world.unseen == {}
    assert "cannot be read" not in caplog.text
    client.refused["north"] = 403
    await runtime.resync()
    assert set(runtime.world.unseen) == {"north"}
    assert "namespace north cannot be read" in caplog.text
