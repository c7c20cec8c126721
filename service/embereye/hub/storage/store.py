"""What the hub must not forget: evidence ids, zones, events, rosters."""

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

from embereye.hub.access import records
from embereye.hub.access.records import AccessChanges, AuditEntry, StoredAccess
from embereye.hub.bus import records as bus_records
from embereye.hub.bus.records import Position
from embereye.hub.coverage.ledgers import LedgerKey, OwnerLedger
from embereye.hub.databases.interface import DamagedError, Database, OwnedError, ReloadRequiredError, StoreError
from embereye.hub.databases.sqlite import SqliteDatabase
from embereye.hub.feeds import records as subscription_records
from embereye.hub.feeds.records import StoredSubscription
from embereye.hub.overlays import records as overlay_records
from embereye.hub.overlays.records import CameraKey, Overlay
from embereye.hub.plans import records as plan_records
from embereye.hub.plans.records import Plan, PlanChanges
from embereye.hub.storage import alarms
from embereye.hub.storage.alarms import AlarmQuery
from embereye.hub.webhooks import records as webhook_records
from embereye.hub.webhooks.records import DeadLetter, WebhookChanges
from embereye.process.lifecycle import UserError
from embereye.process.timing.silence import LATE_SECONDS
from embereye.units import counted
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm, Silence
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.roster_pb2 import FleetRoster
from embereye.zone.timeline import PastAlarm

logger = logging.getLogger(__name__)
R = TypeVar("R")

PRUNE_ROWS = 5_000  # at once, so that pruning never delays an alarm
ASKED = 512  # ids in one question, a power of two
TOLD = 100  # rows that cannot be read are logged at most
RECENT = 20_000  # ids of reports that the hub knows without asking; what is sent again is sent soon
PATIENCE_SECONDS = 4.0  # with a database that does not answer, before fires are shown without it
MOST_PATIENCE_SECONDS = 60.0
FOLDER_SECONDS = 5.0
LOAD_SECONDS = 5.0  # to try to read what the hub goes on from, before it begins without
LOAD_RETRY_SECONDS = 0.25
ENDLESS = 2**63 - 1  # nanoseconds, or a cursor: the most that a database holds
# What is replaced by what the hub knows where the database lost some of it. All of these are small.
HELD = ("zones", "silences", "false_alarms", "tokens", "sessions", "rosters", "forgotten", "subscriptions", "overlays")
EVENTS = "SELECT event FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?"
KEPT_PICTURES = 2_000  # of past alarms; about 100 MB


@dataclass(frozen=True)
class StoredPicture:
    """What a device saw when its sign joined an alarm."""

    alarm: str
    device: str
    kind: int
    time_ns: int
    jpeg: bytes


@dataclass(frozen=True)
class EventBounds:
    """Where events are looked for."""

    after: int = 0  # cursor, exclusive
    before: int = ENDLESS  # cursor, exclusive
    since_ns: int = 0  # when they were recorded
    until_ns: int = ENDLESS  # exclusive
    zones: tuple[str, ...] = ()  # "name" or "namespace/name"; none: all


@dataclass
class Transaction:
    """Everything that takes effect together, or not at all."""

    evidence: list[tuple[str, int]] = field(default_factory=list)  # id, received
    zones: dict[tuple[str, str], bytes | None] = field(default_factory=dict)  # None: removed
    events: list[AlarmEvent] = field(default_factory=list)  # ascending cursor
    rosters: dict[str, tuple[bool, FleetRoster] | None] = field(default_factory=dict)  # derived?, None: removed
    forgotten: dict[str, bool] = field(default_factory=dict)  # fleet → forgotten from now on, or no longer
    pictures: list[StoredPicture] = field(default_factory=list)
    ledgers: dict[LedgerKey, OwnerLedger | None] = field(default_factory=dict)  # None: removed
    episodes: dict[tuple[str, str], int] = field(default_factory=dict)  # alarm, episode: until
    # fleet, shard: when its latest canary was an alarm, after how many nanoseconds; None: removed
    canaries: dict[tuple[str, str], tuple[int, int] | None] = field(default_factory=dict)
    access: AccessChanges = field(default_factory=AccessChanges)
    subscriptions: dict[str, StoredSubscription | None] = field(default_factory=dict)  # None: removed
    webhooks: WebhookChanges = field(default_factory=WebhookChanges)
    false_alarms: dict[str, FalseAlarm | None] = field(default_factory=dict)  # by alarm; None: it was none after all
    silences: dict[str, Silence | None] = field(default_factory=dict)  # by id; None: over
    plans: PlanChanges = field(default_factory=PlanChanges)
    overlays: dict[CameraKey, Overlay | None] = field(default_factory=dict)  # None: removed
    consumed: Position | None = None  # of the stream that reports came by; None: no further than before
    newest: int = 0  # cursor of the newest event there ever was; 0: that of `events`
    held: "Transaction | None" = None  # all that the hub goes on from, where the database has lost some of it
    recorded_ns: int = 0  # when, on the hub's timeline, which retention goes by; an event's own time is for people

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self) if each.name != "recorded_ns")


