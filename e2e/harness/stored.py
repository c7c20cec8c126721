"""The database of a hub under test, for tests that must pass with every engine."""

import contextlib
import sqlite3
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embereye.hub.databases.store import Store, StoreThreads, open_database
from harness.servers.postgres import Postgres


@dataclass
class Stored:
    """The database of a hub under test: SQLite in the test's folder, or a database in PostgreSQL."""

    folder: Path
    address: str = ""
    server: Postgres | None = None

    @classmethod
    def in_postgres(cls, folder: Path, server: Postgres, encoding: str = "UTF8") -> "Stored":
        """Create an empty database in `server`."""
        return cls(folder, server.create_database(f"t{uuid.uuid4().hex[:12]}", encoding), server)

    @property
    def database(self) -> str:
        """The name of the database in PostgreSQL."""
        return self.address.rpartition("/")[2]

    def threads(self) -> StoreThreads:
        return StoreThreads(self.folder, self.address)

    def open(self) -> Store:
        return Store(open_database(self.folder, self.address))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run `statement` on a connection that is not the hub's, and return its rows."""
        if self.server:
            return self.server.execute(statement, self.database)
        with contextlib.closing(sqlite3.connect(self.folder / "hub.sqlite")) as database:
            return database.execute(statement).fetchall()
