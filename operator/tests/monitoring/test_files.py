"""Committed files match their source."""

from pathlib import Path

import pytest

from embereye_operator.api import files as api
from embereye_operator.monitoring import files as monitoring

FILES = {**monitoring.generated(), **api.generated()}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_generated_files_are_current(path: Path) -> None:
    assert (api.ROOT / path).read_text() == FILES[path], f"{path} is out of date: run make monitoring and make crds"
