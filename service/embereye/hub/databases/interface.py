"""What the hub's store asks of a database: SQL that every engine reads alike, and when it takes effect."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from embereye.process.lifecycle import UserError

Row = tuple[Any, ...]


class StoreError(Exception):
    """The database did not do what it was asked for, and may do it when it is asked again."""


class DamagedError(StoreError):
    """What is stored cannot be read from here on, however often it is asked for."""


class ReloadRequiredError(RuntimeError):
    """What the hub knows is not what the database holds, which counts: it has to begin anew from that."""


class OwnedError(UserError):
    """Another hub owns the database."""


class Database(Protocol):
    """One connection, for one thread. Statements mark their arguments with "?"; where it fails it raises StoreError.

    Where it could not be reached or written when it was opened, or was lost since, `failing` says why, and `recover`
    ends that.
    """

    name: str  # for people
    failing: str
    lost_commits: int  # commits that took effect and are gone, as after a failover; set to 0 once rewritten

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """What `query` finds."""
        ...

    def columns(self, table: str) -> list[str]:
        """The names of the columns of `table`."""
        ...

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """Do `statement`; returns how many rows it concerned, where that is known yet."""
        ...

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Do `statement` for each of `rows`."""
        ...

    def empty(self, table: str) -> None:
        """Remove every row of `table`, however many; nobody else is to be using it."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """What is done within it takes effect when it ends, or not at all."""
        ...

    def owned_transaction(self, cursor: int) -> AbstractContextManager[bool]:
        """The same for what only the hub that owns the database may do; `cursor` is that of its newest event, or 0.

        Yields whether the owned transaction before it, which failed, took effect all the same: its end could not be
        told. ReloadRequiredError where another hub owns the database by now.
        """
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """What is read within it is of one moment."""
        ...

    def newest_cursor(self) -> int:
        """The cursor of the newest event there ever was."""
        ...

    def set_newest_cursor(self, cursor: int) -> None:
        """Go on after `cursor`, and after the highest numbers of all rows that were given one; in a transaction."""
        ...

    def check(self) -> None:
        """Find out whether it can still be reached."""
        ...

    def interrupt(self) -> None:
        """Have what is under way in its thread fail soon; to be called from another thread."""
        ...

    def recover(self) -> None:
        """End `failing`. ReloadRequiredError where it holds more than could be read before."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
