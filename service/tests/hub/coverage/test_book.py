from embereye.hub.coverage.book import (
    FORGET,
    FRESH,
    MARGIN,
    MAX_UNDECLARED,
    NOBODY,
    RESTART_GRACE,
    CoverageBook,
    Fleet,
    Watched,
)
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, ThermalPicture
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

FLEET = "default/cameras/yard"
DEADLINE = 2 * SECOND
START = 1_000 * SECOND


def roster(epoch: int = 1, *devices: str) -> FleetRoster:
    names = devices or ("cam-1", "cam-2")
    return FleetRoster(
        fleet=FLEET, epoch=epoch, deadline_ns=DEADLINE, devices=[Device(id=name, zone="yard") for name in names]
    )


def report(*covered: str, dark: tuple[str, ...] = (), shard: str = "yard-0", epoch: int = 1, time: int = 0) -> Coverage:
    devices = [DeviceStatus(id=name, zone="yard", covered=True) for name in covered]
    devices += [DeviceStatus(id=name, zone="yard", reason="silent for 6.2 s") for name in dark]
    return Coverage(fleet=FLEET, shard=shard, epoch=epoch, time_ns=time, devices=devices)


def book_at_rest() -> CoverageBook:
    """A book whose roster was set long after the start."""
    book = CoverageBook(0)
    book.set_roster(roster(), START)
    return book


def declared_device(book: CoverageBook, device: str = "cam-1") -> tuple[Fleet, Watched]:
    declared = book.find(FLEET, device)
    assert declared is not None
    return declared


def test_a_device_is_covered_while_a_fresh_report_says_so() -> None:
    book = book_at_rest()
    book.report(report("cam-1"), START)
    assert book.is_covered(*declared_device(book), START + FRESH - 1)
    assert not book.is_covered(*declared_device(book), START + FRESH)
    assert book.counts(START)["default", "yard"] == (2, 1)


def test_an_uncovered_device_is_dark_after_its_deadline_and_the_margin() -> None:
    book = book_at_rest()
    book.report(report("cam-1"), START + SECOND)
    due = START + SECOND + DEADLINE + MARGIN
    assert not book.is_dark(*declared_device(book), due)
    assert book.is_dark(*declared_device(book), due + 1)
    assert book.reason(*declared_device(book), due + 1) == NOBODY


def test_a_newly_declared_device_gets_the_same_time() -> None:
    book = book_at_rest()
    assert not book.is_dark(*declared_device(book), START + DEADLINE + MARGIN)
    assert book.is_dark(*declared_device(book), START + DEADLINE + MARGIN + 1)


def test_after_a_restart_shards_get_time_to_come_back() -> None:
    book = CoverageBook(START)
    book.restore(roster(), derived=False)
    assert not book.is_dark(*declared_device(book), START + DEADLINE + RESTART_GRACE)
    assert book.is_dark(*declared_device(book), START + DEADLINE + RESTART_GRACE + 1)


def test_the_shards_reason_is_reported() -> None:
    book = book_at_rest()
    book.report(report(dark=("cam-1",)), START)
    assert book.reason(*declared_device(book), START) == "silent for 6.2 s"


def test_during_a_hand_over_either_shard_covers_the_device() -> None:
    book = book_at_rest()
    book.report(report("cam-1", shard="yard-0"), START)
    book.report(report(dark=("cam-1",), shard="yard-1"), START)
    assert book.is_covered(*declared_device(book), START)
    book.report(report("cam-2", shard="yard-0", time=1), START)  # yard-0 no longer lists cam-1
    assert not book.is_covered(*declared_device(book), START)
    assert book.reason(*declared_device(book), START) == "silent for 6.2 s"


def test_a_shard_that_works_under_an_outdated_assignment_does_not_cover() -> None:
    book = book_at_rest()
    book.set_roster(roster(2), START)
    book.report(report("cam-1", epoch=1), START)
    assert not book.is_covered(*declared_device(book), START)
    assert book.reason(*declared_device(book), START) == "yard-0 still works under assignment 1, but 2 is in force"
    book.report(report("cam-1", epoch=3, time=1), START)
    assert book.is_covered(*declared_device(book), START)


def test_a_new_roster_retains_the_state_of_its_remaining_devices() -> None:
    book = book_at_rest()
    book.report(report("cam-1"), START)
    book.set_roster(roster(1, "cam-1", "cam-9"), START)
    assert book.is_covered(*declared_device(book), START)
    assert book.find(FLEET, "cam-2") is None


