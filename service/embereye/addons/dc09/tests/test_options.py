"""The file of DC-09: what it may say, and the sentence for what it may not."""

from pathlib import Path

import pytest
from harness.pages import yaml_examples

from embereye.addons.dc09.options import parse_dc09, read_dc09, read_key
from embereye.process.lifecycle import UserError
from embereye_cli.declared import parse_declared

STATION = "name: central, account: '0123', receivers: [{host: h, port: 9000}]"


def test_the_examples_of_the_page_are_accepted() -> None:
    (_, stations), (_, listen) = yaml_examples(Path(__file__).parents[1] / "README.md")
    options = parse_declared(stations + listen, parse_dc09)
    assert [station.name for station in options.stations] == ["central"]
    assert options.listen is not None


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "dc09.yaml"
    file.write_text("""
stations:
  - name: central
    account: "0a23"
    format: ADM-CID
    receivers: [{host: a.example, port: 9000}, {host: b.example, port: 9000}]
    send: [alarm, pre-alarm, fault, test]
    zones: {hall: 12, north/store: 13}
    codes: {smoke: {sia: FW, cid: "112"}}
listen:
  port: 9001
  accounts:
    - {name: old-panel, account: "4321", zones: {3: hall, 0: yard}}
""")
    options = read_dc09(file)
    (station,) = options.stations
    assert (station.account, station.format, len(station.receivers)) == ("0A23", "ADM-CID", 2)
    assert (station.number("default", "hall"), station.number("north", "store")) == (12, 13)
    assert station.number("default", "yard") == 0
    assert (station.codes["smoke"].sia, station.codes["smoke"].sia_restored, station.codes["smoke"].cid) == (
        "FW", "FR", "112",
    )  # fmt: skip
    assert options.listen is not None
    assert options.listen.accounts["4321"].zones == {3: "hall", 0: "yard"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "nothing is declared"),
        ("stations: [{name: central, account: 123, receivers: [{host: h, port: 9000}]}]", "put it into quotes"),
        ("stations: [{name: central, account: '12', receivers: [{host: h, port: 9000}]}]", "of 3 to 16 hexadecimal"),
        ("stations: [{name: central, account: '123', receivers: []}]", "has 0 entries. Declare 1 to 2."),
        (f"stations: [{{{STATION}, zones: {{hall: 1000}}}}]", "zones.hall: 1000 is not a number from 0 to 999"),
        (f"stations: [{{{STATION}, send: [fire]}}]", '"fire" is not one of alarm'),
        (f"stations: [{{{STATION}, codes: {{fire: {{sia: F}}}}}}]", 'codes.fire.sia: "F" is not two capital letters'),
        (f"stations: [{{{STATION}}}, {{{STATION}}}]", "is declared twice"),
        ("listen: {port: 9001, accounts: [{name: a, account: '123'}]}", "zones is missing"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_place_and_the_remedy(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "dc09.yaml"
    file.write_text(content)
    with pytest.raises(UserError) as refused:
        read_dc09(file)
    assert sentence in str(refused.value)


def test_a_wrong_key_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("secret")
    with pytest.raises(ValueError, match="does not have 32, 48 or 64 hexadecimal digits") as refused:
        read_key(file)
    assert "secret" not in str(refused.value)
