"""Addresses of a database server whose name cannot be resolved for some time."""

import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.hub.databases import postgres
from embereye.hub.databases.addresses import KnownAddresses, dialled
from embereye.hub.databases.owner import NewDatabaseError, OwnerWatch
from embereye.hub.databases.postgres import LOCK, PostgresDatabase

NAME = "database.example"


class Names:
    """A resolver that answers, fails, or does not answer until `answers` is set."""

    def __init__(self) -> None:
        self.addresses: list[str] | OSError = ["127.0.0.1"]
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0

    def look_up(self, host: str) -> list[str]:
        assert host == NAME
        self.asked += 1
        assert self.answers.wait(60)
        if isinstance(self.addresses, OSError):
            raise self.addresses
        return self.addresses


@pytest.fixture
def names() -> Iterator[Names]:
    resolver = Names()
    yield resolver
    resolver.answers.set()  # no thread remains


def test_a_name_is_looked_up_each_time(names: Names) -> None:
    known = KnownAddresses(names.look_up)
    assert known.of(NAME) == ["127.0.0.1"]
    names.addresses = ["127.0.0.2", "::1"]
    assert known.of(NAME) == ["127.0.0.2", "::1"]


def test_a_name_that_was_never_resolved_fails_with_its_reason(names: Names) -> None:
    names.addresses = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    with pytest.raises(OSError, match="Temporary failure"):
        KnownAddresses(names.look_up).of(NAME)


def test_known_addresses_are_used_while_lookups_fail(names: Names) -> None:
    known = KnownAddresses(names.look_up)
    known.of(NAME)
    names.addresses = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert known.of(NAME) == ["127.0.0.1"]


async def test_known_addresses_are_used_while_a_lookup_lasts_and_its_result_afterwards(names: Names) -> None:
    known = KnownAddresses(names.look_up, patience=0.05)
    known.of(NAME)
    names.answers.clear()
    names.addresses = ["127.0.0.2"]
    assert [known.of(NAME) for _ in range(3)] == [["127.0.0.1"]] * 3
    assert names.asked == 2  # the lookup that lasts is the only one
    names.answers.set()
    await eventually(lambda: known.of(NAME) == ["127.0.0.2"])


def test_a_connection_is_tried_at_each_address_of_a_single_name(names: Names) -> None:
    names.addresses = ["::1", "127.0.0.1"]
    known = KnownAddresses(names.look_up)
    assert dialled({"host": NAME, "port": "5432"}, known) == [
        {"host": NAME, "port": "5432", "hostaddr": "::1"}, {"host": NAME, "port": "5432", "hostaddr": "127.0.0.1"}
    ]  # fmt: skip
    for options in ({}, {"host": "/run/postgresql"}, {"host": "a,b"}, {"host": NAME, "hostaddr": "10.0.0.1"}):
        assert dialled(options, known) == [options]


def test_a_hub_reaches_its_database_again_while_names_are_not_resolved(
    stored_in_postgres: Stored, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = stored_in_postgres.address.replace("127.0.0.1", NAME)
    assert NAME in address
    monkeypatch.setattr(postgres, "KNOWN", KnownAddresses(names.look_up, patience=0.05))
    watch = OwnerWatch(lambda: address)
    assert watch.read_owner() is None
    names.answers.clear()
    owner = PostgresDatabase(lambda: address)  # takes over
    assert owner.failing == ""
    owner.close()
    watch.close()


def test_a_replica_waits_for_the_tables_of_a_new_database(stored_in_postgres: Stored) -> None:
    watch = OwnerWatch(lambda: stored_in_postgres.address)
    with psycopg.connect(stored_in_postgres.address, autocommit=True) as first:
        first.execute(f"SELECT pg_advisory_lock({LOCK})")
        with pytest.raises(NewDatabaseError):
            watch.read_owner()
    watch.close()
