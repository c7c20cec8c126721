"""The database table of notifications: incidents, deliveries, links that were used, proofs of routes, keys.

Each kind of row has a JSON document by its key. All rows are in memory; the rows of past incidents are removed.
"""

from embereye.hub.tables.table import documents

RowKey = tuple[str, str]  # kind and key

NOTIFICATIONS = documents("notifications")
TABLES = (NOTIFICATIONS,)
