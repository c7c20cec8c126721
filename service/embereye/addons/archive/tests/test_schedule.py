"""The times of a FleetBackup's schedule."""

from datetime import UTC, datetime

import pytest

from embereye.addons.archive.resource.schedule import parse_schedule


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("0 3 * * *", "Etc/UTC", "2026-11-30 02:59:59", "2026-11-30 03:00"),
        ("0 3 * * *", "Etc/UTC", "2026-11-30 03:00", "2026-12-01 03:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-07-01 00:30", "2026-07-01 01:00"),
        ("*/15 8-18/2 * * MON-FRI", "Etc/UTC", "2026-11-28 09:00", "2026-11-30 08:00"),
        ("5/20 * * * *", "Etc/UTC", "2026-11-30 00:26", "2026-11-30 00:45"),
        ("0 0 29 FEB *", "Etc/UTC", "2026-11-30 00:00", "2028-02-29 00:00"),
        ("0 0 13 * FRI", "Etc/UTC", "2026-11-30 00:00", "2026-12-04 00:00"),  # either counts
        ("0 0 */2 * 1", "Etc/UTC", "2026-11-30 00:00", "2026-12-01 00:00"),  # a step restricts, too
        ("0 0 13,* * 5", "Etc/UTC", "2026-11-30 00:00", "2026-12-04 00:00"),  # both must match
        ("0 0 */1 * 1", "Etc/UTC", "2026-11-30 00:00", "2026-12-07 00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-30 00:30"),  # no such time on the 29th
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-25 00:30"),  # it comes twice on the 25th
        ("0 0 30 2 *", "Etc/UTC", "2026-11-30 00:00", None),
    ],
)
def test_the_next_time_is_that_of_cron(schedule: str, zone: str, after: str, expected: str | None) -> None:
    moment = parse_schedule(schedule, zone).next_after(datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert moment == (datetime.fromisoformat(expected).replace(tzinfo=UTC) if expected else None)


@pytest.mark.parametrize(
    ("schedule", "zone", "words"),
    [
        ("0 3 * *", "Etc/UTC", "spec.schedule: '0 3 . .' is not a schedule"),
        ("60 3 * * *", "Etc/UTC", "is not a schedule"),
        ("0 5-3 * * *", "Etc/UTC", "'5-3' ends before it begins"),
        ("0 3 * * *", "Mars/Olympus", "spec.timeZone: 'Mars/Olympus' is not a time zone"),
        ("0 3 * * *", "../etc/passwd", "is not a time zone"),
    ],
)
def test_a_wrong_schedule_is_named(schedule: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("*", ".").replace("(", "[(]")):
        parse_schedule(schedule, zone)
