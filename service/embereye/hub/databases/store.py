"""The hub's store: reads and writes its complete durable state in a database.

`Store` is for one thread. `commit` writes a `Transaction`, `load` reads the `StoredState` from which a hub starts, and
the other methods search and prune. Rows that cannot be read are skipped, counted and logged once.

`StoreThreads` makes two stores available to the event loop: one thread writes, another reads, so that a long search
never delays an alarm. A call that takes too long is interrupted: a database that does not answer counts as failing.

If the outcome of a commit is unknown (the connection broke), the next transaction starts with everything from the
failed one. `owned_transaction` reports whether the failed one took effect. Events and audit entries, the only rows that
cannot be written twice, are then skipped (`_tried`, `_stored`).
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from embereye.hub.database import DamagedError, Database, OwnedError, ReloadRequiredError, StoreError
from embereye.hub.databases.losses import describe_losses, note_loss, read_losses
from embereye.hub.databases.salvage import CURSORS_AHEAD
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.roles import Role
from embereye.hub.tables import access as records
from embereye.hub.tables import alarms
from embereye.hub.tables import consumed as bus_records
from embereye.hub.tables import overlays as overlay_records
from embereye.hub.tables import plans as plan_records
from embereye.hub.tables import subscriptions as subscription_records
from embereye.hub.tables import webhooks as webhook_records
from embereye.hub.tables.access import AccessChanges, AuditEntry, StoredAccess
from embereye.hub.tables.alarms import AlarmQuery
from embereye.hub.tables.consumed import Position
from embereye.hub.tables.ledgers import LedgerKey, OwnerLedger
from embereye.hub.tables.overlays import CameraKey, Overlay
from embereye.hub.tables.plans import Plan, PlanChanges
from embereye.hub.tables.subscriptions import StoredSubscription
from embereye.hub.tables.webhooks import DeadLetter, WebhookChanges
from embereye.process.files import open_file
from embereye.process.lifecycle import UserError
from embereye.process.timing.silence import LATE_SECONDS
from embereye.units import counted
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Silence
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.roster_pb2 import FleetRoster
from embereye.zone.timeline import PastAlarm

logger = logging.getLogger(__name__)
R = TypeVar("R")

PRUNE_ROWS = 5_000  # removed at once, so that pruning never delays an alarm
IDS_PER_QUERY = 512  # a power of two
MAX_ROW_ERRORS = 100  # unreadable rows that are logged at most
RECENT = 20_000  # newest reports' keys that the hub remembers in memory; a copy of a report usually comes soon
PATIENCE_SECONDS = 4.0  # how long a database may take to answer, before alarms are shown without it
MOST_PATIENCE_SECONDS = 60.0
FOLDER_SECONDS = 5.0  # how long to wait for the folder's lock, which another replica may be about to release
LOAD_SECONDS = 5.0  # how long to try to read the stored state, before the hub starts without it
LOAD_RETRY_SECONDS = 0.25
ENDLESS = 2**63 - 1  # nanoseconds, or a cursor: the largest number that a database can store
# Small tables that are rewritten from the hub's memory after the database lost commits.
REWRITTEN_TABLES = (
    "zones", "silences", "false_alarms", "tokens", "sessions", "rosters", "forgotten", "subscriptions", "overlays",
)  # fmt: skip
EVENTS = "SELECT event FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?"
MAX_PICTURES = 2_000  # retained pictures of past alarms; about 100 MB


@dataclass(frozen=True)
class StoredPicture:
    """The picture that a device sent when its sign joined an alarm."""

    alarm: str
    device: str
    kind: int
    time_ns: int
    jpeg: bytes


@dataclass(frozen=True)
class EventBounds:
    """The range in which events are searched."""

    after: int = 0  # cursor, exclusive
    before: int = ENDLESS  # cursor, exclusive
    since_ns: int = 0  # time of recording, inclusive
    until_ns: int = ENDLESS  # time of recording, exclusive
    zones: tuple[str, ...] = ()  # "name" or "namespace/name"; none: all


@dataclass
class Transaction:
    """Changes that take effect together or not at all. In mappings, None removes the entry."""

    evidence: list[tuple[str, int]] = field(default_factory=list)  # key, time of receipt
    zones: dict[tuple[str, str], bytes | None] = field(default_factory=dict)  # None: removed
    events: list[AlarmEvent] = field(default_factory=list)  # ascending cursor
    rosters: dict[str, tuple[bool, FleetRoster] | None] = field(default_factory=dict)  # derived?, None: removed
    forgotten: dict[str, bool] = field(default_factory=dict)  # by fleet; True: ignore its shards, False: it is back
    pictures: list[StoredPicture] = field(default_factory=list)
    ledgers: dict[LedgerKey, OwnerLedger | None] = field(default_factory=dict)  # None: removed
    episodes: dict[tuple[str, str], int] = field(default_factory=dict)  # (alarm, episode) → time of its last report
    # (fleet, shard) → time at which its latest canary became an alarm, delay in nanoseconds; None: removed
    canaries: dict[tuple[str, str], tuple[int, int] | None] = field(default_factory=dict)
    access: AccessChanges = field(default_factory=AccessChanges)
    subscriptions: dict[str, StoredSubscription | None] = field(default_factory=dict)  # None: removed
    webhooks: WebhookChanges = field(default_factory=WebhookChanges)
    false_alarms: dict[str, FalseAlarm | None] = field(default_factory=dict)  # by alarm; None: mark removed
    silences: dict[str, Silence | None] = field(default_factory=dict)  # by id; None: ended
    plans: PlanChanges = field(default_factory=PlanChanges)
    overlays: dict[CameraKey, Overlay | None] = field(default_factory=dict)  # None: removed
    consumed: Position | None = None  # how far the stream of reports was read; None: unchanged
    newest: int = 0  # cursor of the newest event ever; 0: the last of `events`
    full_state: "Transaction | None" = None  # the hub's complete state, rewritten after the database lost commits
    recorded_ns: int = 0  # on the hub's timeline, for retention; an event's own time is for people

    def __bool__(self) -> bool:
        return any(getattr(self, change.name) for change in fields(self) if change.name != "recorded_ns")


@dataclass(frozen=True)
class StoredState:
    """The state that the hub had stored when it last ended."""

    zones: list[bytes] = field(default_factory=list)
    rosters: list[tuple[bool, FleetRoster]] = field(default_factory=list)  # derived?
    forgotten: list[str] = field(default_factory=list)
    ledgers: list[OwnerLedger] = field(default_factory=list)
    cursor: int = 0  # of the newest event ever
    recent: list[str] = field(default_factory=list)  # keys of the newest reports, oldest first
    access: StoredAccess = field(default_factory=StoredAccess)
    latest_ns: int = 0  # the newest stored time on the hub's timeline; 0: nothing is stored yet
    canaries: list[tuple[str, str, int, int]] = field(default_factory=list)  # fleet, shard, time of alarm, delay
    subscriptions: list[StoredSubscription] = field(default_factory=list)
    webhooks: dict[str, tuple[int, int]] = field(default_factory=dict)  # position, number of dead letters
    false_alarms: list[FalseAlarm] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)  # without their images
    overlays: dict[CameraKey, Overlay] = field(default_factory=dict)
    consumed: list[Position] = field(default_factory=list)  # for each stream that ever carried reports


def lock_folder(folder: Path) -> int:
    """Lock `folder` for this process, for as long as the returned descriptor is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open_lock(folder)
    except OSError as error:
        raise UserError(f"--data {folder}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(f"--data {folder}: is in use by another hub. Stop it, or name another folder.") from error
    return descriptor


def _open_lock(folder: Path) -> int:
    file = folder / "hub.lock"
    # On a full or read-only disk, the hub can still serve what is stored there.
    with contextlib.suppress(OSError):
        return open_file(file, os.O_RDWR | os.O_CREAT)
    # Lock the same file if it exists: another hub may have it locked, or may start once the disk can be written.
    with contextlib.suppress(OSError):
        return open_file(file, os.O_RDONLY)
    return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)


