"""`kubectl embereye migrate-storage`: store every object of ours in the version that the API server stores now.

A version of the custom resources can be removed only after nothing is stored in it. Objects from before an upgrade are
stored in the old version until they are written again.

`kubectl embereye` calls `run`. Every object gets an empty patch, by which the API server stores it in the current
version. Only then the definition's `storedVersions` is reduced to that version, so an interrupted run can be repeated.
"""

import argparse
from typing import Any

from lightkube import AsyncClient
from lightkube.generic_resource import create_global_resource
from lightkube.types import PatchType

from embereye.units import counted
from embereye_cli.cluster.kubectl_options import target_of
from embereye_operator.api.fleets import FLEET_TYPES, FleetType
from embereye_operator.api.kinds import AddedKind, added_kinds
from embereye_operator.api.shared import GROUP
from embereye_operator.runtime.kubernetes.client.answers import tolerating
from embereye_operator.runtime.kubernetes.client.client import connected
from embereye_operator.runtime.kubernetes.client.resources import Kind, custom

CHUNK = 200  # objects of a list
DEFINITIONS: Any = create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)


async def run(arguments: argparse.Namespace) -> int:
    """Migrate all kinds; return 0 when nothing is stored in another version."""
    async with connected(target_of(arguments)) as client:
        for fleet in FLEET_TYPES.values():
            await _migrate(client, fleet)
        for kind in added_kinds():
            with tolerating(404):  # the chart is older
                await _migrate(client, kind)
    return 0


async def _migrate(client: AsyncClient, kind: FleetType | AddedKind) -> None:
    name = f"{kind.plural}.{GROUP}"
    definition = await client.get(DEFINITIONS, name)
    (current,) = [version["name"] for version in definition["spec"]["versions"] if version["storage"]]
    before = definition["status"]["storedVersions"]
    if before == [current]:
        print(f"{name}: everything is stored as {current}")
        return
    count = await _rewrite(client, custom(kind.resource, kind.plural))
    status = {"status": {"storedVersions": [current]}}
    await client.patch(DEFINITIONS.Status, name, status, patch_type=PatchType.MERGE)
    others = ", ".join(version for version in before if version != current)
    noun = "fleet" if isinstance(kind, FleetType) else "object"
    stored = counted(count, f"{noun} is", f"{noun}s are")
    print(f"{name}: {stored} stored as {current} now, none as {others}")


async def _rewrite(client: AsyncClient, kind: Kind) -> int:
    """Write each object of a kind unchanged: the API server then stores it in the current version."""
    count = 0
    listed: Any = client.list(kind, namespace="*", chunk_size=CHUNK)
    async for stored in listed:
        metadata = stored["metadata"]
        with tolerating(404):  # it was deleted meanwhile
            await client.patch(kind, metadata["name"], {}, namespace=metadata["namespace"], patch_type=PatchType.MERGE)
            count += 1
    return count
