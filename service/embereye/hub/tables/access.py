"""Access in the hub's database: tokens and sessions as digests, and the audit trail."""

from dataclasses import dataclass, field, fields

from embereye.hub.database import Database, Row
from embereye.hub.roles import Role

TABLES = """
CREATE TABLE IF NOT EXISTS tokens (name TEXT PRIMARY KEY, digest BLOB NOT NULL, role INTEGER NOT NULL,
    made_ns INTEGER NOT NULL, made_by TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (digest BLOB PRIMARY KEY, name TEXT NOT NULL, role INTEGER NOT NULL,
    token TEXT NOT NULL, made_ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (number INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL,
    who TEXT NOT NULL, role INTEGER NOT NULL, address TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL,
    detail TEXT NOT NULL, recorded_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS admin_places (place TEXT PRIMARY KEY) WITHOUT ROWID;
"""
TOKENS = "SELECT name, digest, role, made_ns, made_by FROM tokens"
SESSIONS = "SELECT digest, name, role, token, made_ns FROM sessions"
ADMIN_PLACES = "SELECT place FROM admin_places"
# The newest entries; only those before a number if that is not 0.
AUDIT = """SELECT number, time_ns, who, role, address, action, subject, detail FROM audit
    WHERE ? = 0 OR number < ? ORDER BY number DESC LIMIT ?"""
PRUNE_ROWS = 1_000  # rows deleted at once


@dataclass(frozen=True)
class TokenRecord:
    """A token, without its secret."""

    name: str
    digest: bytes  # SHA-256: a token has 256 random bits, so a slow hash would protect nothing more
    role: Role
    made_ns: int
    made_by: str


@dataclass(frozen=True)
class SessionRecord:
    """A signed-in browser."""

    digest: bytes
    name: str
    role: Role
    token: str  # the session ends when this token is revoked; '': no token
    made_ns: int


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


@dataclass
class AccessChanges:
    """The access part of a transaction."""

    tokens: dict[str, TokenRecord | None] = field(default_factory=dict)  # None: remove it
    sessions: dict[bytes, SessionRecord | None] = field(default_factory=dict)  # None: remove it
    admin_places: dict[str, bool] = field(default_factory=dict)  # False: remove it
    audit: list[AuditEntry] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, change.name) for change in fields(self))


@dataclass(frozen=True)
class StoredAccess:
    """The stored tokens and sessions from before the hub's start."""

    tokens: list[TokenRecord] = field(default_factory=list)
    sessions: list[SessionRecord] = field(default_factory=list)
    admin_places: list[str] = field(default_factory=list)


def read_token(row: Row) -> TokenRecord:
    """The token in a row of TOKENS; ValueError or TypeError if it is unreadable: then it lets nobody in."""
    name, digest, role, made, by = row
    return TokenRecord(str(name), bytes(digest), Role(role), int(made), str(by))


def read_session(row: Row) -> SessionRecord:
    """The session in a row of SESSIONS; ValueError or TypeError if it is unreadable: then it lets nobody in."""
    digest, name, role, token, made = row
    return SessionRecord(bytes(digest), str(name), Role(role), str(token), int(made))


def write(db: Database, changes: AccessChanges, written: int = 0) -> None:
    """Write `changes` in the open transaction; the first `written` entries of the trail were written before."""
    for name, token in changes.tokens.items():
        if token is None:
            db.execute("DELETE FROM tokens WHERE name = ?", (name,))
        else:
            row = (name, token.digest, int(token.role), token.made_ns, token.made_by)
            db.execute(
                """INSERT INTO tokens VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET digest = excluded.digest,
                    role = excluded.role, made_ns = excluded.made_ns, made_by = excluded.made_by""",
                row,
            )
    for digest, session in changes.sessions.items():
        if session is None:
            db.execute("DELETE FROM sessions WHERE digest = ?", (digest,))
        else:
            values = (digest, session.name, int(session.role), session.token, session.made_ns)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING", values)
    for place, known in changes.admin_places.items():
        statement = "INSERT INTO admin_places VALUES (?) ON CONFLICT (place) DO NOTHING"
        db.execute(statement if known else "DELETE FROM admin_places WHERE place = ?", (place,))
    db.execute_many(
        """INSERT INTO audit (time_ns, who, role, address, action, subject, detail, recorded_ns)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            (e.time_ns, e.who, int(e.role), e.address, e.action, e.subject, e.detail, e.recorded_ns)
            for e in changes.audit[written:]
        ],
    )


def read_entry(row: Row) -> AuditEntry:
    """The entry in a row of AUDIT; ValueError or TypeError if it is unreadable."""
    number, time_ns, who, role, address, action, subject, detail = row
    return AuditEntry(time_ns, who, Role(role), address, action, subject, detail, number)


def prune(db: Database, before_ns: int) -> int:
    """Delete part of the trail older than `before_ns` in the open transaction; return the number of rows."""
    statement = """DELETE FROM audit WHERE recorded_ns < ?
        AND number IN (SELECT number FROM audit ORDER BY number LIMIT ?)"""
    return db.execute(statement, (before_ns, PRUNE_ROWS))
