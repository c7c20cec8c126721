"""A dead watch, a slow watch, and resource versions that start again."""

from embereye_operator.decide.cluster.watch_lag import LIMIT, WatchLag

HALL = ("SensorFleet", "n", "hall")
YARD = ("CameraFleet", "n", "yard")


def test_an_object_that_no_watch_reports_makes_the_watch_dead() -> None:
    lag = WatchLag()
    lag.expect(HALL, 7, now=100)
    assert not lag.death_reason(100 + LIMIT), "it may have been listed just before its event"
    assert "SensorFleet n/hall at version 7" in lag.death_reason(101 + LIMIT)


def test_an_object_that_changes_at_every_list_is_expected_since_the_first() -> None:
    lag = WatchLag()
    for number in range(4):
        lag.expect(HALL, 7 + number, now=100 + 30 * number)
    assert lag.death_reason(101 + LIMIT)


def test_a_slow_watch_is_healthy() -> None:
    lag = WatchLag()
    lag.expect(HALL, 7, now=100)
    lag.note_event(HALL, 6)
    assert lag.death_reason(200)
    lag.note_event(HALL, 9)
    assert not lag.death_reason(200)


def test_a_burst_with_new_objects_at_every_list_is_no_evidence() -> None:
    lag = WatchLag()
    for second in range(0, 600, 30):
        for number in range(1000):
            lag.expect(("Deployment", "n", f"d-{number}"), second + 1, now=second)
        assert not lag.death_reason(second + 29)
        for number in range(1000):
            lag.note_event(("Deployment", "n", f"d-{number}"), second + 1)


def test_a_deleted_object_is_not_expected() -> None:
    lag = WatchLag()
    lag.expect(HALL, 7, now=100)
    lag.expect(YARD, 8, now=100)
    lag.retain("CameraFleet", [])
    lag.retain("SensorFleet", [HALL])
    assert "hall" in lag.death_reason(200)
    lag.retain("SensorFleet", [])
    assert not lag.death_reason(200)


def test_a_server_with_lower_versions_was_restored() -> None:
    lag = WatchLag()
    lag.note_list("SensorFleet", 900)
    lag.note_list("Deployment", 899)
    lag.note_list("SensorFleet", 900)
    assert not lag.death_reason(200)
    lag.note_list("SensorFleet", 400)
    lag.note_list("SensorFleet", 401)
    assert "SensorFleet was listed as of version 400 after 900" in lag.death_reason(200)
