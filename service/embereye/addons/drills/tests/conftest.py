"""Fixtures: the databases of a hub, and a hub as a process."""

from harness.hubs import hub_process, make_hub, stored, stored_in_postgres

__all__ = ["hub_process", "make_hub", "stored", "stored_in_postgres"]
