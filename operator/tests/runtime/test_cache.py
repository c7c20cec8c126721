"""The cache of objects: complete, and small if many are alike."""

from typing import Any

import pytest

from embereye_operator.runtime.kubernetes.client.cache import WINDOW, Cache, key_of

from .test_refused_namespaces import FLEET, Client, Listed, made


def config_map(name: str, version: int, text: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "hall",
        "resourceVersion": str(version),
        "managedFields": [{"manager": "we"}],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


@pytest.mark.parametrize("length", [0, 10, WINDOW - 1, WINDOW, 3 * WINDOW])
def test_an_object_is_cached_completely_without_its_managed_fields(length: int) -> None:
    cache = Cache()
    # Each is longer than the one before, and packed with another example.
    documents = [config_map(f"m-{number}", number, f"ä{number}" * (length // 3 * number)) for number in range(1, 5)]
    for document in documents:
        assert cache.put(document)
    for document in documents:
        del document["metadata"]["managedFields"]
        assert cache.objects[key_of(document)].manifest() == document


def test_common_content_of_objects_is_stored_once() -> None:
    cache = Cache()
    alike = " ".join(f"word{number}" for number in range(500))
    for number in range(1, 101):
        cache.put(config_map(f"m-{number}", number, f"{alike} {number}"))
    sizes = [len(stored._packed) for stored in cache.objects.values()]
    assert max(sizes) < 150


class Restorable(Client):
    version = "9"  # of lists

    def list(self, *arguments: Any, **named: Any) -> Listed:
        listing = super().list(*arguments, **named)
        listing.resourceVersion = self.version
        return listing


async def test_after_a_restore_from_a_backup_the_cache_is_not_used() -> None:
    client = Restorable()
    client.put(FLEET, "north", "hall")
    runtime = made(client, "north")
    for _ in range(2):
        await runtime.resync()
        assert not runtime.world.lag.death_reason(0.0)
    client.objects.clear()
    client.put(FLEET, "north", "hall", metadata={"resourceVersion": "3"}, spec={"shards": 2})
    client.version = "4"
    await runtime.resync()
    assert "restored" in runtime.world.lag.death_reason(0.0)
