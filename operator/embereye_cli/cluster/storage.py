"""`kubectl embereye migrate-storage`: store every fleet in the version that the API server stores now.

A version of the custom resources can be removed only after nothing is stored in it. Objects from before an upgrade are
stored in the old version until they are written again.

`kubectl embereye` calls `run`. Every fleet gets an empty patch, by which the API server stores it in the current
version. Only then the definition's `storedVersions` is reduced to that version, so an interrupted run can be repeated.
"""

import argparse
from typing import Any

from lightkube import AsyncClient
from lightkube.generic_resource import create_global_resource
from lightkube.types import PatchType

from embereye.units import counted
from embereye_cli.cluster.kubectl_options import target_of
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.shared import GROUP
from embereye_operator.runtime.kubernetes.client.answers import tolerating
from embereye_operator.runtime.kubernetes.client.client import connected
from embereye_operator.runtime.kubernetes.client.resources import FLEETS

CHUNK = 200  # fleets of a list
DEFINITIONS: Any = create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)


async def run(arguments: argparse.Namespace) -> int:
    """Migrate both kinds of fleet; return 0 when nothing is stored in another version."""
    async with connected(target_of(arguments)) as client:
        for kind, fleet_type in FLEET_TYPES.items():
            name = f"{fleet_type.plural}.{GROUP}"
            definition = await client.get(DEFINITIONS, name)
            (current,) = [version["name"] for version in definition["spec"]["versions"] if version["storage"]]
            before = definition["status"]["storedVersions"]
            if before == [current]:
                print(f"{name}: everything is stored as {current}")
                continue
            count = await _rewrite(client, kind)
            status = {"status": {"storedVersions": [current]}}
            await client.patch(DEFINITIONS.Status, name, status, patch_type=PatchType.MERGE)
            others = ", ".join(version for version in before if version != current)
            print(f"{name}: {counted(count, 'fleet is', 'fleets are')} stored as {current} now, none as {others}")
    return 0


async def _rewrite(client: AsyncClient, kind: str) -> int:
    """Write each fleet of a kind unchanged: the API server then stores it in the current version."""
    count = 0
    listed: Any = client.list(FLEETS[kind], namespace="*", chunk_size=CHUNK)
    async for fleet in listed:
        metadata = fleet["metadata"]
        with tolerating(404):  # it was deleted meanwhile
            await client.patch(
                FLEETS[kind], metadata["name"], {}, namespace=metadata["namespace"], patch_type=PatchType.MERGE
            )
            count += 1
    return count
