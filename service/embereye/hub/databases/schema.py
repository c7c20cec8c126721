"""The tables of the hub's database, in SQLite's dialect, and the migrations from older versions."""

import re
from collections.abc import Mapping

from embereye.hub.tables import access as records
from embereye.hub.tables import consumed as bus
from embereye.hub.tables import overlays, plans, subscriptions, webhooks

VERSION = 1  # of the tables below; raise it when an existing table is altered, and add to MIGRATIONS

TABLES = (
    """
CREATE TABLE IF NOT EXISTS evidence (id TEXT PRIMARY KEY, received_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS evidence_received ON evidence (received_ns);
CREATE TABLE IF NOT EXISTS zones (namespace TEXT NOT NULL, name TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (cursor INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL,
    namespace TEXT NOT NULL, zone TEXT NOT NULL, event BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_zone ON events (zone, cursor);
CREATE INDEX IF NOT EXISTS events_time ON events (time_ns);
CREATE TABLE IF NOT EXISTS alarms (alarm TEXT PRIMARY KEY, namespace TEXT NOT NULL, zone TEXT NOT NULL,
    first_cursor INTEGER NOT NULL, last_cursor INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
    worst INTEGER NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alarms_began ON alarms (began_ns);
CREATE TABLE IF NOT EXISTS false_alarms (alarm TEXT PRIMARY KEY, mark BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS silences (id TEXT PRIMARY KEY, silence BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rosters (fleet TEXT PRIMARY KEY, derived INTEGER NOT NULL, roster BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ledgers (fleet TEXT NOT NULL, device TEXT NOT NULL, shard TEXT NOT NULL,
    since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, final INTEGER NOT NULL, ledger BLOB NOT NULL,
    PRIMARY KEY (fleet, device, shard, since_ns)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (fleet TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pictures (number INTEGER PRIMARY KEY AUTOINCREMENT, alarm TEXT NOT NULL,
    device TEXT NOT NULL, kind INTEGER NOT NULL, time_ns INTEGER NOT NULL, jpeg BLOB NOT NULL,
    UNIQUE (alarm, device, kind));
CREATE TABLE IF NOT EXISTS episodes (alarm TEXT NOT NULL, episode TEXT NOT NULL, time_ns INTEGER NOT NULL,
    PRIMARY KEY (alarm, episode)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS canaries (fleet TEXT NOT NULL, shard TEXT NOT NULL, alarmed_ns INTEGER NOT NULL,
    delay_ns INTEGER NOT NULL, PRIMARY KEY (fleet, shard)) WITHOUT ROWID;
"""
    + records.TABLES
    + subscriptions.TABLES
    + webhooks.TABLES
    + plans.TABLES
    + overlays.TABLES
    + bus.TABLES
)

# Version → the statements that alter the previous version's tables. A new table needs none: missing tables are created
# whenever a database is opened.
MIGRATIONS: Mapping[int, str] = {}


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
