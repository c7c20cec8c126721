"""The chart's README lists the chart's values."""

import runpy
from pathlib import Path

import pytest
from harness.cluster.chart import CHART

GENERATOR = runpy.run_path(str(Path(__file__).parent / "readme.py"))
VALUES = {path: text for path, _, text in GENERATOR["values"]()}


def test_the_readme_matches_the_values() -> None:
    assert (CHART / "README.md").read_text() == GENERATOR["render"](), "run `make golden`"


@pytest.mark.parametrize("path", ["imagePullSecrets", "hub.replicas", "hub.tls", "operator.rollout", "image.digest"])
def test_a_value_comes_with_its_comment(path: str) -> None:
    assert len(VALUES[path]) > 20
