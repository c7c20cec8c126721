"""One camera of a shard: what arrives from it, what its frames show, and what is reported about it."""
