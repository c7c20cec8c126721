"""A client for sensor shards: it batches readings, spools them until acknowledged, and follows changes of owner."""

from embereye.client.client import Client, SpoolFullError

__all__ = ["Client", "SpoolFullError"]