@dataclass(frozen=True)
class StoredState:
    """What was stored when the hub last ended, however it ended."""

    zones: list[bytes] = field(default_factory=list)
    rosters: list[tuple[bool, FleetRoster]] = field(default_factory=list)  # derived?
    forgotten: list[str] = field(default_factory=list)
    ledgers: list[OwnerLedger] = field(default_factory=list)
    cursor: int = 0  # of the newest event there ever was
    recent: list[str] = field(default_factory=list)  # ids of the newest reports, oldest first
    access: StoredAccess = field(default_factory=StoredAccess)
    latest_ns: int = 0  # the newest time on the hub's timeline; 0: nothing was stored yet
    canaries: list[tuple[str, str, int, int]] = field(default_factory=list)  # fleet, shard, when alarmed, delay
    subscriptions: list[StoredSubscription] = field(default_factory=list)
    webhooks: dict[str, tuple[int, int]] = field(default_factory=dict)  # how far it has come, its dead letters
    false_alarms: list[FalseAlarm] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)  # without their images
    overlays: dict[CameraKey, Overlay] = field(default_factory=dict)
    consumed: list[Position] = field(default_factory=list)  # of each stream that reports ever came by


def lock_folder(folder: Path) -> int:
    """Make `folder` this process's own for as long as the returned descriptor is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open_lock(folder)
    except OSError as error:
        raise UserError(f"--data {folder}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UserError(f"--data {folder} is in use by another hub: stop that one, or name another folder") from error
    return descriptor


def _open_lock(folder: Path) -> int:
    file = folder / "hub.lock"
    # On a full disk, or one that cannot be written, what it holds can be served all the same.
    with contextlib.suppress(OSError):
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    # The same file where it is there: others may have it, or come once the disk can be written.
    with contextlib.suppress(OSError):
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)


class Store:
    """What the hub keeps, in a database. Not to be shared between threads; everything may raise StoreError.

    Where the database cannot be written when it is opened, `failing` says why, and what can be read is served until a
    `commit` succeeds.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self.unreadable = 0  # rows that were passed over, each time
        self._told = set[tuple[str, str]]()  # queries and errors
        # Events and entries of the audit trail in the commits that failed: tried last, and known to be stored.
        self._tried = self._stored = (0, 0)
        self.unloaded = ""  # why what the hub was to go on from could not be read; '': it could

    @property
    def failing(self) -> str:
        """Why nothing is written to the database; '' where it can be, or where that is not known yet."""
        return self._db.failing or self.unloaded

    @property
    def lost_commits(self) -> int:
        """As `Database.lost_commits`: the next transaction needs `held`."""
        return self._db.lost_commits

    def load(self) -> StoredState:
        """All that the hub goes on from; what cannot be read is passed over, counted and logged."""
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
            access=records.load(self._db),
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
            plans=plan_records.assembled(
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
        """What `read` makes of each row of `query`; a row that it cannot read is passed over."""
        rows = self._db.rows(query, arguments)
        while True:
            try:
                row = next(rows, None)
                if row is None:
                    return
                yield read(row)
            except DamagedError as error:  # there is no way past this place
                self._pass_over(query, error)
                return
            except (DecodeError, ValueError, TypeError) as error:
                self._pass_over(query, error)

    def _pass_over(self, query: str, error: Exception) -> None:
        self.unreadable += 1
        if (query, str(error)) in self._told or len(self._told) >= TOLD:
            return  # a client that asks again, and again, would fill the log
        self._told.add((query, str(error)))
        logger.error("%s: a row cannot be read and is passed over: %s (%s)", self._db.name, error, query)

    def known(self, ids: Iterable[str]) -> set[str]:
        """Which of `ids` were committed before."""
        wanted = list(ids)
        found: set[str] = set()
        for start in range(0, len(wanted), ASKED):
            part = wanted[start : start + ASKED]
            # The database keeps each statement prepared, in proportion to its marks: there are to be few of them.
            size = 1 << (len(part) - 1).bit_length()
            part += part[-1:] * (size - len(part))
            marks = ",".join("?" * size)
            found.update(row[0] for row in self._db.rows(f"SELECT id FROM evidence WHERE id IN ({marks})", part))
        return found

    def commit(self, transaction: Transaction) -> None:
        """Make `transaction` durable. StoreError: it is not, as far as can be told.

        After that the next one has to begin with all that this one had: it may turn out to be stored already.
        ReloadRequiredError where what was known of the database before is no longer true.
        """
        self.reconnect()
        held = transaction.held
        if self._db.lost_commits and held is None:
            raise StoreError(f"{self._db.name} lost {counted(self._db.lost_commits, 'transaction')}")
        if self._db.lost_commits:
            self._stored = (0, 0)
        newest = max(transaction.events[-1].cursor if transaction.events else 0, held.newest if held else 0)
        with self._db.owned_transaction(newest) as landed:
            if landed:
                self._stored = self._tried
            events, entries = self._stored
            self._tried = len(transaction.events), len(transaction.access.audit)
            if held:
                self._write_held(held)
            self._write_evidence(transaction, transaction.events[events:])
            self._write_coverage(transaction)
            records.write(self._db, transaction.access, entries)
            subscription_records.write(self._db, transaction.subscriptions)
            webhook_records.write(self._db, transaction.webhooks)
            plan_records.write(self._db, transaction.plans)
            overlay_records.write(self._db, transaction.overlays)
            bus_records.write(self._db, transaction.consumed)
        self._tried = self._stored = (0, 0)
        if held:
            self._db.lost_commits = 0

    def _write_held(self, held: Transaction) -> None:
        """In place of what is there: what was removed may be there again."""
        for table in HELD:
            self._db.execute(f"DELETE FROM {table}")
        cursors = [(event.cursor,) for event in held.events]
        self._db.execute_many("DELETE FROM events WHERE cursor = ?", cursors)
        self._write_evidence(held, held.events)
        self._write_coverage(held)
        records.write(self._db, held.access)
        subscription_records.write(self._db, held.subscriptions)
        webhook_records.write(self._db, held.webhooks)
        overlay_records.write(self._db, held.overlays)

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
            [key for key, part in transaction.ledgers.items() if part is None],
        )
        db.execute_many(
            """INSERT INTO ledgers VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fleet, device, shard, since_ns)
                DO UPDATE SET until_ns = excluded.until_ns, final = excluded.final, ledger = excluded.ledger""",
            [
                (*key, part.until_ns, int(part.final), part.data)
                for key, part in transaction.ledgers.items()
                if part is not None
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
        """Forget some of what is older than `before_ns`; returns how many rows went, 0 when there are no more.

        Which reports were taken is forgotten before `reports_ns`, too.
        """
        db, before_ns = self._db, max(0, before_ns)  # SQLite takes no number below -2**63
        with db.transaction():
            gone = db.execute(
                "DELETE FROM evidence WHERE id IN (SELECT id FROM evidence WHERE received_ns < ? LIMIT ?)",
                (max(before_ns, reports_ns), PRUNE_ROWS),
            )
            # Events are old at the front: looking at all of them once a minute would not do.
            gone += db.execute(
                """DELETE FROM events WHERE time_ns < ?
                    AND cursor IN (SELECT cursor FROM events ORDER BY cursor LIMIT ?)""",
                (before_ns, PRUNE_ROWS),
            )
            gone += records.prune(db, before_ns)
            gone += webhook_records.prune(db, before_ns)
            gone += db.execute("DELETE FROM episodes WHERE time_ns < ?", (before_ns,))
            gone += alarms.prune(db)
            gone += db.execute(
                "DELETE FROM pictures WHERE time_ns < ? OR number <= (SELECT MAX(number) FROM pictures) - ?",
                (before_ns, KEPT_PICTURES),
            )
        return gone

    def forget_phantoms(self, still_open: Container[str]) -> int:
        """As `alarms.forget_phantoms`."""
        return alarms.forget_phantoms(self._db, still_open)

    def check(self) -> None:
        """Find out whether the database can still be reached."""
        if not self.failing:
            self._db.check()

    def reconnect(self) -> None:
        """Connect with a database that failed; StoreError where that fails still.

        ReloadRequiredError where what the hub was to go on from can be read now.
        """
        if self.unloaded:
            self.load()
            raise ReloadRequiredError(f"{self._db.name} holds what could not be read before: begin anew from it")
        if self._db.failing:
            self._db.recover()

    def events(self, after: int, limit: int) -> list[AlarmEvent]:
        """Up to `limit` events past cursor `after`, ascending; none only where none is there that can be read."""
        while True:
            unreadable = self.unreadable
            found = list(self._rows(EVENTS, _event, (after, limit)))
            if found or self.unreadable == unreadable or (past := self._past_damage(after)) <= after:
                return found
            after = past

    def _past_damage(self, after: int) -> int:
        """The first cursor past `after` that an event which can be read follows; `after` where there is none."""

        def readable(cursor: int) -> bool:
            try:
                return any(_event(row) for row in self._db.rows(EVENTS, (cursor, 1)))
            except (DamagedError, DecodeError, ValueError, TypeError):
                return False

        last, low, step = self._db.newest_cursor() - 1, after, 1
        while not readable(high := min(low + step, last)):
            if high == last:
                return after
            low, step = high, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if readable(middle) else (middle, high)
        return high

    def search(self, bounds: EventBounds, limit: int, *, newest: bool = False) -> list[AlarmEvent]:
        """Up to `limit` events within `bounds`, ascending; the last of them where `newest`, descending."""
        # Only what bounds anything: a span of time is looked for by its index unless a condition on cursors is there.
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
        wanted = f"WHERE {' AND '.join(where)}" if where else ""
        query = f"SELECT event FROM events {wanted} ORDER BY cursor {'DESC' * newest} LIMIT ?"
        return list(self._rows(query, _event, (*arguments, limit)))

    def recorded_ns(self, cursor: int) -> int:
        """When the event of `cursor` was recorded; 0 where it is kept no more."""
        rows = self._db.rows("SELECT time_ns FROM events WHERE cursor = ?", (cursor,))
        return next((int(row[0]) for row in rows), 0)

    def alarms(self, wanted: AlarmQuery) -> list[PastAlarm]:
        """The alarms that `wanted` names, newest first."""
        return list(self._rows(*alarms.query(wanted)))

    def alarm_events(self, alarm: str) -> list[AlarmEvent]:
        """Every event of `alarm`, ascending; of one that a version before began, those that this version wrote."""
        query = """SELECT event FROM events, alarms WHERE alarms.alarm = ? AND events.zone = alarms.zone
            AND events.cursor >= first_cursor AND events.cursor <= last_cursor ORDER BY cursor"""
        return [event for event in self._rows(query, _event, (alarm,)) if event.alarm == alarm]

    def picture(self, alarm: str, device: str, kind: int) -> bytes | None:
        """The JPEG that was kept of `device` for `alarm`."""
        query = "SELECT jpeg FROM pictures WHERE alarm = ? AND device = ? AND kind = ?"
        return next((row[0] for row in self._db.rows(query, (alarm, device, kind))), None)

    def episodes(self, alarm: str) -> list[str]:
        """The signs that contributed to `alarm`."""
        return [row[0] for row in self._db.rows("SELECT episode FROM episodes WHERE alarm = ?", (alarm,))]

    def plan_image(self, name: str) -> bytes:
        """The picture of the plan `name`; empty where there is none."""
        return plan_records.image(self._db, name)

    def webhooks(self) -> dict[str, tuple[int, int]]:
        """How far each webhook has come, and how many dead letters it has."""
        return dict(self._rows(webhook_records.QUERY, webhook_records.read))

    def dead_letters(self, webhook: str, after: int, limit: int) -> list[DeadLetter]:
        """Up to `limit` events past cursor `after` that `webhook` gave up, ascending."""
        return list(
            self._rows(webhook_records.DEAD, webhook_records.read_letter, (webhook, min(after, ENDLESS), limit))
        )

    def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """As `records.audit`."""
        return records.audit(self._db, before, limit)

    def interrupt(self) -> None:
        """As `Database.interrupt`."""
        self._db.interrupt()

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()


def _event(row: tuple[bytes]) -> AlarmEvent:
    return AlarmEvent.FromString(row[0])


async def _await_patiently(running: "asyncio.Future[R]", store: Store, seconds: float) -> bool:
    """Wait until `running`, which uses `store`, is done, and interrupt it after `seconds`; whether these sufficed.

    They begin anew, once, where this process stood still: so did `running`, or nobody has heard yet that it is done.
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


def open_database(folder: Path, address: str = "", *, writer: bool = True, place: str = "") -> Database:
    """The database at `address`, a connection string of PostgreSQL or "@FILE" with one in it; '': SQLite's in `folder`.

    `place` is where other replicas reach this one. UserError where that cannot be; OwnedError where another hub has it.
    """
    if not address:
        return SqliteDatabase(folder / "hub.sqlite")
    try:
        from embereye.hub.databases.postgres import PostgresDatabase
    except ImportError as error:
        raise UserError(
            f"a database in PostgreSQL takes psycopg: pip install 'embereye[postgres]' ({error})"
        ) from error
    return PostgresDatabase(lambda: read_address(address), writer=writer, place=place)


def read_address(address: str) -> str:
    """The connection string that `address` is or, as "@FILE", names the file of."""
    if not address.startswith("@"):
        return address
    try:
        return Path(address[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise UserError(f"the database's address in {address[1:]} cannot be read: {reason}") from error


class StoreThreads:
    """The store for the event loop: one thread writes, another reads, so that a long history delays no alarm."""

    def __init__(self, folder: Path, address: str = "", place: str = "") -> None:
        """`address` and `place` as in `open_database`."""
        self._place = place
        self._folder = folder
        self._address = address
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="hub-history")
        self._lock: int | None = None
        self._patience = PATIENCE_SECONDS

    def _open(self, *, writer: bool = True) -> Store:
        return Store(open_database(self._folder, self._address, writer=writer, place=self._place))

    async def open(self) -> StoredState:
        """Lock the folder, open the database, and return what it holds."""
        loop = asyncio.get_running_loop()
        self._lock = await self._lock_folder()
        self._store = await loop.run_in_executor(self._writer, self._open)
        if self._store.failing and self._place:
            # Another replica may own it, or have owned it a moment ago: only one that does may serve.
            raise OwnedError(self._store.failing)
        if self._store.failing:
            logger.error("the database cannot be written: %s; what it holds is served", self._store.failing)
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
                return state
        if self._place:
            raise OwnedError(self._store.unloaded)
        logger.error("what the hub stored cannot be read: %s; it goes on without, until it can", self._store.failing)
        return StoredState()

    async def _lock_folder(self) -> int:
        """Lock the folder, which a replica that has just let go of the database may be about to let go of as well."""
        deadline = time.monotonic() + (FOLDER_SECONDS if self._place else 0)
        while True:
            try:
                return lock_folder(self._folder)
            except UserError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(0.1)

    @property
    def failing(self) -> str:
        """Why the database cannot be written, as far as is known; '' where it can."""
        return self._store.failing

    @property
    def lost_commits(self) -> int:
        """As `Store.lost_commits`."""
        return self._store.lost_commits

    @property
    def unreadable(self) -> int:
        """Rows that were passed over because they cannot be read."""
        return self._store.unreadable + (self._history.unreadable if hasattr(self, "_history") else 0)

    async def write(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the writing thread.

        What takes longer than the present patience fails; the next one is given twice as much, as there may just be
        much to write.
        """
        running = asyncio.get_running_loop().run_in_executor(self._writer, lambda: method(self._store))
        patient = await _await_patiently(running, self._store, self._patience)
        self._patience = PATIENCE_SECONDS if patient else min(2 * self._patience, MOST_PATIENCE_SECONDS)
        return await running

    async def read(self, method: "Callable[[Store], R]") -> R:
        """Run `method(store)` in the reading thread; in the writing one where there was no room for two."""
        if not hasattr(self, "_history"):
            return await self.write(method)

        def attempt() -> R:
            try:
                return method(self._history)
            except StoreError:
                # A connection that broke while nobody read is noticed only now, and may well be had again.
                return method(self._history)

        running = asyncio.get_running_loop().run_in_executor(self._reader, attempt)
        await _await_patiently(running, self._history, MOST_PATIENCE_SECONDS)
        return await running

    async def close(self) -> None:
        """Finish what is under way and let go of the folder."""
        loop = asyncio.get_running_loop()
        for executor, name in ((self._reader, "_history"), (self._writer, "_store")):
            if hasattr(self, name):
                await loop.run_in_executor(executor, getattr(self, name).close)
            executor.shutdown(wait=False)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
