"""The owner of the hub's database, as the other replicas see it.

Standby replicas poll it in a thread. The owner has a lock for as long as it is connected, and has written its address
into the database. `read_owner` tries to take that lock: if this succeeds, there is no owner, and the lock is released
at once. Otherwise the stored address is the owner's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from psycopg.errors import UndefinedTable

from embereye.hub.database import StoreError, UnsuitableError
from embereye.hub.databases.postgres import LOCK, PostgresDatabase


class NewDatabaseError(StoreError):
    """Another replica owns the database, and is creating its tables."""


@dataclass(frozen=True)
class Owner:
    """The address of the replica that owns the database."""

    host: str
    ports: Mapping[str, int]  # by role: grpc, control, http, association

    @classmethod
    def load(cls, text: str) -> Self:
        """Read a stored advertisement; StoreError if it is empty: the owner does not advertise itself."""
        try:
            stored = json.loads(text)
            return cls(str(stored["host"]), {str(role): int(port) for role, port in stored["ports"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                "the database's owner does not advertise its address: start it with --advertise"
            ) from error


class OwnerWatch:
    """Reads the owner from the database; for one thread."""

    def __init__(self, address: Callable[[], str]) -> None:
        # Connects at the first read, so that `interrupt` can stop that attempt too.
        self._database = PostgresDatabase(address, writer=False, dial=False)
        self._was_connected = False

    def read_owner(self) -> Owner | None:
        """Read the current owner; None if there is none. StoreError if the database cannot be read.

        NewDatabaseError while the first owner creates its tables. UnsuitableError if no hub can use the database,
        before it was read for the first time.
        """
        if self._database.failing:
            try:
                self._database.recover()
            except StoreError as error:
                if isinstance(error.__cause__, UnsuitableError) and not self._was_connected:
                    raise error.__cause__ from None
                raise
            self._was_connected = True
        for (free,) in self._database.rows(f"SELECT pg_try_advisory_lock({LOCK})"):
            if free:
                list(self._database.rows(f"SELECT pg_advisory_unlock({LOCK})"))
                return None
        try:
            return next((Owner.load(row[0]) for row in self._database.rows("SELECT place FROM hub_owner")), None)
        except StoreError as error:
            if isinstance(error.__cause__, UndefinedTable):
                raise NewDatabaseError(str(error)) from error
            raise

    def interrupt(self) -> None:
        """Interrupt the current read; see `Database.interrupt`."""
        self._database.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
