"""Files that people name."""

import os
from pathlib import Path

import pytest

from embereye.process.files import check_writable, open_file, write_new, write_whole
from embereye.process.lifecycle import UserError
from embereye.process.sqlite_files import SqliteFiles


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


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_APPEND | os.O_CREAT])
def test_a_link_in_the_place_of_a_file_is_not_followed(flags: int, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        open_file(tmp_path / "lock", flags)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        open_file(tmp_path / "pipe", os.O_WRONLY | os.O_CREAT)
    assert (tmp_path / "precious").read_text() == "as it was"


@pytest.mark.parametrize("private", [True, False])
def test_a_link_in_the_place_of_a_draft_is_replaced(private: bool, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "file.tmp").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "file", b"new", private=private)
    assert (tmp_path / "precious").read_text() == "as it was"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o077 == (0 if private else 0o044)


def test_a_link_in_the_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    valuable = tmp_path / "valuable"
    valuable.write_text("content")
    (tmp_path / "database.room").symlink_to(valuable)
    SqliteFiles(tmp_path / "database").check_room()
    with pytest.raises(FileExistsError):
        write_new(valuable, b"other")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(OSError):  # noqa: PT011 - any reason
        write_new(tmp_path / "link", b"other")
    assert valuable.read_text() == "content"
    assert not (tmp_path / "nothing").exists()
    assert not (tmp_path / "database.room").is_symlink()
