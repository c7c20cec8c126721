"""The chart accepts the values that the guides show."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness.cluster.chart import CHART, template
from harness.need import ROOT
from harness.pages import yaml_examples

VALUES = yaml.safe_load((CHART / "values.yaml").read_text()).keys()


def examples() -> Iterator[object]:
    """Test parameters for the examples of values: their text."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for line, text in yaml_examples(page):
            document = next(yaml.safe_load_all(text))
            if isinstance(document, dict) and document.keys() <= VALUES:
                yield pytest.param(text, id=f"{page.name}:{line}")


def test_the_guides_have_examples_of_values() -> None:
    assert len(list(examples())) >= 3


@pytest.mark.parametrize("text", list(examples()))
def test_an_example_of_values_is_accepted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    done = template("--values", str(file))
    assert done.returncode == 0, done.stderr
