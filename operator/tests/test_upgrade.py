"""Objects of earlier versions are adopted: same owners, same pods, no dark devices and no leftovers."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from embereye.v1.shard_pb2 import Assignment
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.decide.manifests.config_map import PLACEMENT_KEY
from embereye_operator.decide.snapshot import identity

from .fakes import FakeShard, World

OBJECTS = sorted((Path(__file__).parent / "objects").glob("v*.json"))


def left_behind(path: Path, resource: str) -> World:
    """Return the world as that version left it: its objects, and shards with its assignments."""
    stored = json.loads(path.read_text())
    fleet = next(manifest for manifest in stored if manifest["kind"] == resource)
    world = World({key: value for key, value in fleet.items() if key != "status"})
    world.runtime.statuses.append(fleet["status"])
    for manifest in stored:
        owners = manifest["metadata"].get("ownerReferences") or [{}]
        if owners[0].get("uid") != fleet["metadata"]["uid"]:
            continue
        world.runtime.objects[identity(manifest)] = manifest
        if manifest["kind"] == "Deployment":
            manifest["status"] = {"availableReplicas": 1}
        for name, text in (manifest.get("data") or {}).items():
            if name != PLACEMENT_KEY:
                assignment = json_format.Parse(text, Assignment(), ignore_unknown_fields=True)  # as current shards do
                world.runtime.shards[assignment.shard] = FakeShard(assignment.shard, assignment)
    return world


# New in pods: a certificate, a port for authenticated callers, a minute more to end, a default limit of memory, another
# spread, an earlier departure from a silent node, and more time to answer a liveness probe. Pods are therefore rolled
# once, one at a time.
NEW = {"EMBEREYE_IDENTITY", "EMBEREYE_CONTROL_PORT", "EMBEREYE_LINGER", "EMBEREYE_SUCCESSOR", "control", "identity"}


def without_what_is_new(template: Any) -> Any:
    template = copy.deepcopy(template)
    spec = template["spec"]
    spec.pop("terminationGracePeriodSeconds")
    for where in ("topologySpreadConstraints", "affinity", "tolerations"):
        spec.pop(where, None)
    (container,) = spec["containers"]
    container.pop("resources", None)
    container["livenessProbe"].pop("timeoutSeconds")
    for place, name in ((spec, "volumes"), (container, "env"), (container, "ports"), (container, "volumeMounts")):
        place[name] = [entry for entry in place[name] if entry["name"] not in NEW]
    return template


@pytest.mark.parametrize("resource", FLEET_TYPES)
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem)
async def test_an_upgrade_moves_no_device_and_changes_only_new_fields_of_pods(path: Path, resource: str) -> None:
    world = left_behind(path, resource)
    before, owners = copy.deepcopy(world.runtime.objects), world.owners()
    assert len(owners) >= 4
    outcome = await world.run_until_complete()
    assert world.owners() == owners
    assert outcome.status.devices.covered == len(owners)
    assert set(world.runtime.objects) >= set(before)

    def pods(objects: Any) -> Any:
        return {
            key: without_what_is_new(manifest["spec"]["template"])
            for key, manifest in objects.items()
            if key[0] == "Deployment"
        }

    assert pods(world.runtime.objects) == pods(before)
    assert not any(line.startswith("delete") for line in world.runtime.log)
