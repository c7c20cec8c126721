"""What tells a canary, a fire that a shard makes up to prove its own path, from a device."""

# No device can be declared under such an id: ids begin with a letter or a digit. Nor can a zone.
PREFIX = "_canary_"
ZONE = "_canary"


def is_canary(device: str) -> bool:
    """Whether `device` is no device but a shard's canary, or somebody who would pass for one."""
    return device.startswith(PREFIX)
