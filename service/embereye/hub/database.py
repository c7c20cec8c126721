"""The interface of a database: SQL in the dialect that all engines share, transactions and recovery.

`Store` is the main user; `databases/sqlite.py` and `databases/postgres.py` implement it. Statements are written once,
in SQLite's dialect. The hub's commits are owned transactions, which fail if another hub owns the database by now.

The errors say what to do. After a StoreError, trying again may succeed; a DamagedError fails again at that row. A
ReloadRequiredError means that memory and database differ, so a new hub is loaded. OwnedError and UnsuitableError need a
person.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from embereye.process.lifecycle import UserError

Row = tuple[Any, ...]


class StoreError(Exception):
    """The database failed to do something; trying again may succeed."""


class DamagedError(StoreError):
    """The database is damaged at this row: trying again fails again."""


class ReloadRequiredError(RuntimeError):
    """The database no longer matches the hub's state in memory: the hub has to be loaded from it again."""


class OwnedError(UserError):
    """Another hub owns the database."""


class UnsuitableError(UserError):
    """The hub cannot use such a database: only an administrator can change that."""


def storable(row: Sequence[object]) -> tuple[object, ...]:
    """Replace the characters that a database cannot store in texts: people and devices choose their names freely.

    These are the null character and halves of surrogate pairs, which JSON can contain but UTF-8 cannot.
    """
    return tuple(_storable_text(value) if isinstance(value, str) else value for value in row)


def _storable_text(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if text.isascii() else text.encode(errors="replace").decode()


class Database(Protocol):
    """One connection, for one thread. Statements mark their arguments with "?". Its library's errors are StoreError.

    If the database cannot be reached or written, when it is opened or later, `failing` says why until `recover`
    succeeds.
    """

    name: str  # for people
    failing: str  # why it cannot be used; '' if it can
    lost_commits: int  # commits that took effect and are gone, as after a failover; set to 0 once rewritten
    is_new: bool  # True if it had no tables when it was opened
    is_damaged: bool  # True if damage was met since it was opened; `recover` replaces the database

    def rows(self, query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        """Yield the rows that `query` selects."""

    def tables(self) -> list[str]:
        """The names of the tables; a database of an older hub lacks newer ones."""

    def columns(self, table: str) -> list[str]:
        """The names of the columns of `table`."""

    def execute(self, statement: str, arguments: Sequence[object] = ()) -> int:
        """Execute `statement`; returns the number of affected rows, if it is known already."""

    def execute_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute `statement` for each of `rows`."""

    def empty(self, table: str) -> None:
        """Remove all rows of `table`, which nothing else uses at the time."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make the statements inside take effect together at its end, or not at all."""

    def owned_transaction(self, cursor: int) -> AbstractContextManager[bool]:
        """Open a transaction that only the database's owner can commit; `cursor` is that of its newest event, or 0.

        Yields True if the previous owned transaction took effect although it seemed to fail: its connection broke
        before the answer. ReloadRequiredError if another hub owns the database by now.
        """

    def snapshot(self) -> AbstractContextManager[None]:
        """Make all reads inside see the database at one moment."""

    def newest_cursor(self) -> int:
        """The cursor of the newest event ever stored."""

    def set_newest_cursor(self, cursor: int) -> None:
        """Number new events after `cursor`, and other numbered rows after the highest number; in a transaction."""

    def check(self) -> None:
        """Raise an error if the database cannot be reached any more."""

    def interrupt(self) -> None:
        """Make the running call fail soon; called from another thread."""

    def recover(self) -> None:
        """Connect again, which clears `failing`. ReloadRequiredError if it contains more than could be read before."""

    def close(self) -> None:
        """Close the connection."""