class Store:
    """The hub's durable state in a database, for one thread. Every method may raise StoreError.

    If the database cannot be written when it is opened, `failing` says why; reading works until a `commit` succeeds.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self.unreadable = 0  # rows skipped because they cannot be read, counted at each reading
        self._logged_errors = set[tuple[str, str]]()  # query and error
        # Numbers of events and audit entries in failed commits: in the latest attempt, and known to be stored.
        self._tried = self._stored = (0, 0)
        self.unloaded = ""  # why the stored state could not be read at the start; '' if it could

    @property
    def failing(self) -> str:
        """The reason why the database cannot be written; '' if it can, or if that is not known yet."""
        return self._db.failing or self.unloaded

    @property
    def is_damaged(self) -> bool:
        """True if the database is damaged; `reconnect` replaces it."""
        return self._db.is_damaged

    def note_if_lost(self, folder: Path) -> None:
        """If the database is new although `folder` was used before, list its loss there and in the audit trail."""
        if not self._db.is_new or not _was_used(folder) or self.failing:
            return
        loss = f"{self._db.name}: is gone or empty, although this hub has run before: its history and state are lost."
        note_loss(folder, loss)
        now_ns = time.time_ns()
        entry = AuditEntry(now_ns, "hub", Role.ADMIN, "", "database lost", self._db.name, loss, recorded_ns=now_ns)
        with self._db.transaction():
            records.write(self._db, AccessChanges(audit=[entry]))
            # Subscribers that know the lost events must not miss new ones.
            self._db.set_newest_cursor(CURSORS_AHEAD)

    @property
    def lost_commits(self) -> int:
        """The number of lost commits, as in `Database`. If not 0, the next transaction needs `full_state`."""
        return self._db.lost_commits

    def load(self) -> StoredState:
        """Read the hub's stored state; rows that cannot be read are skipped, counted and logged."""
        return StoredState(
            zones=list(self._rows("SELECT state FROM zones", lambda row: bytes(row[0]))),
            rosters=list(
                self._rows(
                    "SELECT derived, roster FROM rosters",
                    lambda row: (bool(row[0]), FleetRoster.FromString(row[1])),
                )
            ),
            forgotten=list(self._rows("SELECT fleet FROM forgotten", lambda row: str(row[0]))),
            ledgers=list(
                self._rows(
                    "SELECT fleet, device, shard, since_ns, until_ns, final, ledger FROM ledgers ORDER BY since_ns",
                    lambda row: OwnerLedger.create(
                        LedgerKey(*row[:4]), int(row[4]), bool(row[5]), Ledger.FromString(row[6])
                    ),
                )
            ),
            cursor=self._db.newest_cursor(),
            recent=list(
                self._rows(
                    "SELECT id FROM evidence ORDER BY received_ns DESC LIMIT ?", lambda row: str(row[0]), (RECENT,)
                )
            )[::-1],
            access=StoredAccess(
                list(self._rows(records.TOKENS, records.read_token)),
                list(self._rows(records.SESSIONS, records.read_session)),
                list(self._rows(records.ADMIN_PLACES, lambda row: str(row[0]))),
            ),
            latest_ns=self._latest_ns(),
            canaries=list(
                self._rows(
                    "SELECT fleet, shard, alarmed_ns, delay_ns FROM canaries",
                    lambda row: (str(row[0]), str(row[1]), int(row[2]), int(row[3])),
                )
            ),
            subscriptions=list(self._rows(subscription_records.QUERY, subscription_records.read)),
            webhooks=self.webhooks(),
            false_alarms=list(
                self._rows("SELECT mark FROM false_alarms", lambda row: FalseAlarm.FromString(bytes(row[0])))
            ),
            silences=list(self._rows("SELECT silence FROM silences", lambda row: Silence.FromString(bytes(row[0])))),
            overlays=dict(self._rows(overlay_records.QUERY, overlay_records.read)),
            consumed=list(self._rows(bus_records.QUERY, bus_records.read)),
            plans=plan_records.assemble_plans(
                self._rows(plan_records.PLANS, plan_records.read_plan),
                self._rows(plan_records.PLACES, plan_records.read_place),
            ),
        )

    def _latest_ns(self) -> int:
        newest = (
            "SELECT MAX(received_ns) FROM evidence",
            "SELECT time_ns FROM events ORDER BY cursor DESC LIMIT 1",
            "SELECT MAX(until_ns) FROM ledgers",
        )
        return max((time for query in newest for time in self._rows(query, lambda row: int(row[0] or 0))), default=0)

    def _rows(self, query: str, read: Callable[[Any], R], arguments: Sequence[object] = ()) -> Iterator[R]:
        """Yield `read(row)` for each row of `query`; skips rows that `read` fails on."""
        rows = self._db.rows(query, arguments)
        while True:
            try:
                row = next(rows, None)
                if row is None:
                    return
                yield read(row)
            except DamagedError as error:  # the database cannot read past this row
                self._skip_row(query, error)
                return
            except (DecodeError, ValueError, TypeError) as error:
                self._skip_row(query, error)

    def _skip_row(self, query: str, error: Exception) -> None:
        self.unreadable += 1
        if (query, str(error)) in self._logged_errors or len(self._logged_errors) >= MAX_ROW_ERRORS:
            return  # a client that repeats its request would fill the log
        self._logged_errors.add((query, str(error)))
        logger.error("%s: a row cannot be read and is skipped: %s (%s)", self._db.name, error, query)

    def committed_ids(self, ids: Iterable[str]) -> set[str]:
        """The keys of reports (`report_key`) among `ids` that are committed already."""
        wanted = list(ids)
        committed: set[str] = set()
        for start in range(0, len(wanted), IDS_PER_QUERY):
            chunk = wanted[start : start + IDS_PER_QUERY]
            # Pad to a power of two: the database caches each prepared statement, so that few sizes save memory.
            size = 1 << (len(chunk) - 1).bit_length()
            chunk += chunk[-1:] * (size - len(chunk))
            marks = ",".join("?" * size)
            committed.update(row[0] for row in self._db.rows(f"SELECT id FROM evidence WHERE id IN ({marks})", chunk))
        return committed

    def commit(self, transaction: Transaction) -> None:
        """Make `transaction` durable. StoreError: it is not durable, or its outcome is unknown.

        After an error, the next transaction has to start with everything from this one, which may turn out to be
        stored. ReloadRequiredError if the database no longer matches the hub's state.
        """
        self.reconnect()
        full_state = transaction.full_state
        if self._db.lost_commits and full_state is None:
            raise StoreError(f"{self._db.name} lost {counted(self._db.lost_commits, 'transaction')}")
        if self._db.lost_commits:
            self._stored = (0, 0)
        newest = max(transaction.events[-1].cursor if transaction.events else 0, full_state.newest if full_state else 0)
        with self._db.owned_transaction(newest) as took_effect:
            if took_effect:
                self._stored = self._tried
            events, entries = self._stored
            self._tried = len(transaction.events), len(transaction.access.audit)
            if full_state:
                self._rewrite(full_state)
            self._write_evidence(transaction, transaction.events[events:])
            self._write_coverage(transaction)
            records.write(self._db, transaction.access, entries)
            subscription_records.write(self._db, transaction.subscriptions)
            webhook_records.write(self._db, transaction.webhooks)
            plan_records.write(self._db, transaction.plans)
            overlay_records.write(self._db, transaction.overlays)
            bus_records.write(self._db, transaction.consumed)
        self._tried = self._stored = (0, 0)
        if full_state:
            self._db.lost_commits = 0

    def _rewrite(self, full_state: Transaction) -> None:
        """Replace the stored state by `full_state`: rows that were removed may have come back."""
        for table in REWRITTEN_TABLES:
            self._db.execute(f"DELETE FROM {table}")
        cursors = [(event.cursor,) for event in full_state.events]
        self._db.execute_many("DELETE FROM events WHERE cursor = ?", cursors)
        self._write_evidence(full_state, full_state.events)
        self._write_coverage(full_state)
        records.write(self._db, full_state.access)
        subscription_records.write(self._db, full_state.subscriptions)
        webhook_records.write(self._db, full_state.webhooks)
        overlay_records.write(self._db, full_state.overlays)

    def _write_evidence(self, transaction: Transaction, events: Sequence[AlarmEvent]) -> None:
        db = self._db
        db.execute_many("INSERT INTO evidence VALUES (?, ?) ON CONFLICT (id) DO NOTHING", transaction.evidence)
        for (namespace, name), state in transaction.zones.items():
            if state is None:
                db.execute("DELETE FROM zones WHERE namespace = ? AND name = ?", (namespace, name))
            else:
                upsert = """INSERT INTO zones VALUES (?, ?, ?)
                    ON CONFLICT (namespace, name) DO UPDATE SET state = excluded.state"""
                db.execute(upsert, (namespace, name, state))
        db.execute_many(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            [
                (e.cursor, transaction.recorded_ns or e.time_ns, e.namespace, e.zone, e.SerializeToString())
                for e in events
            ],
        )
        alarms.write_events(db, events)
        alarms.write_marks(db, transaction.false_alarms)
        alarms.write_silences(db, transaction.silences)
        db.execute_many(
            "DELETE FROM pictures WHERE alarm = ? AND device = ? AND kind = ?",
            [(p.alarm, p.device, p.kind) for p in transaction.pictures],
        )
        db.execute_many(
            "INSERT INTO pictures (alarm, device, kind, time_ns, jpeg) VALUES (?, ?, ?, ?, ?)",
            [(p.alarm, p.device, p.kind, p.time_ns, p.jpeg) for p in transaction.pictures],
        )
        db.execute_many(
            """INSERT INTO episodes VALUES (?, ?, ?)
                ON CONFLICT (alarm, episode) DO UPDATE SET time_ns = excluded.time_ns""",
            [(alarm, episode, time_ns) for (alarm, episode), time_ns in transaction.episodes.items()],
        )

    def _write_coverage(self, transaction: Transaction) -> None:
        db = self._db
        for fleet, entry in transaction.rosters.items():
            if entry is None:
                db.execute("DELETE FROM rosters WHERE fleet = ?", (fleet,))
            else:
                upsert = """INSERT INTO rosters VALUES (?, ?, ?) ON CONFLICT (fleet)
                    DO UPDATE SET derived = excluded.derived, roster = excluded.roster"""
                db.execute(upsert, (fleet, int(entry[0]), entry[1].SerializeToString()))
        for fleet, forgotten in transaction.forgotten.items():
            remember = "INSERT INTO forgotten VALUES (?) ON CONFLICT (fleet) DO NOTHING"
            db.execute(remember if forgotten else "DELETE FROM forgotten WHERE fleet = ?", (fleet,))
        db.execute_many(
            "DELETE FROM ledgers WHERE fleet = ? AND device = ? AND shard = ? AND since_ns = ?",
            [key for key, entry in transaction.ledgers.items() if entry is None],
        )
        db.execute_many(
            """INSERT INTO ledgers VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fleet, device, shard, since_ns)
                DO UPDATE SET until_ns = excluded.until_ns, final = excluded.final, ledger = excluded.ledger""",
            [
                (*key, entry.until_ns, int(entry.final), entry.data)
                for key, entry in transaction.ledgers.items()
                if entry is not None
            ],
        )
        for (fleet, shard), alarmed in transaction.canaries.items():
            if alarmed is None:
                db.execute("DELETE FROM canaries WHERE fleet = ? AND shard = ?", (fleet, shard))
            else:
                upsert = """INSERT INTO canaries VALUES (?, ?, ?, ?) ON CONFLICT (fleet, shard)
                    DO UPDATE SET alarmed_ns = excluded.alarmed_ns, delay_ns = excluded.delay_ns"""
                db.execute(upsert, (fleet, shard, *alarmed))

    def prune(self, before_ns: int, reports_ns: int = 0) -> int:
        """Remove some rows older than `before_ns`; returns their number, 0 when none are left.

        Ids of reports are removed if they are older than `reports_ns` as well.
        """
        db, before_ns = self._db, max(0, before_ns)  # SQLite accepts no number below -2**63
        with db.transaction():
            removed = db.execute(
                "DELETE FROM evidence WHERE id IN (SELECT id FROM evidence WHERE received_ns < ? LIMIT ?)",
                (max(before_ns, reports_ns), PRUNE_ROWS),
            )
            # The oldest events come first; searching all of them once a minute would be too slow.
            removed += db.execute(
                """DELETE FROM events WHERE time_ns < ?
                    AND cursor IN (SELECT cursor FROM events ORDER BY cursor LIMIT ?)""",
                (before_ns, PRUNE_ROWS),
            )
            removed += records.prune(db, before_ns)
            removed += webhook_records.prune(db, before_ns)
            removed += db.execute("DELETE FROM episodes WHERE time_ns < ?", (before_ns,))
            removed += alarms.prune(db)
            removed += db.execute(
                "DELETE FROM pictures WHERE time_ns < ? OR number <= (SELECT MAX(number) FROM pictures) - ?",
                (before_ns, MAX_PICTURES),
            )
        return removed

    def forget_phantoms(self, still_open: Container[str]) -> int:
        """Remove phantoms of open alarms; see `alarms.forget_phantoms`."""
        return alarms.forget_phantoms(self._db, still_open)

    def check(self) -> None:
        """Raise StoreError if the database cannot be reached any more."""
        if not self.failing:
            self._db.check()

    def reconnect(self) -> None:
        """Connect again to a database that failed; StoreError if it still fails.

        ReloadRequiredError if the stored state, which could not be read at the start, can be read now.
        """
        if self.unloaded:
            self.load()
            raise ReloadRequiredError(f"{self._db.name}: can be read again, which was not possible at the start")
        if self._db.failing:
            self._db.recover()

    def events(self, after: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` events past cursor `after`, ascending; empty only if no later event can be read."""
        while True:
            unreadable = self.unreadable
            events = list(self._rows(EVENTS, _event, (after, limit)))
            if events or self.unreadable == unreadable or (past := self._past_damage(after)) <= after:
                return events
            after = past

    def _past_damage(self, after: int) -> int:
        """The cursor just before the first readable event past `after`, found by bisection; `after` if none."""

        def is_readable(cursor: int) -> bool:
            try:
                return any(_event(row) for row in self._db.rows(EVENTS, (cursor, 1)))
            except (DamagedError, DecodeError, ValueError, TypeError):
                return False

        last, low, step = self._db.newest_cursor() - 1, after, 1
        while not is_readable(high := min(low + step, last)):
            if high == last:
                return after
            low, step = high, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_readable(middle) else (middle, high)
        return high

    def search(self, bounds: EventBounds, limit: int, *, newest: bool = False) -> list[AlarmEvent]:
        """Up to `limit` events within `bounds`, ascending; with `newest` the last ones, descending."""
        # Leave out open bounds: the database uses the index on time only if there is no condition on cursors.
        conditions = (
            ("cursor > ?", bounds.after, bounds.after > 0),
            ("cursor < ?", bounds.before, bounds.before < ENDLESS),
            ("time_ns >= ?", bounds.since_ns, bounds.since_ns > 0),
            ("time_ns < ?", bounds.until_ns, bounds.until_ns < ENDLESS),
        )
        where = [condition for condition, _, bounded in conditions if bounded]
        arguments: list[int | str] = [value for _, value, bounded in conditions if bounded]
        if bounds.zones:
            condition, names = alarms.zone_condition(bounds.zones)
            where.append(condition)
            arguments += names
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        query = f"SELECT event FROM events {condition} ORDER BY cursor {'DESC' * newest} LIMIT ?"
        return list(self._rows(query, _event, (*arguments, limit)))

    def recorded_ns(self, cursor: int) -> int:
        """The time at which the event of `cursor` was recorded; 0 if it has been removed."""
        rows = self._db.rows("SELECT time_ns FROM events WHERE cursor = ?", (cursor,))
        return next((int(row[0]) for row in rows), 0)

    def alarms(self, query: AlarmQuery) -> list[PastAlarm]:
        """The alarms that match `query`, newest first."""
        return list(self._rows(*alarms.select_alarms(query)))

    def alarm_events(self, alarm: str) -> list[AlarmEvent]:
        """Every event of `alarm`, ascending; an alarm begun by an older version lacks the events it wrote."""
        query = """SELECT event FROM events, alarms WHERE alarms.alarm = ? AND events.zone = alarms.zone
            AND events.cursor >= first_cursor AND events.cursor <= last_cursor ORDER BY cursor"""
        return [event for event in self._rows(query, _event, (alarm,)) if event.alarm == alarm]

    def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """The JPEG of `device` that is stored for `alarm`; None if there is none."""
        query = "SELECT jpeg FROM pictures WHERE alarm = ? AND device = ? AND kind = ?"
        return next((row[0] for row in self._db.rows(query, (alarm, device, kind))), None)

    def episodes(self, alarm: str) -> list[str]:
        """The ids of the episodes that contributed to `alarm`."""
        return [row[0] for row in self._db.rows("SELECT episode FROM episodes WHERE alarm = ?", (alarm,))]

    def plan_image(self, name: str) -> bytes:
        """The picture of the plan `name`; empty if there is none."""
        return plan_records.read_image(self._db, name)

    def webhooks(self) -> dict[str, tuple[int, int]]:
        """Each webhook's position and number of dead letters, by its name."""
        return dict(self._rows(webhook_records.QUERY, webhook_records.read))

    def dead_letters(self, webhook: str, after: int, limit: int) -> list[DeadLetter]:
        """Up to `limit` events past cursor `after` that `webhook` gave up, ascending."""
        return list(
            self._rows(webhook_records.DEAD, webhook_records.read_letter, (webhook, min(after, ENDLESS), limit))
        )

    def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries of the audit trail, newest first; only those before number `before` if it is not 0."""
        return list(self._rows(records.AUDIT, records.read_entry, (before, before, limit)))

    def interrupt(self) -> None:
        """Interrupt the current call; see `Database.interrupt`."""
        self._db.interrupt()

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def _was_used(folder: Path) -> bool:
    """True if a hub has run with `folder`: it creates folders for clips once it serves."""
    clips = folder / "clips"
    return clips.is_dir() and any(clips.iterdir())


def _event(row: tuple[bytes]) -> AlarmEvent:
    return AlarmEvent.FromString(row[0])


async def _await_patiently(running: "asyncio.Future[R]", store: Store, seconds: float) -> bool:
    """Wait until `running`, which uses `store`, is done; interrupt it after `seconds`. True if it was done in time.

    If this process itself was stopped meanwhile, `running` gets the same time once more.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    done, _ = await asyncio.wait({running}, timeout=seconds)
    if not done and loop.time() - due > LATE_SECONDS:
        done, _ = await asyncio.wait({running}, timeout=seconds)
    patient = bool(done)
    while not done:
        store.interrupt()
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
    return patient


def open_database(folder: Path, address: str = "", *, writer: bool = True, advertisement: str = "") -> Database:
    """Open the database at `address`: a PostgreSQL connection string, or "@FILE" that contains one; '': SQLite.

    SQLite's file is in `folder`. `advertisement` is this replica's address for the others. UserError if the database
    cannot be used; OwnedError if another hub owns it.
    """
    if not address:
        return SqliteDatabase(folder / "hub.sqlite")
    try:
        from embereye.hub.databases.postgres import PostgresDatabase
    except ImportError as error:
        raise UserError(
            f"a database in PostgreSQL needs psycopg: pip install 'embereye[postgres]' ({error})"
        ) from error
    return PostgresDatabase(lambda: read_address(address), writer=writer, advertisement=advertisement)


def read_address(address: str) -> str:
    """The connection string in `address`, or in the file that it names as "@FILE"."""
    if not address.startswith("@"):
        return address
    try:
        return Path(address[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise UserError(f"{address[1:]}: the database's address cannot be read from this file ({reason})") from error


class StoreThreads:
    """The store for the event loop: one thread writes, another reads, so that a long search delays no alarm."""

    def __init__(self, folder: Path, address: str = "", advertisement: str = "") -> None:
        """`address` and `advertisement` as in `open_database`."""
        self._advertisement = advertisement
        self._folder = folder
        self._address = address
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="hub-history")
        self._lock: int | None = None
        self._patience = PATIENCE_SECONDS
        self.losses: list[str] = []  # of the database, as listed in the folder

    def _open(self, *, writer: bool = True) -> Store:
        return Store(open_database(self._folder, self._address, writer=writer, advertisement=self._advertisement))

    async def open(self) -> StoredState:
        """Lock the folder, open the database, and return the stored state."""
        loop = asyncio.get_running_loop()
        self._lock = await self._lock_folder()
        self._store = await loop.run_in_executor(self._writer, self._open)
        try:
            await loop.run_in_executor(self._writer, self._store.note_if_lost, self._folder)
        except (OSError, StoreError) as error:
            logger.error("the loss of the database cannot be recorded: %s", error)  # noqa: TRY400 -- says everything
        await self._refresh_losses()
        if self.loss:
            logger.error(self.loss)
        if self._store.failing and self._advertisement:
            # Another replica may own it, or may have owned it a moment ago: only the owner is allowed to serve.
            raise OwnedError(self._store.failing)
        if self._store.failing:
            logger.error("the database cannot be written: %s; the hub serves what is stored", self._store.failing)
        if self._address or not self._store.failing:
            self._history = await loop.run_in_executor(self._reader, partial(self._open, writer=False))
        if self._address and self._store.failing:
            return StoredState()
        deadline = loop.time() + LOAD_SECONDS
        while loop.time() < deadline:
            try:
                loading = loop.run_in_executor(self._writer, self._store.load)
                await _await_patiently(loading, self._store, MOST_PATIENCE_SECONDS)
                state = await loading
            except StoreError as error:
                self._store.unloaded = str(error)
                await asyncio.sleep(LOAD_RETRY_SECONDS)
            else:
                self._store.unloaded = ""
                if self._store.is_damaged:
                    await self._replace_damaged()
                return state
        if self._advertisement:
            raise OwnedError(self._store.unloaded)
        logger.error("the database cannot be read: %s; the hub starts empty until it can", self._store.failing)
        return StoredState()

    async def _replace_damaged(self) -> None:
        """Replace the database, in which loading met damage. ReloadRequiredError if that succeeds."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._store.reconnect)
        except StoreError as error:
            logger.error("%s; the hub serves what can be read", error)  # noqa: TRY400 -- the message says everything
        else:
            raise ReloadRequiredError("the database was damaged and replaced: it is loaded from the new file")

    async def _refresh_losses(self) -> None:
        loop = asyncio.get_running_loop()
        self.losses = await loop.run_in_executor(None, read_losses, self._folder)

    @property
    def loss(self) -> str:
        """A sentence on the newest loss of the database; '' if there is none, or its file was removed."""
        return describe_losses(self._folder, self.losses)

    async def check(self) -> None:
        """Notice lost databases and whether losses are still listed. StoreError if the database cannot be reached."""
        await self._refresh_losses()
        await self.write(Store.check)

    async def _lock_folder(self) -> int:
        """Lock the folder; waits for a replica that has just released the database and may still have the lock."""
        deadline = time.monotonic() + (FOLDER_SECONDS if self._advertisement else 0)
        while True:
            try:
                return lock_folder(self._folder)
            except UserError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(0.1)

    @property
    def failing(self) -> str:
        """The reason why the database cannot be written; '' if it can, as far as is known."""
        return self._store.failing

    @property
    def lost_commits(self) -> int:
        """The number of lost commits; see `Store.lost_commits`."""
        return self._store.lost_commits

    @property
    def unreadable(self) -> int:
        """The number of rows that were skipped because they cannot be read."""
        return self._store.unreadable + (self._history.unreadable if hasattr(self, "_history") else 0)

    async def write(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the writing thread.

        A call that takes longer than `_patience` is interrupted and fails. The next one gets twice as long, because
        there may only be much to write.
        """
        running = asyncio.get_running_loop().run_in_executor(self._writer, lambda: method(self._store))
        patient = await _await_patiently(running, self._store, self._patience)
        self._patience = PATIENCE_SECONDS if patient else min(2 * self._patience, MOST_PATIENCE_SECONDS)
        return await running

    async def read(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the reading thread, or in the writing one if only that could be opened."""
        if not hasattr(self, "_history"):
            return await self.write(method)

        def attempt() -> R:
            try:
                return method(self._history)
            except StoreError:
                # A connection that broke while unused is noticed only now; the second attempt connects again.
                return method(self._history)

        running = asyncio.get_running_loop().run_in_executor(self._reader, attempt)
        await _await_patiently(running, self._history, MOST_PATIENCE_SECONDS)
        return await running

    async def close(self) -> None:
        """Finish the running calls, close both stores and unlock the folder."""
        loop = asyncio.get_running_loop()
        for executor, name in ((self._reader, "_history"), (self._writer, "_store")):
            if hasattr(self, name):
                await loop.run_in_executor(executor, getattr(self, name).close)
            executor.shutdown(wait=False)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
