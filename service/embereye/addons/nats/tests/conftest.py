"""Fixtures: the databases of a hub."""

from harness.hubs import make_hub, stored, stored_apart, stored_in_postgres

__all__ = ["make_hub", "stored", "stored_apart", "stored_in_postgres"]
