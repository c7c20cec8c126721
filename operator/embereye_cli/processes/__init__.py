"""Commands that run a process until it is stopped: operator, hub, shards, and all of them together."""
