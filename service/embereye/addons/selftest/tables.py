"""The database table of self-tests: the newest result of each, as JSON."""

from embereye.hub.tables.table import documents

SELFTESTS = documents("selftests")
TABLES = (SELFTESTS,)
