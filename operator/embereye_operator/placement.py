"""Which shard owns which device."""

import hashlib
from collections.abc import Mapping, Sequence


def _weight(device: str, shard: str) -> int:
    digest = hashlib.blake2b(f"{device}\0{shard}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def place(devices: Sequence[str], shards: Sequence[str], current: Mapping[str, str]) -> dict[str, str]:
    """The owner of every device, by rendezvous hashing (Thaler and Ravishankar, 1998).

    Each device goes to the shard whose hash with it is highest, so a shard that comes takes only what becomes its own
    and a shard that goes gives away only what was its own. `current`, the placement in force, has no say yet.
    No shards: an empty placement.
    """
    del current
    if not shards:
        return {}
    return {device: max(shards, key=lambda shard: (_weight(device, shard), shard)) for device in devices}
