"""The name of the machine's time zone."""

from pathlib import Path

import pytest

from embereye.process.timing.zone import zone_name

NO_LINK = Path("/nonexistent/localtime")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("Europe/Vienna", "Europe/Vienna"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        (":/usr/share/zoneinfo/America/New_York", "America/New_York"),
        ("Etc/UTC", "UTC"),
        ("", "UTC"),
        ("CET-1CEST", ""),
        ("../../etc/passwd", ""),
    ],
)
def test_the_zone_of_the_environment_has_its_name(environment: str, name: str) -> None:
    assert zone_name(environment, NO_LINK) == name


def test_the_zone_of_the_system_is_that_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "zoneinfo" / "Europe"
    folder.mkdir(parents=True)
    (folder / "Berlin").touch()
    link = tmp_path / "localtime"
    link.symlink_to(folder / "Berlin")
    assert zone_name("", link) == "Europe/Berlin"


def test_a_file_that_is_no_link_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "localtime").touch()
    assert zone_name("", tmp_path / "localtime") == ""
