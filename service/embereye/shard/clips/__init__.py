"""Clips, stills and recordings around an alarm, on a shard's disk until the hub has them."""
