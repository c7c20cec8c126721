"""Patches, counted by whether they changed anything. A fake client: no server lets its watch be faster at will."""

import copy
from typing import Any

import pytest
from lightkube.core.exceptions import ApiError

from embereye_operator.api.fleets import parse_fleet
from embereye_operator.errors import RefusedError
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime

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
    assert runtime.write_counts == {("ConfigMap", True): 2}
    await runtime.apply({**RECORD, "data": {"a": "2"}})
    assert runtime.write_counts["ConfigMap", False] == 1


class Policy:
    """Lets nothing be deleted or changed."""

    def __init__(self, code: int = 403) -> None:
        self.code = code

    async def delete(self, *_: Any, **__: Any) -> None:
        raise refusal(self.code)

    patch = delete


async def test_what_may_not_be_deleted_is_a_refusal_as_what_may_not_be_written() -> None:
    client: Any = Policy()
    with pytest.raises(RefusedError, match="hall-sensors-placement is not deleted: refused with 403"):
        await KubernetesRuntime(client, hub="127.0.0.1:9").delete(RECORD)


@pytest.mark.parametrize(("code", "error"), [(403, RefusedError), (422, ApiError)])
async def test_what_may_not_be_scaled_is_a_refusal_and_what_somebody_else_scaled_meanwhile_is_none(
    code: int, error: type[Exception]
) -> None:
    client: Any = Policy(code)
    with pytest.raises(error, match=f"refused with {code}"):
        await KubernetesRuntime(client, hub="127.0.0.1:9").scale(parse_fleet(fleet_of()), 2)
