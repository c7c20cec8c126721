"""The file of profiles."""

from pathlib import Path

from harness.pages import yaml_examples

from embereye.addons.profiles.options import parse_profiles
from embereye_cli.declared import parse_declared


def test_the_example_of_the_page_is_accepted() -> None:
    (_, example), *_ = yaml_examples(Path(__file__).parents[1] / "README.md")
    assert list(parse_declared(example, parse_profiles).profiles) == ["welding", "kitchen-hours", "night", "oven"]
