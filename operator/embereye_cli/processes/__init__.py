"""Commands that run a process until it is told to stop: operator, hub, shards, and all of them together."""
