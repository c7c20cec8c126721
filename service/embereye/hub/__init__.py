"""The hub: durable evidence, zones, alarm feeds, history, console."""
