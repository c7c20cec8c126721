"""The guarantees of both databases to the hub, and faults that only PostgreSQL can have."""

import asyncio
import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.servers.postgres import PASSWORD, Postgres
from harness.stored import Stored

from embereye.hub.actions import Action
from embereye.hub.database import DamagedError, ReloadRequiredError, Row, StoreError
from embereye.hub.databases import schema
from embereye.hub.databases import store as storage
from embereye.hub.databases.store import (
    Store,
    StoreThreads,
    lock_folder,
    open_database,
)
from embereye.hub.hub import Hub
from embereye.hub.report_key import report_key
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.access import AUDIT, TOKENS, AuditEntry, TokenRecord, audit_entries
from embereye.hub.tables.canaries import CANARIES, ShardKey, Success
from embereye.hub.tables.episodes import EPISODES, episodes_of_alarm
from embereye.hub.tables.events import EVENTS, events_after
from embereye.hub.tables.evidence import EVIDENCE, committed_keys
from embereye.hub.tables.pictures import PICTURES, picture
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.webhooks import dead_letters
from embereye.hub.tables.zones import ZONES
from embereye.levels import Kind, Level, Sense
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye.v1.evidence_pb2 import EvidenceItem


def entry(action: str) -> AuditEntry:
    return AuditEntry(1, "ada", Role.OPERATOR, "::1", action, "default/hall")


def events(*cursors: int) -> list[AlarmEvent]:
    return [AlarmEvent(cursor=cursor, namespace="default", zone="hall") for cursor in cursors]


def report(name: str, zone: str = "hall") -> EvidenceItem:
    return EvidenceItem(
        id=name, episode=name, fleet="default/sensors/hall", device=name, zone=zone, kind=Kind.SMOKE.wire,
        sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=time.time_ns(), until_ns=time.time_ns(),
    )  # fmt: skip


def test_a_row_that_is_written_again_replaces_the_old_one(stored: Stored) -> None:
    store = stored.open()
    for number in (1, 2):
        token = TokenRecord("ada", bytes([number]), Role.VIEWER, number, "admin")
        store.commit(
            Transaction(
                {
                    EVIDENCE: {"one": number},
                    ZONES: {("default", "hall"): bytes([number])},
                    PICTURES: {("a", "s", 1): (number, bytes([number]))},
                    EPISODES: {("a", "e"): number},
                    CANARIES: {ShardKey("f", "s"): Success(number, number)},
                    TOKENS: {"ada": token},
                }
            )
        )
    loaded = store.load()
    assert loaded[ZONES] == {("default", "hall"): b"\2"}
    assert loaded[CANARIES] == {("f", "s"): Success(2, 2)}
    assert [token.digest for token in loaded[TOKENS].values()] == [b"\2"]
    assert picture(store, "a", "s", 1) == b"\2"
    assert committed_keys(store, ["one", "two"]) == {"one"}
    assert episodes_of_alarm(store, "a") == ["e"]
    store.close()


def test_few_statements_query_known_reports_however_many_there_are(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored.open()
    names = [f"report-{number}" for number in range(1_100)]
    store.commit(Transaction({EVIDENCE: dict.fromkeys(names, 1)}))
    statements = set[str]()
    rows = store.db.rows

    def recorded(query: str, arguments: Sequence[object] = ()) -> Iterator[Row]:
        statements.add(query)
        return rows(query, arguments)

    monkeypatch.setattr(store.db, "rows", recorded)
    for count in (0, *range(1, 130), 255, 256, 257, 500, 511, 512, 513, 1_000, 1_025):
        assert committed_keys(store, [*names[:count], "new"]) == set(names[:count])
    assert committed_keys(store, []) == set()
    # The database caches prepared statements; one with hundreds of arguments takes some hundred kilobytes.
    assert len(statements) <= 10
    store.close()


def test_a_name_with_a_null_character_is_stored(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVIDENCE: {"nul\0": 1}, EPISODES: {("a", "e\0"): 1}}))
    assert committed_keys(store, ["nul\0"])
    assert len(episodes_of_alarm(store, "a")) == 1
    store.close()


