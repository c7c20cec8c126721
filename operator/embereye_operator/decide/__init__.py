"""Decisions, pure: from what was read of a fleet and the cluster to assignments, manifests and a status."""
