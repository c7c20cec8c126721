"""ARCHITECTURE.md names only files and folders that exist, and its table of places fits on a page."""

import math
import re
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## Where to put things")[2].partition("\n\n")[0]
MAX_ROWS = 30
MAX_LINES = 60  # of a printed page, with columns of …
COLUMNS = (32, 68)  # characters
PATH = re.compile(r"`([\w.*/{},-]+(?:/|\.py|\.js))`")


def _paths(text: str) -> list[str]:
    """The paths that `text` names, with {a,b} as two. Folders of add-ons may be deleted."""
    paths = []
    for path in PATH.findall(text):
        choice = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
        paths += [f"{choice[1]}{each}{choice[3]}" for each in choice[2].split(",")] if choice else [path]
    return [path for path in paths if not path.startswith("addons/")]


@pytest.fixture(scope="module")
def listed() -> list[str]:
    """All files under version control."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_the_files_and_folders_in_it_exist(listed: list[str]) -> None:
    existing = {f"/{path}" for path in listed}
    existing |= {f"{folder}/" for path in existing for folder in accumulate(path.split("/")[:-1], "{}/{}".format)}
    paths = _paths(TEXT)
    assert len(paths) > 50
    assert [path for path in paths if not any(name.endswith(f"/{path}") for name in existing)] == []


def test_the_table_of_places_fits_on_a_page() -> None:
    rows = [row.replace("`", "").strip("| ").split(" | ") for row in TABLE.splitlines() if row.startswith("| ")][2:]
    assert 20 < len(rows) <= MAX_ROWS
    lines = [max(math.ceil(len(cell) / width) for cell, width in zip(row, COLUMNS, strict=True)) for row in rows]
    assert sum(lines) <= MAX_LINES
