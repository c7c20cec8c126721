"""Fixtures: the databases and buses of a hub, and a hub as a real process."""

from harness.hubs import bus, hub_process, make_hub, stored, stored_apart, stored_in_postgres

__all__ = ["bus", "hub_process", "make_hub", "stored", "stored_apart", "stored_in_postgres"]
