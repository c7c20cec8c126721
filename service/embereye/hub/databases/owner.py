"""The owner of the hub's database, as the other replicas see it.

Standby replicas poll it in a thread. The owner has a lock for as long as it is connected, and has written its address
into the database. `read_owner` tries to take that lock: if this succeeds, there is no owner, and the lock is released
at once. Otherwise the stored address is the owner's.

An owner asks the server something every two seconds. One that is frozen, with a kernel that still answers, has its lock
for ever, so `read_owner` ends its session. If it continues, it learns that by its epoch.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from psycopg.errors import UndefinedTable

from embereye.hub.database import StoreError, UnsuitableError
from embereye.hub.databases.postgres import LOCK, PostgresDatabase

logger = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks for a frozen owner
# Without a query for so long, an owner is frozen. With two between its queries, five may be a stall.
FROZEN_SECONDS = 7.0
LOADING_SECONDS = 30.0  # a hub whose session is younger may be loading what it has read
# End the session of a frozen owner. Other roles' sessions have no state here, and are never ended.
END_FROZEN = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND granted AND database = datid AND datname = current_database()
    AND (classid::integer, objid::integer) = ({LOCK}) AND starts_with(state, 'idle')
    AND extract(epoch FROM clock_timestamp() - state_change) > {FROZEN_SECONDS}
    AND extract(epoch FROM clock_timestamp() - backend_start) > {LOADING_SECONDS}
"""


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
        self._looked = time.monotonic()  # for a frozen owner

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
        self._end_frozen()
        try:
            return next((Owner.load(row[0]) for row in self._database.rows("SELECT place FROM hub_owner")), None)
        except StoreError as error:
            if isinstance(error.__cause__, UndefinedTable):
                raise NewDatabaseError(str(error)) from error
            raise

    def _end_frozen(self) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        if any(ended for (ended,) in self._database.rows(END_FROZEN)):
            logger.warning("the database's owner asked nothing for %.0f s: its session is ended", FROZEN_SECONDS)

    def interrupt(self) -> None:
        """Interrupt the current read; see `Database.interrupt`."""
        self._database.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
