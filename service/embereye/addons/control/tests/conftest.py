"""Fixtures: a hub as a real process, on each of its databases."""

from harness.hubs import hub_process, make_hub, stored, stored_in_postgres

__all__ = ["hub_process", "make_hub", "stored", "stored_in_postgres"]
