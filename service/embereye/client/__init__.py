"""A client for sensor shards: readings in, batched, spooled on disk until acknowledged, wherever the fleet moves."""

from embereye.client.client import Client, SpoolFullError

__all__ = ["Client", "SpoolFullError"]
