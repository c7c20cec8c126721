"""The tables of the hub's database, in SQLite's dialect, and the migrations from older versions.

The modules in `tables/` define the tables, add-ons have more in their modules `tables`, and ALL lists them in order of
creation. When a database is opened for writing, the migrations from its version to VERSION run, and missing tables are
created.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from embereye.hub.tables.access import ADMIN_PLACES, AUDIT, SESSIONS, TOKENS
from embereye.hub.tables.alarms import ALARMS
from embereye.hub.tables.canaries import CANARIES
from embereye.hub.tables.candidate_differences import CANDIDATE_DIFFERENCES
from embereye.hub.tables.consumed import CONSUMED
from embereye.hub.tables.episodes import EPISODES
from embereye.hub.tables.events import EVENTS
from embereye.hub.tables.evidence import EVIDENCE
from embereye.hub.tables.false_alarms import FALSE_ALARMS
from embereye.hub.tables.heard import HEARD
from embereye.hub.tables.ledgers import LEDGERS
from embereye.hub.tables.overlays import OVERLAYS
from embereye.hub.tables.pictures import PICTURES
from embereye.hub.tables.plans import PLAN_DEVICES, PLAN_IMAGES, PLANS
from embereye.hub.tables.releases import RELEASES
from embereye.hub.tables.rosters import FORGOTTEN, ROSTERS
from embereye.hub.tables.silences import SILENCES
from embereye.hub.tables.subscriptions import SUBSCRIPTIONS
from embereye.hub.tables.table import Table
from embereye.hub.tables.webhooks import DEAD_LETTERS, WEBHOOKS
from embereye.hub.tables.zones import ZONES
from embereye.process.addons import addon_modules

VERSION = 2  # of the tables below; raise it when an existing table is altered, and add to MIGRATIONS

# The hub's tables, in the order of creation. Add new ones at the end: the order determines where salvage finds tables
# in a damaged file.
OWN: Sequence[Table[Any, Any]] = (
    EVIDENCE, ZONES, EVENTS, ALARMS, FALSE_ALARMS, SILENCES, ROSTERS, LEDGERS, FORGOTTEN, PICTURES, EPISODES, CANARIES,
    TOKENS, SESSIONS, AUDIT, ADMIN_PLACES, SUBSCRIPTIONS, WEBHOOKS, DEAD_LETTERS, PLANS, PLAN_IMAGES, PLAN_DEVICES,
    OVERLAYS, CONSUMED, RELEASES, HEARD, CANDIDATE_DIFFERENCES,
)  # fmt: skip
ADDED: Sequence[Table[Any, Any]] = tuple(table for addon in addon_modules("tables") for table in addon.TABLES)
ALL: Sequence[Table[Any, Any]] = (*OWN, *ADDED)
TABLES = "".join(table.create for table in ALL)  # the statements that create them

# Version → the statements that alter the previous version's tables. A new table needs none: missing tables are created
# whenever a database is opened.
MIGRATIONS: Mapping[int, str] = {
    2: """
ALTER TABLE tokens ADD COLUMN zones TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN zones TEXT NOT NULL DEFAULT '';
""",
}


def statements(script: str) -> list[str]:
    """The statements of `script`."""
    return [statement for part in script.split(";") if (statement := part.strip())]


def migrations(old_version: int) -> list[str]:
    """The statements that migrate tables from `old_version` to VERSION."""
    return [
        statement
        for version in range(old_version + 1, VERSION + 1)
        for statement in statements(MIGRATIONS.get(version, ""))
    ]


def table_names() -> list[str]:
    """The names of all tables."""
    return re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", TABLES)


def numbered_tables() -> list[tuple[str, str]]:
    """The tables whose rows the database numbers, with the name of the numbered column."""
    return re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \((\w+) INTEGER PRIMARY KEY AUTOINCREMENT", TABLES)
