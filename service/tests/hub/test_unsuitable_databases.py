"""Databases that a hub refuses, and values that a database refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.servers.pooler import pooling
from harness.servers.postgres import Postgres
from harness.stored import Stored

from embereye.hub.database import StoreError
from embereye.hub.databases.owner import OwnerWatch
from embereye.hub.databases.store import Store, open_database
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.access import AUDIT, TOKENS, AuditEntry, TokenRecord, audit_entries
from embereye.hub.tables.evidence import EVIDENCE, committed_keys
from embereye.hub.tables.transaction import Transaction
from embereye.process.lifecycle import UserError

from .running import running

KITCHEN = "厨房"


@pytest.fixture(params=["LATIN1", "SQL_ASCII", "WIN1252", "EUC_JP"])
def stored_otherwise(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Iterator[Stored]:
    """An empty PostgreSQL database that does not store UTF-8."""
    stored = Stored.in_postgres(tmp_path, postgres, request.param)
    yield stored
    postgres.drop_database(stored.database)


def test_a_database_in_another_encoding_is_refused_at_the_start(stored_otherwise: Stored) -> None:
    for writer in (True, False):
        with pytest.raises(UserError, match=r"encoding (LATIN1|SQL_ASCII|WIN1252|EUC_JP): .* ENCODING 'UTF8'"):
            open_database(stored_otherwise.folder, stored_otherwise.address, writer=writer)
    assert stored_otherwise.query("SELECT 1 FROM pg_tables WHERE tablename = 'hub_owner'") == []


def test_a_standby_refuses_a_database_that_no_hub_can_use(stored_otherwise: Stored) -> None:
    watch = OwnerWatch(lambda: stored_otherwise.address)
    with pytest.raises(UserError, match="encoding"):
        watch.read_owner()
    watch.close()


@pytest.mark.parametrize("option", ["client_encoding=latin1", "options=-c%20client_encoding%3Dsql_ascii"])
def test_the_encoding_in_an_address_does_not_change_what_is_stored(stored_in_postgres: Stored, option: str) -> None:
    store = Store(open_database(stored_in_postgres.folder, f"{stored_in_postgres.address}?{option}"))
    store.commit(Transaction({EVIDENCE: {KITCHEN: 1}}))
    assert committed_keys(store, [KITCHEN]) == {KITCHEN}
    assert stored_in_postgres.query("SELECT id FROM evidence") == [(KITCHEN,)]
    store.close()


def test_a_pooler_that_shares_its_sessions_is_refused_and_changes_nothing(stored_in_postgres: Stored) -> None:
    with pooling(stored_in_postgres.address, per_transaction=True) as address:
        for writer in (True, False):
            with pytest.raises(UserError, match="pool_mode=session"):
                open_database(stored_in_postgres.folder, address, writer=writer)
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            assert connection.execute("SHOW default_transaction_read_only").fetchone() == ("off",)
            assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
    assert stored_in_postgres.query("SELECT 1 FROM pg_tables WHERE tablename = 'hub_owner'") == []


def test_a_pooler_that_gives_each_client_a_session_is_accepted(stored_in_postgres: Stored) -> None:
    with pooling(stored_in_postgres.address, per_transaction=False) as address:
        store = Store(open_database(stored_in_postgres.folder, address))
        store.commit(Transaction({EVIDENCE: {"one": 1}}))
        assert committed_keys(store, ["one"]) == {"one"}
        store.close()


def test_text_that_is_not_valid_unicode_is_stored_with_replacements(stored: Stored) -> None:
    store = stored.open()
    half = "half \ud800 of a pair"
    for _ in range(2):
        store.commit(
            Transaction(
                {
                    EVIDENCE: {half: 1},
                    TOKENS: {half: TokenRecord(half, b"1", Role.VIEWER, 1, half)},
                    AUDIT: [AuditEntry(1, half, Role.ADMIN, "", half, half)],
                }
            )
        )
    assert committed_keys(store, [half])
    assert [entry.who for entry in audit_entries(store, 0, 9)] == ["half ? of a pair"] * 2
    store.close()


def test_a_value_that_cannot_be_converted_is_an_error_of_the_store(stored: Stored) -> None:
    store = stored.open()
    with pytest.raises(StoreError):
        store.commit(Transaction({EVIDENCE: {"large": 2**64}}))
    store.commit(Transaction({EVIDENCE: {"small": 1}}))
    assert committed_keys(store, ["small", "large"]) == {"small"}
    store.close()


def test_a_token_with_an_unknown_role_lets_nobody_in_and_ends_nothing(stored: Stored) -> None:
    store = stored.open()
    names = {name: TokenRecord(name, b"1", Role.VIEWER, 1, "admin") for name in ("good", "bad")}
    store.commit(Transaction({TOKENS: names, AUDIT: [AuditEntry(1, "ada", Role.ADMIN, "", "x", "y")]}))
    store.db.execute("UPDATE tokens SET role = 99 WHERE name = 'bad'")
    store.db.execute("UPDATE audit SET role = 99")
    assert [token.name for token in store.load()[TOKENS].values()] == ["good"]
    assert audit_entries(store, 0, 9) == []
    assert store.unreadable == 2
    store.close()


async def test_a_person_whose_note_is_not_valid_unicode_does_not_end_the_hub(stored: Stored) -> None:
    async with running(stored) as hub:
        await hub.access.create_token(Principal("ada \ud83d", Role.ADMIN, "ada"), "phone", Role.VIEWER)
        assert [token.name for token in hub.access.tokens()] == ["phone"]