def test_there_are_no_dead_letters_past_a_cursor_of_the_future(stored: Stored) -> None:
    store = stored.open()
    assert dead_letters(store, "pager", 2**64 - 1, 9) == []
    store.close()


NEXT = schema.VERSION + 1


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub of the next version, with one more column for episodes."""
    key = "PRIMARY KEY (alarm, episode)"
    altered = schema.TABLES.replace(key, f"place TEXT, {key}")
    assert altered != schema.TABLES
    monkeypatch.setattr(schema, "TABLES", altered)
    monkeypatch.setattr(schema, "MIGRATIONS", {NEXT: "ALTER TABLE episodes ADD COLUMN place TEXT"})
    monkeypatch.setattr(schema, "VERSION", NEXT)


def test_an_older_database_is_migrated_and_a_newer_one_is_refused(
    stored: Stored, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored.open()
    store.commit(Transaction({EPISODES: {("a", "e"): 7}}))
    store.close()
    with monkeypatch.context():
        request.getfixturevalue("next_version")
        for _ in range(2):
            store = stored.open()
            assert episodes_of_alarm(store, "a") == ["e"]
            store.close()
        assert stored.query("SELECT alarm, episode, time_ns, place FROM episodes") == [("a", "e", 7, None)]
    monkeypatch.undo()
    remedy = "restore a backup from this version into another" if stored.address else "move the file away and restore"
    newer = rf"written by a newer version of the hub \(format {NEXT}, not {NEXT - 1}\)\. .*{remedy}"
    with pytest.raises(UserError, match=newer):
        stored.open()
    if not stored.address:
        (stored.folder / "hub.sqlite").rename(stored.folder / "newer")
        stored.open().close()


def test_tokens_of_the_first_version_are_for_all_zones(tmp_path: Path) -> None:
    first = schema.TABLES.replace(", zones TEXT NOT NULL DEFAULT ''", "")
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite")) as old:
        old.executescript(first)
        old.execute("INSERT INTO tokens VALUES ('ada', x'01', 2, 7, 'admin')")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    store = Stored(tmp_path).open()
    assert store.load()[TOKENS] == {"ada": TokenRecord("ada", b"\x01", Role.OPERATOR, 7, "admin")}
    store.close()


def test_a_failed_migration_leaves_the_database_unchanged(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.open().close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", NEXT)
        patch.setattr(
            schema, "MIGRATIONS", {NEXT: "ALTER TABLE episodes ADD COLUMN place TEXT; ALTER TABLE none RENAME TO n"}
        )
        database = open_database(stored.folder, stored.address)
        assert "none" in database.failing
        database.close()
    store = stored.open()
    store.commit(Transaction({EPISODES: {("a", "e"): 7}}))
    assert stored.query("SELECT * FROM episodes") == [("a", "e", 7)]
    store.close()


# PostgreSQL


def test_after_a_broken_connection_the_transaction_is_stored_once(
    stored_in_postgres: Stored, postgres: Postgres
) -> None:
    store = stored_in_postgres.open()
    store.commit(Transaction({EVENTS: events(1)}))
    assert postgres.break_connections(stored_in_postgres.database) >= 1
    transaction = Transaction({EVENTS: events(2), EVIDENCE: {"two": 2}})
    with pytest.raises(StoreError, match="broke"):
        store.commit(transaction)
    assert store.failing
    store.commit(transaction)
    assert not store.failing
    assert [event.cursor for event in events_after(store, 0, 9)] == [1, 2]
    store.close()


@contextlib.contextmanager
def lost_answer(
    postgres: Postgres, stored: Stored, monkeypatch: pytest.MonkeyPatch, *, took_effect: bool
) -> Iterator[None]:
    """Break the connection at the end of a transaction, with `took_effect` after it took effect."""
    import psycopg

    leave = psycopg.Transaction.__exit__

    def broken(self: psycopg.Transaction, *error: object) -> object:
        if took_effect:  # the answer to COMMIT is lost, not COMMIT itself
            leave(self, *error)  # type: ignore[arg-type]
            self.connection._pipeline.sync()
        postgres.break_connections(stored.database)
        return self.connection.execute("SELECT 1").fetchall()

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Transaction, "__exit__", broken)
        yield


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_with_a_lost_answer_is_stored_exactly_once(
    stored_in_postgres: Stored, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    store = stored_in_postgres.open()
    store.commit(Transaction({EVENTS: events(1), AUDIT: [entry("first")]}))
    transaction = Transaction({EVENTS: events(2), AUDIT: [entry("second")]})
    with lost_answer(postgres, stored_in_postgres, monkeypatch, took_effect=took_effect), pytest.raises(StoreError):
        store.commit(transaction)
    # Meanwhile the hub continued: its next attempt starts with the changes of the first.
    transaction[EVENTS].extend(events(3))
    transaction[AUDIT].append(entry("third"))
    store.commit(transaction)
    store.commit(Transaction({EVENTS: events(4)}))
    assert [event.cursor for event in events_after(store, 0, 9)] == [1, 2, 3, 4]
    assert [entry.action for entry in audit_entries(store, 0, 9)] == ["third", "second", "first"]
    store.close()


def test_a_refused_commit_is_not_mistaken_for_an_earlier_one_with_a_lost_answer(
    stored_in_postgres: Stored, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored_in_postgres.open()
    transaction = Transaction({EVENTS: events(1)})
    with lost_answer(postgres, stored_in_postgres, monkeypatch, took_effect=True), pytest.raises(StoreError):
        store.commit(transaction)
    transaction[EVENTS].extend(events(2))
    transaction[ZONES]["default", "hall"] = b"state"
    for attempt in range(3):
        with monkeypatch.context() as patch:
            if attempt == 2:  # the connection breaks before anything is sent
                postgres.break_connections(stored_in_postgres.database)
            else:
                patch.setattr(ZONES, "write", lambda *_: store.db.execute("SELECT * FROM nowhere"))
            with pytest.raises(StoreError):
                store.commit(transaction)
    store.commit(transaction)
    assert [event.cursor for event in events_after(store, 0, 9)] == [1, 2]
    store.close()


def test_a_hub_that_lost_its_lock_cannot_write_after_another_became_owner(
    stored_in_postgres: Stored, postgres: Postgres
) -> None:
    stale = stored_in_postgres.open()
    stale.commit(Transaction({EVENTS: events(1)}))
    # It loses its session's lock without noticing, as after a network failure.
    holder = f"""SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE locktype = 'advisory' AND datname = '{stored_in_postgres.database}'"""
    assert len(postgres.execute(holder)) == 1
    list(stale.db.rows("SELECT pg_advisory_unlock_all()"))
    owner = stored_in_postgres.open()
    with pytest.raises(ReloadRequiredError, match="another hub owns"):
        stale.commit(Transaction({EVENTS: events(2)}))
    owner.commit(Transaction({EVENTS: events(2)}))
    assert [event.cursor for event in events_after(owner, 0, 9)] == [1, 2]
    stale.close()
    owner.close()


def test_an_unreadable_row_is_logged_only_once(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: events(1, 2, 3)}))
    garbage = "'\\xff'" if stored.address else "x'ff'"
    store.db.execute(f"UPDATE events SET event = {garbage} WHERE cursor = 2")
    for _ in range(5):
        assert [event.cursor for event in events_after(store, 0, 10)] == [1, 3]
    assert caplog.text.count("a row cannot be read and is skipped") == 1
    assert store.unreadable == 5
    store.close()


def test_events_after_a_damaged_page_are_still_found(tmp_path: Path) -> None:
    bodies = [AlarmEvent(cursor=number, zone="hall", why=f"<{number:06}>" + "x" * 200) for number in range(1, 2_001)]
    store = Store(open_database(tmp_path))
    store.commit(Transaction({EVENTS: bodies}))
    store.close()
    file = tmp_path / "hub.sqlite"
    data = bytearray(file.read_bytes())
    for damaged in (500, 1_200):
        page = data.index(b"<%06d>" % damaged) // 4_096 * 4_096
        data[page : page + 4_096] = bytes(4_096)
    file.write_bytes(data)
    store, cursors = Store(open_database(tmp_path)), list[int]()
    while part := events_after(store, cursors[-1] if cursors else 0, 256):
        cursors += [event.cursor for event in part]
    lost = sorted(set(range(1, 2_001)) - set(cursors))
    assert {500, 1_200} <= set(lost)
    assert len(lost) < 64, "no more than two pages of them"
    assert cursors == sorted(set(cursors))
    store.close()


def test_events_after_many_unreadable_rows_are_still_found(stored: Stored) -> None:
    store = stored.open()
    store.commit(Transaction({EVENTS: events(*range(1, 21))}))
    garbage = "'\\xff'" if stored.address else "x'ff'"
    store.db.execute(f"UPDATE events SET event = {garbage} WHERE cursor > 2 AND cursor < 15")
    assert [event.cursor for event in events_after(store, 2, 4)] == [15, 16, 17, 18]
    store.db.execute(f"UPDATE events SET event = {garbage} WHERE cursor > 2")
    assert events_after(store, 2, 4) == []
    store.close()


def test_a_temporary_disk_error_does_not_count_as_damage(tmp_path: Path) -> None:
    store = Store(open_database(tmp_path))
    store.commit(Transaction({EVENTS: events(1), ZONES: {("default", "hall"): b"state"}}))
    database = store.db._db  # type: ignore[attr-defined]
    database.set_progress_handler(lambda: 1, 1)  # fails each statement with an operational error, as a disk might
    for read in (store.load, lambda: events_after(store, 0, 9), store.db.newest_cursor):
        with pytest.raises(StoreError) as refused:
            read()
        assert not isinstance(refused.value, DamagedError)
    database.set_progress_handler(None, 1)
    assert (store.load()[ZONES], store.load().cursor, store.unreadable) == ({("default", "hall"): b"state"}, 1, 0)
    store.close()


async def test_a_hub_starts_with_the_complete_stored_state_or_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(open_database(tmp_path))
    store.commit(Transaction({ZONES: {("default", "hall"): b"state"}}))
    store.close()
    monkeypatch.setattr(storage, "LOAD_RETRY_SECONDS", 0.01)
    load, failures = Store.load, [StoreError("disk I/O error")] * 3

    def failing(store: Store) -> StoredState:
        if failures:
            raise failures.pop()
        return load(store)

    monkeypatch.setattr(Store, "load", failing)
    threads = StoreThreads(tmp_path)
    assert (await threads.open())[ZONES] == {("default", "hall"): b"state"}
    await threads.close()
    monkeypatch.setattr(storage, "LOAD_SECONDS", 0.001)
    failures.append(StoreError("disk I/O error"))
    threads = StoreThreads(tmp_path)
    assert await threads.open() == StoredState(), "the hub starts, although nothing can be stored"
    assert threads.failing == "disk I/O error"
    failures.append(StoreError("disk I/O error"))
    with pytest.raises(StoreError, match="disk I/O error"):
        await threads.write(lambda store: store.commit(Transaction()))
    with pytest.raises(ReloadRequiredError, match="can be read again"):
        await threads.write(Store.reconnect)
    await threads.close()


def test_other_tools_may_change_the_open_database_file(tmp_path: Path) -> None:
    store = Store(open_database(tmp_path))
    store.commit(Transaction({EVIDENCE: {f"report-{number}": 1 for number in range(5_000)}}))
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite", isolation_level=None)) as other:
        other.execute("DELETE FROM evidence WHERE id <> 'report-7'")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.commit(Transaction({EVIDENCE: {"last": 1}}))
    store.check()
    assert committed_keys(store, ["report-7", "last"]) == {"report-7", "last"}
    store.close()


def test_a_read_only_folder_is_locked_for_one_hub_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, mode)

    os.close(lock_folder(tmp_path))
    for first, second in ((opened, read_only), (read_only, opened), (read_only, read_only)):
        monkeypatch.setattr(os, "open", first)
        lock = lock_folder(tmp_path)
        monkeypatch.setattr(os, "open", second)
        with pytest.raises(UserError, match="is in use by another hub"):
            lock_folder(tmp_path)
        os.close(lock)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_hub_does_not_write_to_a_removed_database_file(tmp_path: Path, suffix: str) -> None:
    store = Store(open_database(tmp_path))
    store.commit(Transaction({EVIDENCE: {"before": 1}}))
    (tmp_path / f"hub.sqlite{suffix}").unlink()
    for attempt in (lambda: store.commit(Transaction({EVIDENCE: {"after": 1}})), store.check):
        with pytest.raises(ReloadRequiredError, match=f"hub.sqlite{suffix} was removed in .* while it was open"):
            attempt()
    store.close()


def test_a_second_hub_is_refused_because_the_database_is_in_use(
    stored_in_postgres: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    from embereye.hub.databases import postgres as module

    monkeypatch.setattr(module, "OWNER_SECONDS", 0.2)
    first = stored_in_postgres.open()
    with pytest.raises(UserError, match=r"is in use by another hub\. Stop it, or name another database"):
        stored_in_postgres.open()
    first.close()
    stored_in_postgres.open().close()


def test_an_invalid_address_is_refused_without_showing_its_password(stored_in_postgres: Stored) -> None:
    with pytest.raises(UserError, match="postgresql://USER") as refused:
        open_database(stored_in_postgres.folder, "host=localhost secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(UserError, match="cannot be read"):
        open_database(stored_in_postgres.folder, "@/nowhere")


def test_a_refused_login_does_not_show_the_password(stored_in_postgres: Stored) -> None:
    database = open_database(stored_in_postgres.folder, stored_in_postgres.address.replace("mar", "war"))
    assert "password authentication failed" in database.failing
    assert PASSWORD not in database.failing
    assert "war" not in database.failing
    database.close()


def test_the_password_is_read_again_for_each_connection(stored_in_postgres: Stored, postgres: Postgres) -> None:
    file = stored_in_postgres.folder / "address"
    file.write_text(stored_in_postgres.address + "\n")
    store = Store(open_database(stored_in_postgres.folder, f"@{file}"))
    postgres.execute("DROP ROLE IF EXISTS other")
    postgres.execute("CREATE ROLE other SUPERUSER LOGIN PASSWORD 'new'")
    file.write_text(f"postgresql://other:new@127.0.0.1:{postgres.port}/{stored_in_postgres.database}")
    postgres.break_connections(stored_in_postgres.database)
    with pytest.raises(StoreError):
        store.commit(Transaction({EVENTS: events(1)}))
    store.commit(Transaction({EVENTS: events(1)}))
    assert list(store.db.rows("SELECT current_user")) == [("other",)]
    store.close()


async def test_a_fire_is_shown_without_the_database_and_stored_once_it_is_back(
    stored_apart: Stored, own_postgres: Postgres
) -> None:
    threads, durable = stored_apart.threads(), list[str]()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    await hub.open()
    running = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("before"), durable.append)
    await eventually(lambda: durable == ["before"])
    await asyncio.to_thread(own_postgres.stop)
    try:
        await eventually(lambda: hub.committer.failing)  # even though nothing is to be written
        hub.inbox.admit(report("before"), durable.append)  # sent again: its acknowledgement was lost
        hub.inbox.admit(report("during", "attic"), durable.append)
        await eventually(lambda: len(hub.zones.messages()) == 2)
        assert durable == ["before"]
    finally:
        await asyncio.to_thread(own_postgres.start)
    await eventually(lambda: durable == ["before", "before", "during"])
    assert hub.inbox.counters.duplicate == 1
    assert not hub.committer.failing
    assert [event.zone for event in await hub.history.events(0, 9)] == ["hall", "attic"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threads.close()


async def test_a_fire_is_shown_while_the_database_does_not_answer(stored_apart: Stored, own_postgres: Postgres) -> None:
    threads, durable = stored_apart.threads(), list[str]()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    await hub.open()
    running = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("before"), durable.append)
    await eventually(lambda: durable == ["before"])
    await asyncio.to_thread(own_postgres.freeze)
    try:
        hub.inbox.admit(report("during", "attic"), durable.append)
        await eventually(lambda: len(hub.zones.messages()) == 2)
        assert durable == ["before"]
        await eventually(lambda: hub.committer.failing)
    finally:
        await asyncio.to_thread(own_postgres.freeze, frozen=False)
    await eventually(lambda: durable == ["before", "during"])
    assert [event.zone for event in await hub.history.events(0, 9)] == ["hall", "attic"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threads.close()


async def test_after_a_failover_that_lost_commits_the_hub_rewrites_its_state(
    stored_in_postgres: Stored, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    admin, database = Principal("ada", Role.ADMIN, "ada"), stored_in_postgres.database
    tables = [*schema.table_names(), "hub_owner"]
    threads, durable = stored_in_postgres.threads(), list[str]()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    await hub.open()
    running = asyncio.ensure_future(hub.run())
    hub.inbox.admit(report("before"), durable.append)
    await eventually(lambda: durable == ["before"])
    await hub.access.create_token(admin, "lost-phone", Role.VIEWER)
    silence = await hub.silences.begin(admin, "default", "hall", reason="drill", minutes=5)
    for table in tables:
        postgres.execute(f"CREATE TABLE replica_{table} AS TABLE {table}", database)
    # Changes that the replica which takes over does not have:
    await hub.access.revoke(admin, "lost-phone")
    await hub.access.create_token(admin, "new-phone", Role.VIEWER)
    await hub.silences.end(admin, silence.silence.id)
    await hub.actions.perform(Action.ACKNOWLEDGE, admin, "default", "hall")
    hub.inbox.admit(report("after", "attic"), durable.append)
    await eventually(lambda: durable == ["before", "after"])
    cursor = hub.feed.latest
    for table in tables:
        statement = f"BEGIN; TRUNCATE {table}; INSERT INTO {table} SELECT * FROM replica_{table}; COMMIT"
        postgres.execute(statement, database)
    postgres.break_connections(database)
    await eventually(lambda: "which it had acknowledged" in caplog.text and not hub.committer.failing)
    hub.inbox.admit(report("after", "attic"), durable.append)  # sent again: its acknowledgement was lost
    await eventually(lambda: durable == ["before", "after", "after"])
    assert hub.inbox.counters.duplicate == 1
    assert [event.cursor for event in await hub.history.events(0, 99)] == list(range(1, cursor + 1))
    assert await hub.committer.flush(20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threads.close()
    again = Hub(stored_in_postgres.threads(), retention_ns=3600 * SECOND)
    await again.open()
    assert [token.name for token in again.access.tokens()] == ["new-phone"]
    assert again.silences.all() == []
    assert {zone.name: zone.state for zone in again.zones.messages()} == {
        zone.name: zone.state for zone in hub.zones.messages()
    }
    assert again.feed.latest == cursor
    await again._store.close()


async def test_a_hub_started_without_its_database_reloads_once_it_can_be_read(
    stored_apart: Stored, own_postgres: Postgres
) -> None:
    store = stored_apart.open()
    store.commit(Transaction({EVENTS: events(1)}))
    store.close()
    await asyncio.to_thread(own_postgres.stop)
    threads = stored_apart.threads()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    try:
        await hub.open()
        running = asyncio.ensure_future(hub.run())
        hub.inbox.admit(report("seen"), lambda _: None)
        await eventually(hub.zones.messages)
        assert "cannot be reached" in hub.committer.failing
    finally:
        await asyncio.to_thread(own_postgres.start)
    with pytest.raises(ReloadRequiredError, match="can be read again"):
        await asyncio.wait_for(running, 60)
    await threads.close()
    store = stored_apart.open()
    assert committed_keys(store, ["seen"]) == set(), "the shard sends unacknowledged reports again"
    store.close()


async def test_a_hub_started_before_its_empty_database_continues_with_it(
    stored_apart: Stored, own_postgres: Postgres
) -> None:
    await asyncio.to_thread(own_postgres.stop)
    threads, durable = stored_apart.threads(), list[str]()
    hub = Hub(threads, retention_ns=3600 * SECOND)
    try:
        await hub.open()
        running = asyncio.ensure_future(hub.run())
        hub.inbox.admit(report("seen"), durable.append)
    finally:
        await asyncio.to_thread(own_postgres.start)
    await eventually(lambda: durable)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threads.close()
    assert stored_apart.query("SELECT id FROM evidence") == [(report_key(report("seen")),)]
