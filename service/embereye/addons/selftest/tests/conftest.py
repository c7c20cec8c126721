"""Fixtures: a hub as a process."""

from harness.hubs import make_hub

__all__ = ["make_hub"]
