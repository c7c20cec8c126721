"""Which replica of a hub owns its database, as the others see it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from embereye.hub.databases.interface import StoreError
from embereye.hub.databases.postgres import LOCK, PostgresDatabase


@dataclass(frozen=True)
class Owner:
    """Where the replica that owns the database is reached."""

    host: str
    ports: Mapping[str, int]  # by what they are for: grpc, control, http

    @classmethod
    def load(cls, text: str) -> Self:
        """What is stored of it; StoreError where that is nothing: a hub that does not advertise itself."""
        try:
            stored = json.loads(text)
            return cls(str(stored["host"]), {str(role): int(port) for role, port in stored["ports"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                "the hub that owns the database does not say where it is: start it with --advertise"
            ) from error


class OwnerWatch:
    """Looks at who owns the database; for one thread."""

    def __init__(self, address: Callable[[], str]) -> None:
        # Not dialled yet, so that `interrupt` also reaches the first attempt.
        self._database = PostgresDatabase(address, writer=False, dial=False)

    def read_owner(self) -> Owner | None:
        """The owner; None where there is none at the moment. StoreError where that cannot be found out."""
        if self._database.failing:
            self._database.recover()
        for (free,) in self._database.rows(f"SELECT pg_try_advisory_lock({LOCK})"):
            if free:
                list(self._database.rows(f"SELECT pg_advisory_unlock({LOCK})"))
                return None
        return next((Owner.load(row[0]) for row in self._database.rows("SELECT place FROM hub_owner")), None)

    def interrupt(self) -> None:
        """As `Database.interrupt`."""
        self._database.interrupt()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()
