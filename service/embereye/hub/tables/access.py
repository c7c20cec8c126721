"""Access in the hub's database: tokens and sessions as digests, and the audit trail.

`Access` owns tokens, sessions and the admin's places in memory; they are loaded at the start and changed in steps of
the committer. The audit trail only grows, is read in pages from the newest entry on, and is pruned by age. A row that
cannot be read lets nobody in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embereye.hub.database import Database
from embereye.hub.roles import EVERYWHERE, Role, Scope, read_scope
from embereye.hub.tables.table import Log, RowReader, StateTable

PRUNE_ROWS = 1_000  # rows deleted at once


@dataclass(frozen=True)
class TokenRecord:
    """A token, without its secret."""

    name: str
    digest: bytes  # SHA-256: a token has 256 random bits, so a slow hash would protect nothing more
    role: Role
    made_ns: int
    made_by: str
    scope: Scope = EVERYWHERE


@dataclass(frozen=True)
class SessionRecord:
    """A signed-in browser."""

    digest: bytes
    name: str
    role: Role
    token: str  # the session ends when this token is revoked; '': no token
    made_ns: int
    scope: Scope = EVERYWHERE


@dataclass(frozen=True)
class AuditEntry:
    """An action of a person or program."""

    time_ns: int  # by the wall clock, for people
    who: str
    role: Role
    address: str
    action: str  # acknowledge, reset, test, sign in, sign out, create token, revoke token, create link
    subject: str  # zone or token
    detail: str = ""  # the note; the role of a token
    number: int = 0  # ascending; assigned by the database
    recorded_ns: int = 0  # on the hub's timeline, which retention uses


class _Audit(Log[AuditEntry]):
    """The audit trail."""

    def write(self, db: Database, changes: Sequence[AuditEntry], now_ns: int = 0) -> None:
        del now_ns
        db.execute_many(
            """INSERT INTO audit (time_ns, who, role, address, action, subject, detail, recorded_ns)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            [(e.time_ns, e.who, int(e.role), e.address, e.action, e.subject, e.detail, e.recorded_ns) for e in changes],
        )

    def prune(self, db: Database, now_ns: int, retention_ns: int) -> int:
        statement = """DELETE FROM audit WHERE recorded_ns < ?
            AND number IN (SELECT number FROM audit ORDER BY number LIMIT ?)"""
        return db.execute(statement, (max(0, now_ns - retention_ns), PRUNE_ROWS))


def _read_token(row: Any) -> tuple[str, TokenRecord]:
    """Read a token; ValueError or TypeError if it is unreadable: then it lets nobody in."""
    name, digest, role, made, by, zones = row
    return str(name), TokenRecord(str(name), bytes(digest), Role(role), int(made), str(by), _read_zones(zones))


def _read_session(row: Any) -> tuple[bytes, SessionRecord]:
    """Read a session; ValueError or TypeError if it is unreadable: then it lets nobody in."""
    digest, name, role, token, made, zones = row
    record = SessionRecord(bytes(digest), str(name), Role(role), str(token), int(made), _read_zones(zones))
    return record.digest, record


def _read_zones(text: Any) -> Scope:
    """Read the patterns of a scope, one on each line; empty: all zones."""
    if not isinstance(text, str):
        raise TypeError(f"zones: {text!r:.80} is not text")
    return read_scope(text.split("\n")) if text else EVERYWHERE


TOKENS = StateTable[str, TokenRecord](  # by name
    """
CREATE TABLE IF NOT EXISTS tokens (name TEXT PRIMARY KEY, digest BLOB NOT NULL, role INTEGER NOT NULL,
    made_ns INTEGER NOT NULL, made_by TEXT NOT NULL, zones TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
""",
    dump=lambda token: (token.digest, int(token.role), token.made_ns, token.made_by, "\n".join(token.scope.patterns)),
    read=_read_token,
)
SESSIONS = StateTable[bytes, SessionRecord](  # by digest
    """
CREATE TABLE IF NOT EXISTS sessions (digest BLOB PRIMARY KEY, name TEXT NOT NULL, role INTEGER NOT NULL,
    token TEXT NOT NULL, made_ns INTEGER NOT NULL, zones TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
""",
    dump=lambda session: (
        session.name,
        int(session.role),
        session.token,
        session.made_ns,
        "\n".join(session.scope.patterns),
    ),
    read=_read_session,
)
AUDIT = _Audit("""
CREATE TABLE IF NOT EXISTS audit (number INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL,
    who TEXT NOT NULL, role INTEGER NOT NULL, address TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL,
    detail TEXT NOT NULL, recorded_ns INTEGER NOT NULL);
""")
ADMIN_PLACES = StateTable[str, bool](  # clients that the admin's token was let in from, always True
    """
CREATE TABLE IF NOT EXISTS admin_places (place TEXT PRIMARY KEY) WITHOUT ROWID;
""",
    dump=lambda _: (),
    read=lambda row: (str(row[0]), True),
)


def audit_entries(reader: RowReader, before: int, limit: int) -> list[AuditEntry]:
    """Up to `limit` entries of the audit trail, newest first; only those before number `before` if it is not 0."""
    query = """SELECT number, time_ns, who, role, address, action, subject, detail FROM audit
        WHERE ? = 0 OR number < ? ORDER BY number DESC LIMIT ?"""
    return list(reader.rows(query, _read_entry, (before, before, limit)))


def _read_entry(row: Any) -> AuditEntry:
    number, time_ns, who, role, address, action, subject, detail = row
    return AuditEntry(time_ns, who, Role(role), address, action, subject, detail, number)
