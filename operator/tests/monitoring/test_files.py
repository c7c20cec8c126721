"""Committed files match their source."""

from pathlib import Path

import pytest

from embereye_operator.monitoring.files import ROOT, generated


@pytest.mark.parametrize("path", generated(), ids=str)
def test_generated_files_are_current(path: Path) -> None:
    assert (ROOT / path).read_text() == generated()[path], f"{path} is out of date: run make monitoring"
