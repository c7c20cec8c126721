"""Patches, counted by whether they changed anything. A fake client: no server lets its watch be faster at will."""

import copy
from typing import Any

import pytest

from embereye_operator.errors import RefusedError
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime

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
    """Gives a new version to what changes, and lets the watch tell it before the patch is answered."""

    def __init__(self) -> None:
        self.runtime: Any = None
        self.version = 0
        self.stored: Any = None

    async def patch(self, kind: Any, name: str, manifest: Any, **_: Any) -> Any:
        said = {key: value for key, value in manifest.items() if key != "metadata"}
        if self.stored is None or {key: self.stored.get(key) for key in said} != said:
            self.version += 1
            self.stored = copy.deepcopy(manifest)
            self.stored["metadata"]["resourceVersion"] = str(self.version)
            self.runtime.observe("MODIFIED", copy.deepcopy(self.stored))
        return copy.deepcopy(self.stored)


async def test_a_patch_whose_watch_is_faster_than_its_answer_counts_as_the_change_that_it_is() -> None:
    server = Server()
    client: Any = server
    server.runtime = runtime = KubernetesRuntime(client, hub="127.0.0.1:9")
    await runtime.apply({**RECORD, "data": {"a": "1"}})
    await runtime.apply({**RECORD, "data": {"a": "2"}})
    assert runtime.writes == {("ConfigMap", True): 2}
    await runtime.apply({**RECORD, "data": {"a": "2"}})
    assert runtime.writes["ConfigMap", False] == 1


class Policy:
    """Lets nothing be deleted."""

    async def delete(self, *_: Any, **__: Any) -> None:
        raise refusal(403)


async def test_what_may_not_be_deleted_is_a_refusal_as_what_may_not_be_written() -> None:
    client: Any = Policy()
    with pytest.raises(RefusedError, match="hall-sensors-placement is not deleted: refused with 403"):
        await KubernetesRuntime(client, hub="127.0.0.1:9").delete(RECORD)
