"""The sensor shard: listeners, sessions, tick, thresholds."""
