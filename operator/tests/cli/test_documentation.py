"""Every `embereye` command and every example of a fleet in README and docs is one that the program accepts."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.need import ROOT
from harness.pages import yaml_examples

from embereye.hub.webhooks.options import parse_webhooks
from embereye_cli.main import COMMANDS, command_of, command_parser
from embereye_cli.plugin import build_parser
from embereye_operator.api.documents import read_document, read_documents
from embereye_operator.api.fleets import FleetError, parse_fleet
from embereye_operator.api.shared import API_VERSIONS

ADDONS = ROOT / "service/embereye/addons"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ADDONS.rglob("*.md"))]
# An ellipsis, a choice or an optional part: such a line explains a command and cannot run.
SCHEMATIC = re.compile(r"…| \| |\\\||\[-|\[FLEET")
DEVICES = {"SensorFleet": "sensors", "CameraFleet": "cameras"}  # field of the devices, by kind
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def words_of(line: str) -> list[str] | None:
    """The words of a line that runs `embereye` or `kubectl embereye`, without comments; None for other lines."""
    match = re.match(r"(?:sudo )?(?:\S*/)?(kubectl embereye|embereye) [a-z].*", line.strip())
    if not match or SCHEMATIC.search(line):
        return None
    command = re.sub(r"\$\([^)]*\)", "x", re.split(r" > | && ", match[0])[0])
    words = shlex.split(command.removeprefix("sudo "), comments=True)
    return [Path(words[0]).name, *words[1:]]


def commands(lines: dict[str, Path]) -> list[object]:
    """Test parameters for the commands among `lines`: their page and words."""
    return [
        pytest.param(page, words, id=" ".join(words)[:60]) for line, page in lines.items() if (words := words_of(line))
    ]


def fenced() -> dict[str, Path]:
    """Every line of a code block, with continued lines joined, and its page."""
    return {
        line: page.relative_to(ROOT)
        for page in PAGES
        for language, block in FENCED.findall(page.read_text())
        if language in ("", "sh")
        for line in block.replace("\\\n", " ").splitlines()
    }


def inline() -> dict[str, Path]:
    """Every piece of inline code, and its page."""
    return {
        code: page.relative_to(ROOT)
        for page in PAGES
        for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", page.read_text()))
    }


def test_the_documentation_has_commands() -> None:
    assert len(commands(fenced())) >= 80


@pytest.mark.parametrize("page", sorted((ROOT / "docs/how-to/cameras").glob("*.md")), ids=lambda page: page.stem)
def test_each_section_of_a_cameras_page_names_a_public_source(page: Path) -> None:
    sections = re.split(r"^(?=##? )", page.read_text(), flags=re.MULTILINE)
    assert [section.splitlines()[0] for section in sections if section and "<!-- source" not in section] == []


def test_every_command_is_described_once_and_the_reference_has_no_others() -> None:
    reference = (ROOT / "docs/reference/commands.md").read_text().splitlines()
    elsewhere = [line for page in PAGES if page.name != "commands.md" for line in page.read_text().splitlines()]
    rows = [f"| `embereye {' '.join(words)}` | {sentence} |" for words, (_, sentence) in COMMANDS.items()]
    assert [row for row in rows if [*reference, *elsewhere].count(row) != 1] == []
    assert {line for line in reference if line.startswith("| `embereye ")} <= set(rows)


def problem(words: list[str]) -> str:
    """The message with which the command's own parser refuses `words`; empty if it accepts them."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
        if words[0] == "kubectl":
            build_parser().parse_args(words[2:])
        elif command := command_of(words[1:]):
            command_parser(command).parse_args(words[1 + len(command) :])
        elif words[1:] not in [
            [name[0]] for name in COMMANDS
        ]:  # `embereye explain` is the first word of several commands
            return f"{words[1]}: no such command"
    return errors.getvalue()


@pytest.mark.parametrize(("page", "words"), commands(fenced()))
def test_a_command_in_a_code_block_is_accepted(
    page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not problem(words), page


@pytest.mark.parametrize(("page", "words"), commands(inline()))
def test_a_command_in_a_sentence_is_accepted_or_lacks_arguments(page: Path, words: list[str]) -> None:
    message = problem(words)
    assert not message or "missing" in message or "required" in message or any(word.isupper() for word in words), page


def fields_of_specs() -> set[str]:
    """The fields of a fleet's spec, of both kinds; hub is also a value of the chart."""
    versions = [
        yaml.safe_load((ROOT / f"charts/embereye/files/crds/{name}fleets.yaml").read_text())["spec"]["versions"][0]
        for name in ("sensor", "camera")
    ]
    schemas = [version["schema"]["openAPIV3Schema"]["properties"]["spec"] for version in versions]
    return {name for schema in schemas for name in schema["properties"]} - {"hub"}


def specs_of(page: Path, document: Any, fields: set[str]) -> Mapping[str, Any]:
    """The spec by each possible kind of fleet, for an example of a fleet or of a part of one; empty for others."""
    of_fleets = page.is_relative_to(ROOT / "docs") or "sensors" in page.parent.name
    match document:
        case {"kind": "SensorFleet" | "CameraFleet" as kind, "spec": spec}:
            return {kind: spec}
        case {"kind": _}:
            return {}
        case {"spec": dict(spec)} | dict(spec) if of_fleets and spec.keys() <= fields:
            return dict.fromkeys(DEVICES, spec)
        case [{"id": _, "zone": _}, *_]:
            return {kind: {name: document} for kind, name in DEVICES.items()}
    return {}


def fleets() -> Iterator[object]:
    """Test parameters for the examples of fleets: the page, and the spec by each possible kind."""
    fields = fields_of_specs()
    for page in PAGES:
        for line, text in yaml_examples(page):
            for document in read_documents(text):
                if specs := specs_of(page, document, fields):
                    yield pytest.param(specs, id=f"{page.relative_to(ROOT)}:{line}-{'-'.join(specs)}")


def fleet_problem(kind: str, spec: Any) -> str:
    """The reason why a fleet with `spec` is refused; empty if it is accepted."""
    manifest = {"apiVersion": API_VERSIONS[-1], "kind": kind, "metadata": {"name": "example"}, "spec": spec}
    try:
        parse_fleet(manifest)
    except FleetError as error:
        return "; ".join(error.problems)
    return ""


def test_the_documentation_has_examples_of_fleets() -> None:
    assert len(list(fleets())) >= 20


@pytest.mark.parametrize("specs", list(fleets()))
def test_an_example_of_a_fleet_is_accepted(specs: Mapping[str, Any]) -> None:
    problems = {kind: fleet_problem(kind, spec) for kind, spec in specs.items()}
    assert "" in problems.values(), problems


def test_the_example_of_webhooks_is_accepted() -> None:
    (_, example), *_ = yaml_examples(ROOT / "docs/how-to/feeds.md")
    assert [webhook.name for webhook in parse_webhooks(read_document(example))] == ["pager", "alertmanager"]
