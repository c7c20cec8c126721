"""Files that people name."""

from pathlib import Path

import pytest

from embereye.process.files import check_writable
from embereye.process.lifecycle import UserError


@pytest.mark.parametrize("folder", ["", "f" * 300], ids=["a name", "a folder"])
def test_an_impossible_file_name_is_reported_in_one_sentence(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--to .* cannot be written: File name too long"):
        check_writable("--to", tmp_path / folder / ("x" * 300))


def test_checking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("as it was")
    (tmp_path / "link").symlink_to(tmp_path / "not yet there")
    for name in ("there", "new", "link"):
        check_writable("--to", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]
    assert (tmp_path / "there").read_text() == "as it was"
