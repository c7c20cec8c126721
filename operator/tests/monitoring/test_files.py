"""What is committed is what its source makes."""

from pathlib import Path

import pytest

from embereye_operator.monitoring.files import ROOT, generated


@pytest.mark.parametrize("path", generated(), ids=str)
def test_generated_files_are_fresh(path: Path) -> None:
    assert (ROOT / path).read_text() == generated()[path], f"{path} is stale: make monitoring"