def test_a_report_from_an_older_stream_of_the_same_shard_is_ignored() -> None:
    book = book_at_rest()
    book.report(report(dark=("cam-1",), time=20), START)
    book.report(report("cam-1", time=10), START)
    assert not book.is_covered(*declared_device(book), START)


def test_a_process_that_was_replaced_changes_nothing_while_its_successor_reports() -> None:
    book = book_at_rest()
    book.set_roster(roster(2), START)
    for second in range(1, 10):
        now = START + second * SECOND
        book.report(report("cam-1", epoch=2, time=now), now)
        book.report(report(dark=("cam-1",), epoch=1, time=now + 1), now + 1)  # its node was lost, and is back
        assert book.is_covered(*declared_device(book), now + 1)
    book.report(report(dark=("cam-1",), epoch=1, time=now + FRESH), now + FRESH)
    assert book.reason(*declared_device(book), now + FRESH) == (
        "yard-0 still works under assignment 1, but 2 is in force"
    ), "a shard that restarts under an older assignment is heard again soon"


def test_the_time_since_each_shards_latest_report_is_known() -> None:
    book = book_at_rest()
    book.report(report("cam-1"), START)
    book.report(report("cam-2", shard="yard-1"), START + SECOND)
    now = START + 6 * SECOND
    assert book.silences(now) == {(FLEET, "yard-0"): 6 * SECOND, (FLEET, "yard-1"): 5 * SECOND}


def test_an_undeclared_fleet_has_the_devices_that_its_shards_list() -> None:
    book = CoverageBook(0)
    assert book.report(report("cam-1"), START) is not None
    assert book.report(report("cam-1", time=1), START) is None, "nothing new to store"
    assert book.report(report("cam-1", "cam-2", time=2), START) is not None
    book.report(report("cam-1", time=3), START)
    assert book.find(FLEET, "cam-2") is not None, "a device that no shard lists any more is dark, not gone"


def test_late_reports_do_not_restore_a_forgotten_fleet() -> None:
    book = book_at_rest()
    book.forget(FLEET)
    assert book.report(report("cam-1"), START) is None
    assert FLEET not in book.fleets
    book.set_roster(roster(), START)
    assert FLEET in book.fleets


def test_a_report_without_a_picture_leaves_the_picture_in_place() -> None:
    book = book_at_rest()
    status = DeviceStatus(id="cam-1", covered=True, picture=b"jpeg", thermal=ThermalPicture(celsius=[20.0]))
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, time_ns=5, devices=[status]), START)
    book.report(report("cam-1", time=6), START)
    watched = declared_device(book)[1]
    assert (watched.picture, watched.picture_ns) == (b"jpeg", 5)
    assert watched.thermal is not None
    assert list(watched.thermal.celsius) == [20.0]


def test_the_reports_of_a_vanished_shard_are_dropped_later() -> None:
    book = book_at_rest()
    book.report(report("cam-1"), START)
    book.tidy(START + 61 * SECOND)
    assert not declared_device(book)[1].sightings


