"""Fixtures: the databases of a hub."""

from harness.hubs import stored, stored_apart, stored_in_postgres

__all__ = ["stored", "stored_apart", "stored_in_postgres"]
