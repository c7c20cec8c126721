"""The ledgers of a device's past and present owners."""

import os

from harness.stored import Stored

from embereye.hub.coverage.ledgers import EARLIER, MAX_OWNERS, LedgerBook, add_up
from embereye.hub.tables.ledgers import LEDGERS, OwnerLedger
from embereye.hub.tables.transaction import Transaction
from embereye.process.telemetry.usage import resident_mb
from embereye.v1.evidence_pb2 import ClosedLedger, Coverage, DeviceStatus, Ledger

FLEET = "default/sensors/hall"


def coverage_report(
    shard: str, time_ns: int, analysed: int, *, since: int = 1, final: bool = False, shed: int = 0
) -> Coverage:
    ledger = Ledger(offered=analysed + shed, analysed=analysed, shed={"compacted": shed}, since_ns=since)
    status = DeviceStatus(id="s-01", zone="hall", ledger=ledger)
    return Coverage(fleet=FLEET, shard=shard, time_ns=time_ns, devices=[status], final=final)


def report(book: LedgerBook, coverage: Coverage) -> None:
    book.report(coverage, coverage.time_ns)


def owners(book: LedgerBook) -> list[tuple[str, int, bool]]:
    return [(entry.key.shard, entry.ledger.analysed, entry.final) for entry in book.owner_ledgers(FLEET, "s-01")]


def test_a_handed_over_device_retains_its_old_owners_ledger() -> None:
    book = LedgerBook()
    report(book, coverage_report("one", 10, 5))
    closed = ClosedLedger(device="s-01", ledger=Ledger(offered=7, analysed=7, since_ns=1))
    report(book, Coverage(fleet=FLEET, shard="one", time_ns=20, closed=[closed]))
    report(book, coverage_report("two", 21, 4, since=15, shed=2))
    assert owners(book) == [("one", 7, True), ("two", 4, False)]
    total = add_up(entry.ledger for entry in book.owner_ledgers(FLEET, "s-01"))
    assert (total.offered, total.analysed, dict(total.shed), total.since_ns) == (13, 11, {"compacted": 2}, 1)


def test_a_killed_shards_last_ledger_remains() -> None:
    book = LedgerBook()
    report(book, coverage_report("one", 10, 5, since=1))
    report(book, coverage_report("one", 20, 3, since=15))  # the same shard, restarted
    assert owners(book) == [("one", 5, False), ("one", 3, False)]


def test_a_report_that_is_late_or_follows_the_final_one_changes_nothing() -> None:
    book = LedgerBook()
    report(book, coverage_report("one", 10, 5))
    report(book, coverage_report("one", 9, 4))
    report(book, coverage_report("one", 11, 6, final=True))
    report(book, coverage_report("one", 12, 5))
    assert owners(book) == [("one", 6, True)]


def test_the_oldest_owners_ledgers_are_merged() -> None:
    book = LedgerBook()
    for number in range(1, MAX_OWNERS + 4):
        report(book, coverage_report(f"shard-{number}", number, 10, since=number))
    entries = owners(book)
    assert len(entries) == MAX_OWNERS
    assert entries[0] == (EARLIER, 40, False)
    assert sum(analysed for _, analysed, _ in entries) == 10 * (MAX_OWNERS + 3)


def test_an_owner_whose_clock_is_behind_counts_once() -> None:
    book = LedgerBook()
    for number in range(1, MAX_OWNERS + 1):
        report(book, coverage_report(f"shard-{number}", 100 + number, 10, since=100 + number))
    for time_ns in (201, 202, 203):
        book.report(coverage_report("late", time_ns, 10, since=1), time_ns)
    assert dict(book.fleet_totals())[FLEET]["analysed"] == 10 * (MAX_OWNERS + 1)
    assert ("late", 10, False) in owners(book)
    assert len(owners(book)) == MAX_OWNERS


def test_a_ledger_takes_less_than_a_kilobyte() -> None:
    book, devices = LedgerBook(), 2_000
    before = resident_mb(os.getpid())
    for number in range(MAX_OWNERS):
        coverage = coverage_report(f"shard-{number}", number + 1, 10, since=number + 1)
        for device in range(1, devices):
            coverage.devices.add(id=f"s-{device}", zone="hall", ledger=coverage.devices[0].ledger)
        report(book, Coverage.FromString(coverage.SerializeToString()))
        book.collect_changes()
        list(book.fleet_totals())
    assert len(book.owner_ledgers(FLEET, "s-1")) == MAX_OWNERS
    assert resident_mb(os.getpid()) - before < devices * MAX_OWNERS / 1024


def test_a_fleets_totals_include_all_owners_and_never_decrease() -> None:
    book = LedgerBook()
    for shard, time_ns, analysed, shed in (("one", 1, 5, 0), ("one", 2, 7, 1), ("two", 3, 4, 2)):
        report(book, coverage_report(shard, time_ns, analysed, since=1 if shard == "one" else 3, shed=shed))
    [(fleet, counts)] = book.fleet_totals()
    assert fleet == FLEET
    assert counts == {"offered": 14, "analysed": 11, "shed": 3, "duplicate": 0, "rejected": 0}
    again = LedgerBook()
    again.restore(
        OwnerLedger.create(entry.key, entry.until_ns, entry.final, entry.ledger)
        for entry in book.collect_changes().values()
        if entry
    )
    assert list(again.fleet_totals()) == [(FLEET, counts)]
    book.expire(100)
    assert list(book.fleet_totals()) == [(FLEET, counts)]
    book.forget(FLEET)
    assert not list(book.fleet_totals())


def test_an_undeclared_device_has_no_ledger() -> None:
    book = LedgerBook()
    report(book, Coverage(fleet=FLEET, shard="one", time_ns=1, devices=[DeviceStatus(id="stranger")]))
    assert not book.owner_ledgers(FLEET, "stranger")


def test_ledgers_survive_the_hub_and_vanish_with_their_fleet(stored: Stored) -> None:
    def reloaded(book: LedgerBook) -> LedgerBook:
        store = stored.open()
        store.commit(Transaction({LEDGERS: book.collect_changes()}))
        again = LedgerBook()
        again.restore(store.load()[LEDGERS].values())
        store.close()
        return again

    book = LedgerBook()
    for number in range(1, MAX_OWNERS + 4):
        report(book, coverage_report(f"shard-{number}", number, 10, since=number, final=number % 2 == 0))
    again = reloaded(book)
    assert owners(again) == owners(book)
    again.expire(MAX_OWNERS + 3)
    assert owners(again) == owners(book)
    again.forget(FLEET)
    assert not owners(reloaded(again))
