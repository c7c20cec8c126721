"""Names of canaries: artificial fires by which a shard tests its own path to the hub."""

# No device or zone can be declared under these names, because declared names begin with a letter or a digit.
PREFIX = "_canary_"
ZONE = "_canary"


def is_canary(device: str) -> bool:
    """True if `device` is a canary's id, used by a shard or by someone who imitates one."""
    return device.startswith(PREFIX)