def test_no_device_is_judged_for_a_while_after_the_hub_was_suspended() -> None:
    book = CoverageBook(START)
    assert book.check_listening(START + SECOND // 4)
    woke = START + 60 * SECOND
    assert not book.check_listening(woke)
    assert not book.check_listening(woke + RESTART_GRACE - SECOND // 4 * 9)


def test_a_hub_that_often_stalls_still_finds_dark_devices() -> None:
    book, now, is_dark = CoverageBook(START), START, False
    book.set_roster(roster(), now)
    book.report(report("cam-1"), now)
    for _ in range(30):
        for step_ns in (SECOND * 4 // 3, SECOND // 4, SECOND // 4):
            now += step_ns
            is_dark |= book.check_listening(now) and book.is_dark(*declared_device(book), now - book.unheard)
    assert is_dark


def test_a_device_heard_and_reported_dark_gets_only_the_margin() -> None:
    book = book_at_rest()
    later = START + 60 * SECOND
    book.report(report("cam-1"), later)
    silent = DeviceStatus(id="cam-1", zone="yard", reason="silent for 2.1 s", heard_ns=1)
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, devices=[silent]), later + SECOND)
    assert not book.is_dark(*declared_device(book), later + MARGIN)
    assert book.is_dark(*declared_device(book), later + MARGIN + 1)


def test_a_new_owner_that_never_heard_the_device_gets_the_deadline() -> None:
    book = book_at_rest()
    later = START + 60 * SECOND
    book.report(report("cam-1"), later)
    unheard = DeviceStatus(id="cam-1", zone="yard", reason="never heard")
    book.report(Coverage(fleet=FLEET, shard="yard-1", epoch=2, devices=[unheard]), later + SECOND)
    assert not book.is_dark(*declared_device(book), later + MARGIN + 1)


def test_a_device_never_heard_gets_its_deadline_from_its_shards_start() -> None:
    book = book_at_rest()
    began = START + DEADLINE + MARGIN
    book.report(report(dark=("cam-1",)), began)
    assert not book.is_dark(*declared_device(book), began + DEADLINE + MARGIN)
    for second in range(1, 10):
        book.report(report(dark=("cam-1",), shard=f"yard-{second}", epoch=second), began + second * SECOND)
    assert book.is_dark(*declared_device(book), began + DEADLINE + MARGIN + 1), "once: another shard is no excuse"


def test_a_dark_device_stays_dark_when_a_new_shard_starts_to_wait() -> None:
    book = book_at_rest()
    late = START + DEADLINE + MARGIN + 1
    assert book.is_dark(*declared_device(book), late)
    book.report(report(dark=("cam-1",)), late)
    assert book.is_dark(*declared_device(book), late)


def test_a_new_device_heard_and_reported_dark_gets_no_extra_time() -> None:
    book = book_at_rest()
    blind = DeviceStatus(id="cam-1", zone="yard", reason="lens covered", heard_ns=1)
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, devices=[blind]), START + SECOND)
    assert book.is_dark(*declared_device(book), START + DEADLINE + MARGIN + 1)


def test_an_undeclared_device_is_listed_separately_while_reported() -> None:
    book = book_at_rest()
    undeclared = DeviceStatus(id="x", reason="not declared in this fleet")
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, time_ns=1, devices=[undeclared]), START)
    assert [watched.device.id for _, watched in book.undeclared_devices()] == ["x"]
    assert book.find(FLEET, "x") is None
    assert book.counts(START)["default", "yard"] == (2, 0)
    book.set_roster(roster(2, "cam-1", "x"), START)
    assert not list(book.undeclared_devices())
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=2, time_ns=2, devices=[DeviceStatus(id="y")]), START)
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=2, time_ns=3), START)
    assert not list(book.undeclared_devices())


def test_undeclared_devices_vanish_with_the_shard_that_reported_them() -> None:
    book = book_at_rest()
    names = [f"x-{number}" for number in range(MAX_UNDECLARED)]
    devices = [DeviceStatus(id=name) for name in names]
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, time_ns=1, devices=devices), START)
    book.tidy(START + FORGET)
    assert len(list(book.undeclared_devices())) == MAX_UNDECLARED
    later = START + FORGET + 1
    book.tidy(later)  # the shard was killed without reporting that they are gone
    assert not list(book.undeclared_devices())
    newcomer = DeviceStatus(id="y")
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, time_ns=2, devices=[newcomer]), later)
    assert [watched.device.id for _, watched in book.undeclared_devices()] == ["y"]


def test_a_report_in_parts_lists_the_devices_of_all_parts() -> None:
    book = CoverageBook(START)

    def send_parts(time: int, *parts: tuple[str, ...]) -> None:
        for number, names in enumerate(parts):
            coverage = report(*names, time=time)
            coverage.more = number < len(parts) - 1
            book.report(coverage, START + time)

    send_parts(1, ("a", "b"), ("c",))
    (fleet,) = book.fleets.values()
    assert all(watched.sightings for watched in fleet.devices.values())
    assert set(fleet.devices) == {"a", "b", "c"}
    send_parts(2, ("a",), ("c",))
    assert {name: bool(watched.sightings) for name, watched in fleet.devices.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }


def test_a_device_stays_heard_when_its_new_shard_has_not_heard_it() -> None:
    book = book_at_rest()
    heard = DeviceStatus(id="cam-1", zone="yard", covered=True, heard_ns=7, analysed_ns=6)
    book.report(Coverage(fleet=FLEET, shard="yard-0", epoch=1, devices=[heard]), START)
    unheard = DeviceStatus(id="cam-1", zone="yard", reason="never heard")
    book.report(Coverage(fleet=FLEET, shard="yard-1", epoch=2, devices=[unheard]), START + SECOND)
    watched = declared_device(book)[1]
    assert (watched.heard_ns, watched.analysed_ns) == (7, 6)
