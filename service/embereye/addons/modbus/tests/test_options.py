"""The file of Modbus outputs: what it may say, and the sentence for what it may not."""

from pathlib import Path

import pytest
from harness.pages import yaml_examples

from embereye.addons.modbus.options import Place, parse_modbus, read_modbus
from embereye.process.lifecycle import UserError
from embereye_cli.declared import parse_declared

RULE = "{coil: 0, zones: ['*']}"


def test_the_example_of_the_page_is_accepted() -> None:
    (_, example), *_ = yaml_examples(Path(__file__).parents[1] / "README.md")
    options = parse_declared(example, parse_modbus)
    assert options.serve is not None
    assert [panel.name for panel in options.panels] == ["relays"]


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "modbus.yaml"
    file.write_text("""
panels:
  - name: relays
    host: 10.0.0.7
    port: 1502
    unit: 3
    heartbeat: {register: 100}
    rules:
      - {coil: 0, zones: ["*"]}
      - {coil: 1, when: alarm, zones: [hall, north/store], until: acknowledged, on: 0, off: 1}
serve:
  port: 5020
  allow: [10.0.0.0/24]
  rules:
    - {register: 1, when: state, zones: [hall]}
""")
    options = read_modbus(file)
    (panel,) = options.panels
    assert (panel.name, panel.host, panel.port, panel.unit) == ("relays", "10.0.0.7", 1502, 3)
    assert panel.table.heartbeat == Place("register", 100)
    siren = panel.table.rules[1]
    assert (siren.until, siren.on, siren.off) == ("acknowledged", 0, 1)
    assert siren.has_zone("default", "hall")
    assert siren.has_zone("north", "store")
    assert not siren.has_zone("default", "store")
    assert options.serve is not None
    assert str(options.serve.allow[0]) == "10.0.0.0/24"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "nothing is declared"),
        ("- a", "the file is not an object"),
        ("panels: [{name: a, host: h}]", "panels[0].rules is missing"),
        (f"panels: [{{name: A, host: h, rules: [{RULE}]}}]", 'panels[0].name: "A" is not a name'),
        (f"panels: [{{name: a, host: h, prot: 1, rules: [{RULE}]}}]", "panels[0].prot is not a field"),
        (f"panels: [{{name: a, host: h, port: 0, rules: [{RULE}]}}]", "panels[0].port: 0 is not a whole number from 1"),
        (f"panels: [{{name: a, host: h, rules: [{RULE}, {RULE}]}}]", "coil 0 is already in panels[0].rules[0]"),
        ("panels: [{name: a, host: h, rules: [{coil: 0, register: 1, zones: ['*']}]}]", "set either coil or register"),
        ("panels: [{name: a, host: h, rules: [{coil: 0, when: state, zones: ['*']}]}]", "Use a register"),
        ("panels: [{name: a, host: h, rules: [{coil: 0, on: 7, zones: ['*']}]}]", "0 and 1 for a coil"),
        ("panels: [{name: a, host: h, rules: [{coil: 0}]}]", 'zones is missing. Name zones, or "*"'),
        ("panels: [{name: a, host: h, rules: [{coil: 0, zones: [a/b/c]}]}]", "is not ZONE"),
        (f"serve: {{port: 5020, allow: [10.0.0.1/8], rules: [{RULE}]}}", "10.0.0.1/8 has host bits set"),
        ("panels: {", "not YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_place_and_the_remedy(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "modbus.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as refused:
        read_modbus(file)
    assert sentence in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_modbus(tmp_path / "none.yaml")
