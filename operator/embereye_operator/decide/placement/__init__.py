"""Placement: the owner of each device, hand-overs between shards, and each shard's assignment."""
