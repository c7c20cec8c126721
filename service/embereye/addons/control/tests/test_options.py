"""The file of rules from zones to actuators."""

from pathlib import Path

from harness.pages import yaml_examples

from embereye.addons.control.options import parse_actuators
from embereye_cli.declared import parse_declared


def test_the_example_of_the_page_is_accepted() -> None:
    ((_, example),) = yaml_examples(Path(__file__).parents[1] / "README.md")
    (damper,) = parse_declared(example, parse_actuators)
    assert [rule.output for rule in damper.rules] == ["flap", "lamp"]
