"""The database table of profiles: permits of zones, confirmed schedules, and permits that nobody confirmed."""

from embereye.hub.tables.table import documents

RowKey = tuple[str, str]  # "permit" or "lapsed" and NAMESPACE/ZONE, or "schedule" and a profile's name

PROFILES = documents("profiles")
TABLES = (PROFILES,)
