"""Patches, counted by their effect. The client is fake: no real server makes its watch faster than its answer."""

import copy
from typing import Any

import pytest
from lightkube.core.exceptions import ApiError

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.errors import RefusedError
from embereye_operator.runtime.kubernetes.runtime import KubernetesOptions, build_runtime

from ..test_reconcile import fleet_of
from .test_refused_namespaces import refusal

RECORD = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "hall-sensors-placement",
        "namespace": "n",
        "labels": {"app.kubernetes.io/managed-by": "embereye-operator", "embereye.dev/fleet": "sensors.hall"},
        "ownerReferences": [
            {
                "apiVersion": "embereye.dev/v1alpha1",
                "kind": "SensorFleet",
                "name": "hall",
                "uid": "1",
                "controller": True,
            }
        ],
    },
}


class Server:
    """A server that gives changed objects a new version, and reports it by watch before it answers the patch."""

    def __init__(self) -> None:
        self.runtime: Any = None
        self.version = 0
        self.stored: Any = None

    async def patch(self, kind: Any, name: str, manifest: Any, **_: Any) -> Any:
        content = {key: value for key, value in manifest.items() if key != "metadata"}
        if self.stored is None or {key: self.stored.get(key) for key in content} != content:
            self.version += 1
            self.stored = copy.deepcopy(manifest)
            self.stored["metadata"]["resourceVersion"] = str(self.version)
            self.runtime.world.observe("MODIFIED", copy.deepcopy(self.stored))
        return copy.deepcopy(self.stored)


async def test_a_change_counts_even_if_its_watch_event_precedes_the_answer() -> None:
    server = Server()
    client: Any = server
    server.runtime = runtime = build_runtime(client, KubernetesOptions(hub="127.0.0.1:9"))
    await runtime.writer.apply({**RECORD, "data": {"a": "1"}})
    await runtime.writer.apply({**RECORD, "data": {"a": "2"}})
    assert runtime.writer.write_counts == {("ConfigMap", True): 2}
    await runtime.writer.apply({**RECORD, "data": {"a": "2"}})
    assert runtime.writer.write_counts["ConfigMap", False] == 1


class Policy:
    """A server that forbids deletions and changes."""

    def __init__(self, code: int = 403) -> None:
        self.code = code

    async def delete(self, *_: Any, **__: Any) -> None:
        raise refusal(self.code)

    patch = delete


async def test_a_forbidden_deletion_is_a_refusal_like_a_forbidden_write() -> None:
    client: Any = Policy()
    with pytest.raises(RefusedError, match="hall-sensors-placement is not deleted: refused with 403"):
        await build_runtime(client, KubernetesOptions(hub="127.0.0.1:9")).writer.delete(RECORD)


@pytest.mark.parametrize(("code", "error"), [(403, RefusedError), (422, ApiError)])
async def test_a_forbidden_scaling_is_a_refusal_and_a_concurrent_one_is_not(code: int, error: type[Exception]) -> None:
    client: Any = Policy(code)
    with pytest.raises(error, match=f"refused with {code}"):
        await build_runtime(client, KubernetesOptions(hub="127.0.0.1:9")).writer.scale(parse_fleet(fleet_of()), 2)
